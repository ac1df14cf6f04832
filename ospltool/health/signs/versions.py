"""The sign that two sides speak different versions of the protocol."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from engine.tracing.catalogue import catalogue
from ospltool.health.codes import SECOND_NS, Sign
from ospltool.health.scene import MEETING_NS, Scene
from ospltool.live.nodes import Node
from ospltool.live.remarks import Remark

UNKNOWN_NS: Final = 600 * SECOND_NS
"""Time for which messages of a sender that is not heard, or of a kind that is not known, are told."""

_VERSION: Final = re.compile(r"(?P<version>-?\d{1,9}) '(?P<kind>.*)'")
"""A longer number is none: a node tells what anybody sent to it."""
_KNOWN: Final = re.compile(r"\d{1,9}")


class _Spoken(NamedTuple):
    """The versions that a sender speaks and that the telling node knows; equal if a kind is new."""

    theirs: int
    known: int


def _spoken(remark: Remark) -> _Spoken | None:
    found = catalogue().match(remark.text)
    fields = found[1] if found else {}
    version = _VERSION.fullmatch(fields.get("version", ""))
    known = fields.get("known", "")
    return _Spoken(int(version["version"]), int(known)) if version and _KNOWN.fullmatch(known) else None


def is_over(scene: Scene, node: Node, remark: Remark) -> bool:
    """Return whether what a node told of another version is over.

    A node tells it once of each sender. So it holds as long as the sender is heard and is no fellow of the
    node: what speaks another version cannot become one.
    """
    sender = scene.model.nodes.get(remark.subject)
    spoken = _spoken(remark)
    if sender is None or spoken is None or spoken.theirs == spoken.known:
        return scene.now_ns - remark.time_ns >= UNKNOWN_NS or bool(sender and sender.gone_ns)
    return sender.gone_ns > 0 or sender.id in scene.facts(node).met


def unsupported(scene: Scene, node: Node, remark: Remark) -> Sign:
    """Return a sign about both sides; `causes` finds the one that differs.

    The watcher may hear of the sender before it hears the sender: the sign waits for its name.
    """
    sender, spoken = scene.model.nodes.get(remark.subject), _spoken(remark)
    name = node.snapshot.name
    what, why = f"{name} says: {remark.text.removesuffix('.')}", ""
    nodes = tuple(filter(None, (node.id, remark.subject)))
    since_ns, patience_ns = (remark.time_ns, 0) if sender is not None else (0, MEETING_NS)
    names = sorted(scene.model.name_of(one) for one in nodes)
    if sender is not None and spoken is not None and spoken.theirs != spoken.known:
        other = sender.snapshot.name
        newer, older = (other, name) if spoken.theirs > spoken.known else (name, other)
        versions = f"{max(spoken)} ({newer}) and {min(spoken)} ({older})"
        what = f"{names[0]} and {names[1]} speak different versions of the protocol: {versions}"
        why = f"{newer} is of a newer release, whose protocol {older} does not know"
    who = " and ".join(names)
    return Sign("DUL-PROTOCOL", who, what, since_ns, nodes, why=why, patience_ns=patience_ns)
