"""The copies of each name-space in memory and on disk, and the missing ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Mapping
from typing import Final

from engine.core.name_spaces import Alignee
from ospltool.health.codes import LAST_COPY
from ospltool.health.presence import HealthInput, Presence
from ospltool.live.nodes import Node

# A few milliseconds, so that keys of the console are answered in between.
STEP: Final = 40
"""Nodes that are examined at once."""


@dataclasses.dataclass(frozen=True, slots=True)
class Redundancy:
    """The copies of one name-space; members are node ids."""

    name: str
    """Name of the name-space."""
    wanted: int
    """Copies that the fleet file asks for; 0 if unspecified."""
    wanted_on_disk: int
    """Copies on disk that the fleet file asks for; 0 if unspecified."""
    held: tuple[str, ...]
    """Nodes that are heard and hold it complete. Filtered sets count only if every set is filtered."""
    on_disk: tuple[str, ...]
    """Nodes among them that have all its persistent samples on disk."""
    coming: tuple[str, ...]
    """Nodes that are obtaining it, except on request only, or are coming back with a domain that was lost."""
    stopped: tuple[str, ...]
    """Nodes that ended in order; names of those that were never heard."""
    lost: tuple[str, ...]
    """Nodes that are silent or gone, and not coming back."""
    unsure: tuple[str, ...] = ()
    """Nodes that may run: lost ones and some never heard that a fellow hears, or of which none could tell."""
    filtered: tuple[str, ...] = ()
    """Nodes beside `held` that hold it without the samples that their content filters withhold."""
    apart: tuple[str, ...] = ()
    """Nodes that hold another set under this name: they are incompatible with those in `held`."""
    sides: tuple[tuple[str, ...], ...] = ()
    """Nodes on further sides of a split network, whose sets differ from that of `held`."""
    on_disk_apart: tuple[str, ...] = ()
    """Nodes in `sides` that have the set of their side on disk."""

    @property
    def left(self) -> int:
        """Number of copies that may fail before none is left; in a split network, none of one side."""
        return max(0, min(map(len, (self.held, *self.sides))) - 1)

    @property
    def warning(self) -> str:
        """What `left` 0 means, in words; empty if a copy may fail."""
        if not self.held:
            return "no copy in reach"
        if self.left:
            return ""
        return f"{LAST_COPY}{' of one side' if self.sides else ' in reach' if self.unsure else ''}"

    @property
    def left_text(self) -> str:
        """`left` in words, different for the last copy and for none."""
        if not self.held:
            return self.warning
        return f"redundancy left {self.left}{f': {self.warning}' if self.warning else ''}"

    @property
    def lacks(self) -> int:
        """Number of missing copies, without those that are coming or stopped in order."""
        excused = len(self.coming) + len(self.stopped)
        return max(0, self.wanted - len(self.held) - excused) if self.wanted else 0

    @property
    def lacks_on_disk(self) -> int:
        """As `lacks`, on disk."""
        excused = len(self.coming) + len(self.stopped)
        return max(0, self.wanted_on_disk - len(self.on_disk) - excused) if self.wanted_on_disk else 0

    def lacks_beside(self, excused: int) -> bool:
        """Return whether copies are missing or coming, but for those that stopped and `excused` ones."""
        return len(self.held) + len(self.stopped) + excused < self.wanted

    @property
    def text(self) -> str:
        """Summary as in `2 of 3 copies, 1 of 2 on disk`."""
        are_several = (self.wanted or len(self.held)) != 1
        held = f"{_of(len(self.held), self.wanted)} {'copies' if are_several else 'copy'}"
        if self.sides:
            numbers = " + ".join(str(len(side)) for side in (self.held, *self.sides))
            held = f"{numbers}{f' of {self.wanted}' if self.wanted else ''} copies, sets differ"
        filtered = f", {len(self.filtered)} filtered" if self.filtered else ""
        return f"{held}, {_of(len(self.on_disk), self.wanted_on_disk)} on disk{filtered}"


def _of(number: int, wanted: int) -> str:
    return f"{number} of {wanted}" if wanted and number <= wanted else str(number)


class Redundancies:
    """The copies of every name-space. They are looked for again only if what they follow from has changed.

    Nodes write all the time, and seldom is anything else new.
    """

    def __init__(self) -> None:
        self._reasons: object = None
        self._found: list[Redundancy] = []

    def copies(self, scene: HealthInput) -> Generator[None, None, list[Redundancy]]:
        """Return the copies of each name-space that a node has or the fleet file names, by name, in steps."""
        ended, strangers = _ended(scene), _strangers(scene)
        reasons = _reasons(scene, ended), strangers
        if reasons != self._reasons:
            yield
            self._found = yield from _redundancies(scene, ended, strangers)
            self._reasons = reasons
        return self._found


def _reasons(scene: HealthInput, ended: list[str]) -> object:
    """Return all that the copies follow from, as a value that is quickly compared."""
    nodes = [_reason(scene, node) for node in scene.nodes]
    return scene.expected, scene.model.name_space_names(), nodes, ended, _contested_sets(scene)


def _reason(scene: HealthInput, node: Node) -> object:
    """Return what the copies of a node follow from."""
    snapshot, presence = node.snapshot, scene.presence(node)
    known = snapshot.id, snapshot.name, node.outline, snapshot.state == "COMPLETE", presence
    if presence is Presence.HEARD:
        facts = scene.facts(node)
        return known, facts.off_disk, facts.refused
    return known, scene.may_come_back(node), scene.may_run(node)


def _contested_sets(scene: HealthInput) -> list[tuple[str, str, str]]:
    """Return the name-spaces with several masters, with (node, digest) of those that are heard."""
    names = {contested[0] for contested in scene.contested}
    return [
        (name, node.id, node.name_spaces[name].digest)
        for node in (scene.heard if names else ())
        for name in sorted(names & node.name_spaces.keys())
    ]


def _ended(scene: HealthInput) -> list[str]:
    """Return the names of expected nodes that were never heard, and are known to have ended in order."""
    known = {node.snapshot.name for node in scene.model.nodes.values()}
    reports = ((node, scene.reports.get(node)) for node in scene.expected.nodes if node not in known)
    return [node for node, report in reports if report and report.in_order]


def _strangers(scene: HealthInput) -> tuple[str, ...]:
    """Return the ids of awaited nodes that this watch never heard, and that a node hears or refuses."""
    told = [node for name, node in scene.strangers if scene.hears_of(name)]
    refused = [each for one in scene.heard for each in one.snapshot.unproved if each.name in scene.missing]
    return tuple(dict.fromkeys([*told, *(each.node for each in refused if each.node)]))


def _redundancies(
    scene: HealthInput, ended: list[str], strangers: tuple[str, ...]
) -> Generator[None, None, list[Redundancy]]:
    names = [*scene.model.name_space_names()]
    names += [one.name for one in scene.expected.name_spaces if one.name not in names]
    places = {name: _Places() for name in names}
    for index, node in enumerate(scene.nodes, 1):
        _place(scene, node, places)
        if index % STEP == 0:
            yield
    refused = {node.id: {one.id for one in scene.facts(node).refused} for node in scene.heard}
    for place in places.values() if any(refused.values()) else ():
        place.part(scene, refused)
    for name in {contested[0] for contested in scene.contested} & places.keys():
        places[name].divide(scene, name)
    yield
    return [_redundancy(scene, name, each, ended, strangers) for name, each in places.items()]


class _Places:
    """Nodes with copies of one name-space, while they are being collected; as in `Redundancy`."""

    def __init__(self) -> None:
        self.held: list[str] = []
        self.on_disk: list[str] = []
        self.filtered: set[str] = set()
        kinds = "coming", "stopped", "lost", "unsure", "apart"
        self.others: dict[str, list[str]] = {kind: [] for kind in kinds}
        self.sides: list[list[str]] = []

    def divide(self, scene: HealthInput, name: str) -> None:
        """Keep the holders on the side with most copies of a set with several masters, or expected ones.

        Sets agree if they have one master, which may be a moment ahead, or the same samples.
        """
        sides: list[tuple[set[object], list[str]]] = []
        for one in self.held:
            node = scene.model.nodes[one]
            view = node.name_spaces[name]
            marks: set[object] = {(node.snapshot.role, view.master), view.digest}
            alike = [side for side in sides if not marks.isdisjoint(side[0])]
            members = [other for side in alike for other in side[1]]
            sides = [side for side in sides if side not in alike]
            sides.append((marks.union(*(side[0] for side in alike)), [*members, one]))
        if len(sides) > 1:
            several = [members for _, members in sides]
            # The largest side first, then the one with more expected nodes: its members count as the copies.
            several.sort(key=lambda members: _rank(scene, members), reverse=True)
            self.held, *self.sides = several

    def part(self, scene: HealthInput, refused: Mapping[str, set[str]]) -> None:
        """Keep the holders that communicate with each other: the most, or else those that are expected.

        Incompatible nodes hold different sets under one name, and are no copies of each other.
        """
        circles = {
            one: [other for other in self.held if other not in refused[one] and one not in refused[other]]
            for one in self.held
        }
        if circles:
            widest = max(self.held, key=lambda one: (len(circles[one]), *_rank(scene, [one])))
            self.others["apart"] = [one for one in self.held if one not in circles[widest]]
            self.held = circles[widest]
            self.on_disk = [one for one in self.on_disk if one in self.held]


def _rank(scene: HealthInput, members: list[str]) -> tuple[int, int]:
    """Return how many nodes there are, and how many of them are expected."""
    return len(members), sum(scene.model.name_of(one) in scene.expected.nodes for one in members)


def _place(scene: HealthInput, node: Node, places: Mapping[str, _Places]) -> None:
    """Add a node to the places of every name-space."""
    presence, me = scene.presence(node), node.id
    if presence is not Presence.HEARD:
        is_coming = scene.may_come_back(node)
        kind = "coming" if is_coming else "stopped" if presence is Presence.STOPPED else "lost"
        kinds = (kind, "unsure") if scene.may_run(node) and not is_coming else (kind,)
        for name in node.name_spaces:
            for kind in kinds:
                places[name].others[kind].append(me)
        return
    off_disk = scene.facts(node).off_disk
    for name, view in node.name_spaces.items():
        place = places[name]
        if view.complete:
            place.held.append(me)
            if view.filtered:
                place.filtered.add(me)
            if name not in off_disk:
                place.on_disk.append(me)
        elif view.is_at_rest:
            pass  # a part of the set or nothing, as the policy demands: not a copy
        elif view.alignee == Alignee.INITIAL.value or view.alignments:
            place.others["coming"].append(me)
    if node.snapshot.state != "COMPLETE":
        for name in places.keys() - node.name_spaces.keys():
            places[name].others["coming"].append(me)


def _redundancy(
    scene: HealthInput, name: str, places: _Places, ended: list[str], strangers: tuple[str, ...]
) -> Redundancy:
    expected = scene.expected.space(name)
    may_hold = strangers if not expected.copies or len(places.held) < expected.copies else ()
    whole = [node for node in places.held if node not in places.filtered] or places.held
    counted, beside = set(whole), {*places.held}
    others = {kind: tuple(nodes) for kind, nodes in places.others.items()}
    others["stopped"] += tuple(ended if expected.copies or expected.on_disk else ())
    others["unsure"] += may_hold
    return Redundancy(
        name,
        expected.copies,
        expected.on_disk,
        held=tuple(whole),
        on_disk=tuple([node for node in places.on_disk if node in counted]),
        filtered=tuple([node for node in places.held if node not in counted]),
        sides=tuple(map(tuple, places.sides)),
        on_disk_apart=tuple([node for node in places.on_disk if node not in beside]),
        **others,
    )
