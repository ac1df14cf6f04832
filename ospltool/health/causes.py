"""Reduces many signs to few causes, each reported once, after delay.

Elections, merges and first meetings are over in seconds, so signs must last before they count.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final, NamedTuple

from ospltool.diagnostics.model import Severity
from ospltool.health.codes import OF_WATCH, SECOND_NS, Sign, joined
from ospltool.health.presence import HealthInput
from ospltool.live.nodes import natural


@dataclasses.dataclass(frozen=True, slots=True)
class RootCause:
    """A root sign, and the signs that follow from it or repeat it."""

    root: Sign
    others: tuple[Sign, ...] = ()

    @property
    def signs(self) -> tuple[Sign, ...]:
        """All signs, the root first."""
        return (self.root, *self.others)

    @property
    def urgency(self) -> Severity:
        """The severity of the most urgent sign."""
        return min(sign.urgency for sign in self.signs)

    @property
    def brought(self) -> Severity:
        """The severity of the most urgent sign but the root; NOTICE without another."""
        return min((sign.urgency for sign in self.others), default=Severity.NOTICE)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Ids of all involved nodes, those of the root first."""
        return tuple(dict.fromkeys(node for sign in self.signs for node in sign.nodes))

    @property
    def name_spaces(self) -> tuple[str, ...]:
        """The name-spaces that the signs name."""
        return tuple(sorted({sign.name_space for sign in self.signs if sign.name_space}))

    @property
    def kinds(self) -> frozenset[str]:
        """What rules know the root by: its code, and its cause in the registry."""
        return frozenset((self.root.code, self.root.kind.cause))

    @property
    def keys(self) -> frozenset[str]:
        """The keys of all signs."""
        return frozenset(sign.key for sign in self.signs)


@dataclasses.dataclass(frozen=True, slots=True)
class CausalRule:
    """A rule: signs of `root` cause signs of `brings` that have the same node or name-space.

    With "unheard", the root is about a node that was never heard, and brings any. With "subject",
    the node is one that the root is about: a node that does not fit touches all its fellows, which may have
    troubles of their own. With "named", the root names the node that the other is about.
    """

    root: frozenset[str]
    brings: frozenset[str]
    shared: str = "node"


def _rule(root: str, brings: str, shared: str = "node") -> CausalRule:
    return CausalRule(frozenset(root.split()), frozenset(brings.split()), shared)


_RULES: Final = (
    # A machine is taken down before it is restored, so the loss of the node and the back-up are part of it.
    _rule("DUL-STORE-RESTORED", "DUL-NODE-RESTARTED backup"),
    _rule("node stuck", "copies disk-copies", "unheard"),
    _rule("node", "copies disk-copies conflict align master set definition complete reader late"),
    _rule("DUL-NODE-ABSENT DUL-NODE-NOT-STARTED DUL-NODE-GONE DUL-NODE-RESTARTED DUL-NODE-STALLED", "mesh"),
    _rule(
        "DUL-INCOMPATIBLE", "master conflict set complete mesh copies disk-copies align definition", "subject"
    ),
    _rule("protocol", "master conflict set complete mesh copies disk-copies align definition", "subject"),
    _rule("identity", "node master conflict set complete mesh copies disk-copies align definition"),
    _rule("DUL-MASTER-IMPOSSIBLE", "complete copies disk-copies master"),
    _rule("store", "disk-copies pressure"),
    _rule("DUL-CONFIG-DIFFERS", "disk-copies"),
    _rule("stuck", "complete align pressure late"),
    _rule("mesh", "master conflict set copies disk-copies"),
    _rule("DUL-TWO-MASTERS DUL-NO-MASTER", "conflict set copies disk-copies", "name_space"),
    _rule("conflict", "set", "name_space"),
    _rule("align", "complete"),
    _rule("proofs", "node copies disk-copies mesh", "named"),
)
"""Roots and their consequences, strongest first; DUL-... is a code, others are causes of the registry."""

_HUBS: Final = {
    "DUL-INCOMPATIBLE": "does not communicate with",
    "DUL-PARTIAL-MESH": "is not connected with",
    "DUL-PROTOCOL": "speaks another version of the protocol than",
    "DUL-CLOCK-SKEW": "has another time than",
}
"""Codes of signs about pairs of nodes, and the verb that describes a node common to several pairs."""


def causes_of(scene: HealthInput, signs: Iterable[Sign]) -> list[RootCause]:
    """Return the causes of these signs, most urgent first."""
    grouped: dict[str, list[Sign]] = {}
    for sign in _with_hubs(scene, list(signs)):
        grouped.setdefault(sign.key, []).append(sign)
    causes = _with_own_cuts(scene, [_cause(members) for members in grouped.values()])
    causes = _together(scene, causes)
    lost = next((cause for cause in causes if cause.root.kind.cause == "domain"), None)
    if lost is not None:
        rest = [cause for cause in causes if cause.root.kind.cause not in ("domain", "watcher")]
        watcher = [cause for cause in causes if cause.root.kind.cause == "watcher"]
        causes = [_with(lost, rest), *watcher]
    for rule in _RULES:
        causes = _applied(rule, causes)
    # The most urgent first, then the one that began first, as it may have led to the others; the key only
    # keeps the order from changing.
    return sorted(causes, key=lambda one: (one.urgency, one.root.since_ns or scene.now_ns, one.root.key))


def _with_own_cuts(scene: HealthInput, causes: list[RootCause]) -> list[RootCause]:
    """Make one cause of a link that is cut for this watch and for the nodes of its host alike."""
    here = [one for one in scene.heard if not scene.here.isdisjoint(one.snapshot.addresses)]
    near, name_of = {one.snapshot.name for one in here}, scene.model.name_of
    for cut in [one for one in causes if near and one.root.code in ("DUL-NODE-SILENT", "DUL-NODE-ABSENT")]:
        there = {cut.root.who}
        same = [
            one for one in causes
            if one.root.code == "DUL-PARTIAL-MESH" and there < {*map(name_of, one.nodes)} <= there | near
        ]  # fmt: skip
        rest = [one for one in causes if one not in same]
        causes = [_with(one, same) if one is cut else one for one in rest]
    return causes


def _limits_of(scene: HealthInput, root: Sign, _: list[RootCause]) -> Hashable:
    """Return partition and topic of each group of which a node rejects samples."""
    groups = scene.model.nodes[root.nodes[0]].snapshot.groups
    return frozenset((one.partition, one.topic) for one in groups if one.rejected)


def _first_halt(_: HealthInput, root: Sign, others: list[RootCause]) -> Hashable:
    """Return whether a node stood still until the moment at which the first one went on."""
    first_ns = min(one.root.occasion[0] for one in others)
    return root.occasion[0] - first_ns < GAP_NS or None


_TOGETHER: Final[tuple[tuple[str, Callable[[HealthInput, Sign, list[RootCause]], Hashable], str], ...]] = (
    ("DUL-STORE-BEHIND", lambda *_: "", "changes wait for the disks of {names}: {three}"),
    ("DUL-REJECTED", _limits_of, "{names} rejected samples by the same limits: {first}"),
    ("DUL-NODE-STALLED", _first_halt, "{names} stood still together; {first}"),
    (
        "DUL-NODE-SILENT",
        lambda _, root, __: root.why if OF_WATCH in root.why else None,
        "{names} are out of reach of this watch",
    ),
)
"""Codes of which several nodes have one trouble, what is equal then (None: it is its own), and its words.

The same data came to all disks, limits are equal, something held all processes, or the link of this watch is
broken.
"""


def _together(scene: HealthInput, causes: list[RootCause]) -> list[RootCause]:
    """Make one cause of what several nodes have together."""
    for code, likeness, text in _TOGETHER:
        mine = [one for one in causes if one.root.code == code and one.root.nodes]
        # The first three are named, and those that began first are the likeliest cause.
        mine.sort(key=lambda one: (one.root.since_ns, one.root.key))
        alike: dict[Hashable, list[RootCause]] = {}
        for one in mine:
            alike.setdefault(likeness(scene, one.root, mine), []).append(one)
        for found in [some for key, some in alike.items() if key is not None and len(some) > 1]:
            nodes = tuple(node for one in found for node in one.root.nodes)
            names = joined(sorted({scene.model.name_of(node) for node in nodes}, key=natural))
            told = [one.root.what for one in found[:3]]
            what = text.format(names=names, first=told[0], three="; ".join(told))
            root = dataclasses.replace(found[0].root, what=what, nodes=nodes, weight=len(found), subjects=())
            rest = [one for one in causes if one not in found]
            causes = [*rest, _with(RootCause(root, found[0].others), found[1:])]
    return causes


def _cause(members: list[Sign]) -> RootCause:
    # The gravest sign is the root; of equals the one that more observations support.
    root, *others = sorted(members, key=lambda sign: (sign.urgency, -sign.weight))
    return RootCause(root, tuple(others))


def _with(root: RootCause, others: list[RootCause]) -> RootCause:
    return RootCause(root.root, (*root.others, *(sign for other in others for sign in other.signs)))


def _applied(rule: CausalRule, causes: list[RootCause]) -> list[RootCause]:
    """Return the causes that remain after each root has absorbed its consequences."""
    roots = [one for one in causes if one.kinds & rule.root]
    if not roots:
        return causes
    taken: dict[str, list[RootCause]] = {root.root.key: [] for root in roots}
    remaining = []
    for one in causes:
        if one.root.key in taken or one.kinds.isdisjoint(rule.brings):
            remaining.append(one)
            continue
        root = next((root for root in roots if _shares(rule.shared, root, one)), None)
        if root is None:
            remaining.append(one)
        else:
            taken[root.root.key].append(one)
    return [_with(one, taken.get(one.root.key, [])) for one in remaining]


def unaccounted(young: Iterable[Sign], causes: Sequence[RootCause]) -> list[Sign]:
    """Return the signs that no cause contains or brings, or that would make it more urgent."""
    return [
        sign for sign in young if not any(sign.urgency >= one.urgency and _takes(one, sign) for one in causes)
    ]


def _takes(cause: RootCause, sign: Sign) -> bool:
    """Return whether a sign repeats one of the cause, or follows from it."""
    kind = cause.root.kind.cause
    if sign.key in cause.keys or (kind == "domain" and sign.kind.cause != "watcher"):
        return True
    alone = RootCause(sign)
    return any(
        alone.kinds & rule.brings and cause.kinds & rule.root and _shares(rule.shared, cause, alone)
        for rule in _RULES
    )


def _shares(what: str, root: RootCause, other: RootCause) -> bool:
    if what == "subject":
        return not set(root.root.subjects or root.root.nodes).isdisjoint(other.nodes)
    if what == "node":
        return not set(root.nodes).isdisjoint(other.nodes)
    if what == "named":
        return any(other.root.who in sign.names for sign in root.signs)
    if what == "unheard":
        return not root.root.nodes
    return not set(root.name_spaces).isdisjoint(other.name_spaces)


def _with_hubs(scene: HealthInput, signs: list[Sign]) -> list[Sign]:
    """Turn signs about pairs of nodes into signs about the node that the pairs have in common, if any."""
    found = [sign for sign in signs if sign.code not in _HUBS]
    for code, verb in _HUBS.items():
        pairs = [sign for sign in signs if sign.code == code]
        while pairs:
            degrees = collections.Counter(
                node for pair in {frozenset(s.nodes) for s in pairs} for node in pair
            )
            hub, degree = max(degrees.items(), key=lambda item: (item[1], item[0]))
            if degree < 2:
                found += pairs
                break
            name = scene.model.name_of(hub)
            mine = [sign for sign in pairs if hub in sign.nodes]
            others = sorted(
                {scene.model.name_of(node) for sign in mine for node in sign.nodes if node != hub}
            )
            detail = f": {mine[0].what.partition(': ')[2]}" if ": " in mine[0].what else ""
            what = f"{name} {verb} {joined(others)}{detail}"
            why = mine[0].why
            if code == "DUL-INCOMPATIBLE":
                why = f"the configuration of {name} defines name-spaces in another way than {joined(others)}"
            mine = [
                dataclasses.replace(sign, who=name, nodes=_first(hub, sign.nodes), subjects=(hub,), why=why)
                for sign in mine
            ]
            found += [*mine[1:], dataclasses.replace(mine[0], what=what, weight=len(mine))]
            pairs = [sign for sign in pairs if hub not in sign.nodes]
    return found


def _first(hub: str, nodes: tuple[str, ...]) -> tuple[str, ...]:
    return (hub, *(node for node in nodes if node != hub))


def _began_together(young: Sign, other: Sign) -> bool:
    """Return whether two pairs have a node in common that seems to be cut off from the others of both."""
    is_of_pairs = young.code == other.code == "DUL-PARTIAL-MESH" and young.occasion and other.occasion
    is_near = abs(young.since_ns - other.since_ns) < GAP_NS
    return bool(is_of_pairs) and is_near and not set(young.nodes).isdisjoint(other.nodes)


# Each node sends a snapshot every second or two: by then all have been heard (`ABSENT_NS`).
FIRST_LOOK_NS: Final = 4 * SECOND_NS
"""What is first seen so soon after a watch began may have been there before."""

# One snapshot may be lost or late. Longer would join two incidents, shorter would end one that goes on.
GAP_NS: Final = 2 * SECOND_NS
"""A sign that is missing for a shorter time continues."""


class _Seen(NamedTuple):
    first_ns: int
    last_ns: int


class Patience:
    """The beginnings of signs. `young` are the present ones that do not count yet."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str, tuple[int, ...]], _Seen] = {}
        self._looked_ns = self._resumed_ns = -1
        self.young: list[Sign] = []

    def resume(self, looked_ns: int, now_ns: int) -> None:
        """Take in that nobody looked from a moment until now.

        What was there may have lasted; what is new began in between, unless it dates from that time.
        """
        self._looked_ns, self._resumed_ns = looked_ns, now_ns
        self._seen = {key: one._replace(last_ns=now_ns) for key, one in self._seen.items()}

    def lasting(self, signs: Iterable[Sign], now_ns: int, began_ns: int) -> list[Sign]:
        """Return the present signs that have lasted for their `patience_ns`, each with its beginning.

        Args:
            signs: all present signs.
            now_ns: not earlier than at the last call.
            began_ns: beginning of the watch.
        """
        found: list[Sign] = []
        young: list[Sign] = []
        for sign in signs:
            key = (sign.code, sign.who, sign.occasion)
            before = self._seen.get(key)
            first_ns = before.first_ns if before else now_ns
            self._seen[key] = _Seen(first_ns, now_ns)
            is_of_pause = first_ns == self._resumed_ns and sign.since_ns <= self._looked_ns
            told_ns = 0 if is_of_pause else sign.since_ns
            since_ns = min(first_ns, told_ns or first_ns)
            lasts = now_ns - since_ns >= sign.patience_ns
            is_before = not told_ns and (first_ns <= began_ns + FIRST_LOOK_NS or is_of_pause)
            began_before = (sign.began_before or is_before) and not sign.told_ns
            since_ns = min(since_ns, sign.told_ns or since_ns)
            dated = dataclasses.replace(sign, since_ns=since_ns, began_before=began_before)
            (found if lasts else young).append(dated)
        also = [one for one in young if any(_began_together(one, other) for other in found)]
        self.young = [one for one in young if one not in also]
        found += also
        self._seen = {key: seen for key, seen in self._seen.items() if now_ns - seen.last_ns < GAP_NS}
        return found
