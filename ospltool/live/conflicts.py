"""Conflicts between nodes, open and past, as their events report them: cause, policy, outcome."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping
from typing import Final

from engine.runtime.monitor import PART, FellowView, NodeEvent, NodeSnapshot
from engine.tracing.catalogue import catalogue
from ospltool.live.nodes import Node
from ospltool.output.text import plural

# Some screenfuls; a recording has all.
MAX_CONFLICTS: Final = 500
"""Conflicts kept. Of the node that reports most, ended ones are forgotten first, then open ones."""

# As the nodes' own texts shorten them.
SHORT_ID: Final = 8
"""Hexadecimal digits of an id that stand for a fellow whose name is not known yet."""

INCOMPATIBLE: Final = "name-spaces overlap without being equal"

_CAUSES: Final = {
    "conflict.native-state": "set with another history, same role",
    "conflict.foreign-state": "set of another role, not merged yet",
    "compatibility.conflict": INCOMPATIBLE,
    "merge.started": "sets evolved apart",
    "merge.no-scope": "no Merge scope matches the role",
    "merge.contradiction": "merge policies contradict each other",
}
_OPENING: Final = frozenset(_CAUSES) - {"merge.started"}
_OVER_AT_ONCE: Final = frozenset({"merge.no-scope", "merge.contradiction"})
_CLOSING: Final = {
    "conflict.resolved": "resolved",
    "conflict.discarded": "conditions gone",
    "compatibility.resolved": "became compatible",
    "compatibility.approved": "became compatible",
}


@dataclasses.dataclass(frozen=True, slots=True)
class ReportedConflict:
    """One conflict as one node reports it."""

    node: str
    """Id of the node that reports it."""
    node_name: str
    """Name of that node."""
    number: str
    """The node's name for it; empty without one."""
    name_space: str
    """Name-space; empty for incompatible fellows."""
    fellow: str
    """Name of the other node, or the first digits of its id."""
    cause: str
    """Cause in words."""
    began_ns: int
    """Beginning, by the node's clock; 0 if only a snapshot shows it."""
    text: str
    """Text of the first event, or the fellow's problem."""
    policy: str = ""
    """Merge policy; empty until the merge begins."""
    outcome: str = ""
    """Outcome in words; empty while it is open."""
    ended_ns: int = 0
    """End; 0 while it is open."""

    @property
    def is_incompatibility(self) -> bool:
        """Whether the two nodes do not communicate at all."""
        return self.cause == INCOMPATIBLE

    @property
    def key(self) -> str:
        """Identity of the conflict among all others."""
        return f"{self.node}/{self.number}/{self.name_space}/{self.fellow}/{self.began_ns}"


def _moved(fields: Mapping[str, str]) -> str:
    samples = fields.get("samples", "?")
    return f"{plural(int(samples), 'sample') if samples.isdecimal() else f'{samples} samples'} moved"


class ConflictLog:
    """The conflicts that events reported, oldest first. `left_out` counts those that were forgotten."""

    def __init__(self) -> None:
        self._conflicts: list[ReportedConflict] = []
        self._settled: set[str] = set()
        self.left_out = 0

    @property
    def conflicts(self) -> list[ReportedConflict]:
        """All that are kept, oldest first."""
        return list(self._conflicts)

    def reported(self, nodes: Mapping[str, Node]) -> list[ReportedConflict]:
        """Return the conflicts that events reported; those of a node that is gone have ended, too."""
        return [_as_it_is(nodes.get(one.node), one) for one in self._conflicts]

    def incompatible_since(self, node: str, fellow: FellowView) -> int:
        """Return when a node told last that a fellow does not fit; 0 if that is not known."""
        told = (
            one.began_ns
            for one in reversed(self._conflicts)
            if one.node == node
            and one.is_incompatibility
            and one.fellow in (fellow.name, fellow.id[:SHORT_ID])
        )
        return next(told, 0)

    def every(self, nodes: Mapping[str, Node]) -> list[ReportedConflict]:
        """Return the reported conflicts and the incompatible fellows that snapshots show, open ones first."""
        reported = self.reported(nodes)
        open_pairs = {(one.node, one.fellow) for one in reported if not one.ended_ns}
        shown = [
            ReportedConflict(
                node=node.id,
                node_name=node.snapshot.name,
                number="",
                name_space="",
                fellow=fellow.name,
                cause=INCOMPATIBLE,
                began_ns=0,
                text=fellow.problem,
            )
            for node in nodes.values()
            if not node.gone_ns
            for fellow in node.snapshot.fellows
            if fellow.communication == "incompatible" and (node.id, fellow.name) not in open_pairs
        ]
        # Open ones first, then the newest.
        return sorted(
            (*reported, *shown), key=lambda one: (one.ended_ns > 0, -(one.ended_ns or one.began_ns), one.key)
        )

    def apply(self, event: NodeEvent) -> None:
        """Take in one event; most have nothing to do with conflicts."""
        area = event.event.partition(".")[0]
        if area not in ("conflict", "compatibility", "merge") and event.event != "align.completed":
            return
        if event.event == "align.completed" and not any(c.policy and not c.ended_ns for c in self._conflicts):
            return
        found = catalogue().match(event.text)
        fields = found[1] if found else {}
        if event.event in _OPENING:
            self._open(event, fields)
        elif event.event == "merge.started":
            if not self._change(event, fields, policy=fields.get("policy", "")):
                self._open(event, fields)
        elif event.event == "align.completed":
            named = {"namespace": fields.get("group", "")}
            self._change(event, named, outcome=_moved(fields), ended=True, merging=True)
        elif event.event == "merge.finished":
            outcome = f"{fields.get('policy', 'merge')}: {_moved(fields)}"
            self._change(event, fields, outcome=outcome, ended=True)
        elif event.event in _CLOSING:
            self._change(event, fields, outcome=_CLOSING[event.event], ended=True)

    def settle(self, snapshot: NodeSnapshot) -> None:
        """End the conflicts that a snapshot shows to be over, since not every conflict ends with an event.

        A later event of the node, from before the snapshot, still replaces the outcome.
        """
        for index, one in enumerate(self._conflicts):
            if one.ended_ns or one.node != snapshot.id or one.began_ns >= snapshot.time_ns:
                continue
            one = self._conflicts[index] = _with_name(one, snapshot)
            outcome = _outcome(one, snapshot)
            if outcome:
                self._conflicts[index] = dataclasses.replace(one, outcome=outcome, ended_ns=snapshot.time_ns)
                self._settled.add(one.key)

    def _open(self, event: NodeEvent, fields: Mapping[str, str]) -> None:
        over = event.event in _OVER_AT_ONCE
        conflict = ReportedConflict(
            node=event.node,
            node_name=event.node_name,
            number=fields.get("conflict", ""),
            name_space=fields.get("namespace", ""),
            fellow=fields.get("fellow", ""),
            cause=_CAUSES[event.event],
            began_ns=event.time_ns,
            text=event.text,
            policy=" / ".join(filter(None, (fields.get("policy"), fields.get("other_policy")))),
            outcome="treated as Ignore" if over else "",
            ended_ns=event.time_ns if over else 0,
        )
        self._conflicts.append(conflict)
        if len(self._conflicts) > MAX_CONFLICTS:
            ((most, _),) = collections.Counter(one.node for one in self._conflicts).most_common(1)
            theirs = [
                (not one.ended_ns, place) for place, one in enumerate(self._conflicts) if one.node == most
            ]
            self._settled.discard(self._conflicts.pop(min(theirs)[1]).key)
            self.left_out += 1

    def _change(
        self,
        event: NodeEvent,
        fields: Mapping[str, str],
        *,
        policy: str = "",
        outcome: str = "",
        ended: bool = False,
        merging: bool = False,
    ) -> bool:
        """Apply an event to the open conflicts that it can concern; return False if there is none.

        With `merging`, only conflicts whose merge has begun change.
        """
        changed = False
        for index, conflict in enumerate(self._conflicts):
            if conflict.node != event.node or not _is_about(fields, conflict):
                continue
            if conflict.ended_ns and conflict.key not in self._settled:
                continue
            if merging and not conflict.policy:
                continue
            changed = True
            if ended:
                self._settled.discard(conflict.key)
            self._conflicts[index] = dataclasses.replace(
                conflict,
                policy=policy or conflict.policy,
                outcome=outcome or conflict.outcome,
                ended_ns=event.time_ns if ended else conflict.ended_ns,
            )
        return changed


def _with_name(one: ReportedConflict, snapshot: NodeSnapshot) -> ReportedConflict:
    """Return the conflict with its fellow's name in place of the first digits of its id."""
    for fellow in snapshot.fellows:
        if len(one.fellow) == SHORT_ID and fellow.id.startswith(one.fellow) and fellow.name:
            return dataclasses.replace(one, fellow=fellow.name)
    return one


def _outcome(one: ReportedConflict, snapshot: NodeSnapshot) -> str:
    """Return how a conflict ended according to a later snapshot of its node; empty while it is open."""
    if snapshot.started_ns > one.began_ns:
        return f"{snapshot.name} was restarted"
    if one.is_incompatibility:
        shown = next((fellow for fellow in snapshot.fellows if fellow.name == one.fellow), None)
        if shown is None:
            return f"{one.fellow} left"
        return "" if shown.communication == "incompatible" else "became compatible"
    view = next((view for view in snapshot.name_spaces if view.name == one.name_space), None)
    if view is not None and (view.complete or view.phase == PART):
        return f"{one.policy}: complete again" if one.policy else "over without a merge"
    return ""


def _as_it_is(node: Node | None, one: ReportedConflict) -> ReportedConflict:
    """Return the conflict, ended if its node has ended or is gone, since no node could resolve it."""
    if one.ended_ns or node is None or not node.gone_ns:
        return one
    what = "has ended in order" if node.in_order else "is gone"
    return dataclasses.replace(one, outcome=f"{one.node_name} {what}", ended_ns=node.gone_ns)


def _is_about(fields: Mapping[str, str], conflict: ReportedConflict) -> bool:
    """Return whether all names in the event are the conflict's; False if the event has no names."""
    pairs = (("conflict", conflict.number), ("namespace", conflict.name_space), ("fellow", conflict.fellow))
    given = [(fields[name], value) for name, value in pairs if name in fields and value]
    return bool(given) and all(said == value for said, value in given)
