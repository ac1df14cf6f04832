"""What a node knows before its first turn: the store's content, verified, and the settings of its core."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from engine.core import plain
from engine.core.messages import DAMAGED, NO_EPOCH, Epoch
from engine.core.namespaces import Element, NameSpace
from engine.core.settings import CoreSettings, StoredSet
from engine.dataset.dataset import DataSet
from engine.dataset.group_set import NO_FLOOR
from engine.runtime.holdings import APART, ELEMENTS, LEARNED, LINE, LINEAGE, PART, ROLE, WANTED, WHOLE
from engine.runtime.housekeeping import floor_mark
from engine.store.backups import REPLACED_MARK
from engine.store.interface import DamageLog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.config.settings import Configuration
    from engine.dataset.groups import GroupDescription
    from engine.store.interface import OpenReport, Store

_AWAY: Final = "away "
TOLD: Final = "replaced, told"
"""Which note of a replaced set a node has traced already."""
_A_TIME_NS: Final = 1 << 60
"""2006: no duration is as long, and no time of a store as early."""


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """What the store held at start.

    Attributes:
        report: identity, fellows, findings.
        sets: verified complete sets with their groups, by name-space.
        parts: what has arrived of sets whose alignment was interrupted; no set at all, but worth comparing.
        stored: the same for the core: quality and lineage.
        damage: what is not as it was written, by name-space, in words.
        away: fellows that were away at the end, and for how long nodes ran without them (nanoseconds).
        learned: name-spaces that were learned from fellows, with their elements.
        replaced: what a command noted when it put another set in the place of a node's, where that has not
            been told yet, by name-space.
        wanted: what readers on this host have wanted of Lazy name-spaces, by name-space.
    """

    report: OpenReport
    sets: dict[str, tuple[DataSet, list[GroupDescription]]]
    parts: dict[str, DataSet]
    stored: dict[str, StoredSet]
    damage: dict[str, str]
    away: dict[str, int]
    learned: tuple[NameSpace, ...] = ()
    replaced: dict[str, str] = dataclasses.field(default_factory=dict)
    wanted: dict[str, tuple[Element, ...]] = dataclasses.field(default_factory=dict)


def read_store(store: Store) -> Found:
    """Read and verify every complete set: only a verified one has a quality (guide 5.4.4, steps 1 and 2)."""
    sets: dict[str, tuple[DataSet, list[GroupDescription]]] = {}
    parts: dict[str, DataSet] = {}
    stored: dict[str, StoredSet] = {}
    damage: dict[str, str] = {}
    away: dict[str, int] = {}
    learned: list[NameSpace] = []
    replaced: dict[str, str] = {}
    wanted: dict[str, tuple[Element, ...]] = {}
    for name in store.name_spaces():
        away.update(_away(store.marks(name)))
        learned += _learned(name, store.marks(name))
        wanted[name] = _elements(store.marks(name).get(WANTED, ""))
        writer = store.filling(name)
        if writer is not None:
            parts[name], _ = _load(store, name, DamageLog(), writer.version)  # what is damaged is asked for
        if store.complete_set(name) is None:
            continue
        log = DamageLog()
        data, descriptions = _load(store, name, log)
        marks = store.marks(name)
        if marks.get(REPLACED_MARK, "") != marks.get(TOLD, ""):
            replaced[name] = marks.get(REPLACED_MARK, "")
        for group, group_set in data.groups.items():
            group_set.raise_floor(int(marks.get(floor_mark(group), NO_FLOOR)))
        info = store.complete_set(name)
        quality = info.quality_ns if info else None
        if quality is not None and marks.get(PART):
            quality = 0  # a Lazy alignee kept it for its readers; a node with the set has more
        sets[name] = (data, descriptions)
        stored[name] = StoredSet(
            DAMAGED if quality is None else quality,
            _lineage(marks.get(LINEAGE, "")),
            tuple(map(_lineage, marks[LINE].split())) if LINE in marks else (NO_EPOCH,),
            apart=bool(marks.get(APART)),
            role=marks.get(ROLE, ""),
            part=bool(marks.get(PART)),
            whole=() if quality is None else _elements(marks.get(WHOLE, "")),
        )
        if log.count:
            damage[name] = f"{log.count} damaged, first: {log.first[0]}"
        elif store.report.is_damaged:
            stored[name] = dataclasses.replace(stored[name], quality_ns=DAMAGED)
    return Found(store.report, sets, parts, stored, damage, away, tuple(learned), replaced, wanted)


def _learned(name: str, marks: Mapping[str, str]) -> list[NameSpace]:
    elements = _elements(marks.get(ELEMENTS, "")) if marks.get(LEARNED) else ()
    return [NameSpace(name, elements)] if elements else []


def _elements(mark: str) -> tuple[Element, ...]:
    """The expressions in a mark; none where it is missing or damaged: fellows and readers tell them again."""
    try:
        elements: tuple[Element, ...] = plain.from_json(tuple[Element, ...], mark)
        return elements
    except ValueError:
        return ()


def _load(
    store: Store, name: str, log: DamageLog, version: int | None = None
) -> tuple[DataSet, list[GroupDescription]]:
    data, descriptions = DataSet(), []
    for description, pieces in store.load(name, log, version):
        descriptions.append(description)
        group_set = data.open_described(description)
        for piece in pieces:
            group_set.extend(piece)
    return data, descriptions


def away_mark(node: str) -> str:
    """Under what name a store remembers that a fellow is away."""
    return f"{_AWAY}{node}"


def _away(marks: Mapping[str, str]) -> dict[str, int]:
    away = {key.removeprefix(_AWAY): value for key, value in marks.items() if key.startswith(_AWAY)}
    told = {node: int(value) for node, value in away.items() if value.isdigit()}
    # The first release wrote since when. Nobody knows for how much of that time nodes ran.
    return {node: value if value < _A_TIME_NS else 0 for node, value in told.items()}


def _lineage(mark: str) -> Epoch:
    counter, node, run = (*mark.split("/"), "", "", "")[:3]
    return Epoch(int(counter), node, int(run)) if counter.isdigit() and run.isdigit() else NO_EPOCH


def core_settings(
    configuration: Configuration, name: str, hosts: tuple[str, ...], found: Found
) -> CoreSettings:
    """What the core is told, from configuration and store; `hosts` are the addresses of its interfaces."""
    fellows = {fellow.id for known in found.report.fellows.values() for fellow in known}
    configured = configured_settings(configuration, name, hosts[0])
    # A store that lost something may have lost a whole set: an empty one must not win then.
    lost = {
        space.name: StoredSet(DAMAGED, NO_EPOCH)
        for space in (*configured.name_spaces, *found.learned)
        if found.report.is_damaged
    }
    return dataclasses.replace(
        configured,
        further_hosts=hosts[1:],
        node=found.report.node_id,
        incarnation=found.report.incarnation,
        remembered=frozenset(fellows),
        away=found.away,
        stored={**lost, **found.stored},
        learned=found.learned,
        wanted=found.wanted,
    )


def configured_settings(configuration: Configuration, name: str, host: str) -> CoreSettings:
    """What the configuration alone says; a store adds who the node is and what it has."""
    network, alignment = configuration.network, configuration.alignment
    spaces = tuple(
        NameSpace(space.name, tuple(sorted(set(space.elements))))
        for space in configuration.name_spaces.name_spaces
    )
    return CoreSettings(
        node="",
        incarnation=0,
        name=name,
        role=configuration.domain.role,
        host=host,
        name_spaces=spaces,
        policies=configuration.name_spaces.policies,
        heartbeat_expiry_s=network.heartbeat.expiry_s,
        heartbeat_period_s=network.heartbeat.period_s,
        initial_discovery_s=network.initial_discovery_period_s,
        election_wait_s=configuration.master_election_wait_s,
        combine_initial_s=alignment.combine_initial_s,
        combine_operational_s=alignment.combine_operational_s,
        waits_for_aligner=alignment.wait_for_aligner_s > 0,
        filtered=tuple(
            (element, str(one.origin)) for one in configuration.filters for element in one.elements
        ),
    )
