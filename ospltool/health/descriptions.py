"""An incident in words: what, who, why and what next, of its root cause."""

from __future__ import annotations

import shlex

from ospltool.health.causes import RootCause
from ospltool.health.codes import Code, joined
from ospltool.health.effects import advice
from ospltool.health.incident import Incident
from ospltool.health.presence import Scene


def described(scene: Scene, cause: RootCause, effect: str) -> Incident:
    """Return the incident of a cause with its `effect`, as it is now."""
    root, code = cause.root, cause.root.kind
    why = root.why or _causes_of_nodes(cause)
    return Incident(
        key=root.key,
        code=code,
        severity=cause.urgency,
        who=root.who,
        what=root.what,
        why=why or root.guess or f"cause unknown; usually: {' '.join(code.causes)}",
        is_cause_known=bool(why),
        effect=effect,
        next=root.next or advice(scene, cause) or _next(code, scene.expected.file),
        since_ns=root.since_ns,
        began_before=root.began_before,
        nodes=cause.nodes,
        subjects=root.subjects or root.nodes,
        name_spaces=cause.name_spaces,
        signs=tuple(dict.fromkeys(sign.what for sign in cause.signs)),
        weight=root.weight,
    )


def _next(code: Code, file: str) -> str:
    """Return the advice of a code, with the fleet file that the user named in its commands."""
    check = "`ospltool check {}`"
    return code.next.replace(check.format("fleet.toml"), check.format(shlex.quote(file or "fleet.toml")))


def _causes_of_nodes(cause: RootCause) -> str:
    """Return the known causes of the losses of nodes that are one loss of the domain; empty without any."""
    if cause.root.kind.cause != "domain":
        return ""
    told: dict[str, list[str]] = {}
    for sign in cause.others:
        if sign.kind.cause == "node" and sign.why and sign.who not in told.setdefault(sign.why, []):
            told[sign.why].append(sign.who)
    return "; ".join(f"{joined(names)}: {why}" for why, names in told.items())
