"""Start of a node: read and verify the store, and make the settings of the core."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Final

import msgspec

from engine.config.settings import Configuration
from engine.core.messages import (
    DAMAGED,
    LIFE_BITS,
    MAX_COUNTER,
    MAX_INCARNATION,
    MAX_SERIAL,
    NO_EPOCH,
    AutodisposeWriter,
    Epoch,
)
from engine.core.name_spaces import Element, NameSpace
from engine.core.settings import CoreSettings, PendingWriter, RunSeen, StoredSet
from engine.core.untrusted import json_reader
from engine.dataset.dataset import DataSet
from engine.dataset.group_set import NO_FLOOR
from engine.dataset.groups import GroupDescription
from engine.dataset.settling import FUTURE_NS
from engine.runtime.name_space_data import floor_mark
from engine.runtime.pending_writers import pending_writers
from engine.runtime.shared_state import (
    APART,
    ELEMENTS,
    LEARNED,
    LINE,
    LINEAGE,
    PART,
    PURGES,
    RESTORED,
    ROLE,
    WANTED,
    WHOLE,
)
from engine.store.interface import REPLACED_MARK, DamageLog, OpenReport, SetInfo, Store

_AWAY: Final = "away "
_RUN: Final = "run "
_AUTODISPOSE: Final = "autodispose "
_NUMBER: Final = re.compile(r"\d{1,39}")
"""A number of at most 128 bits; Python converts none of more than 4,300 digits."""
# Two numbers of `LIFE_BITS` each.
MAX_RUN: Final = (1 << 2 * LIFE_BITS) - 1
TOLD: Final = "replaced, told"
"""Mark with the note of a replaced set that the node has traced already."""


class StoredContent(msgspec.Struct, frozen=True):
    """The content of the store at start, by name-space unless noted."""

    report: OpenReport
    """Identity of the node, fellows, findings."""
    sets: dict[str, tuple[DataSet, list[GroupDescription]]]
    """Verified complete sets with their groups."""
    parts: dict[str, DataSet]
    """Samples of sets whose alignment was interrupted; they are only used in comparisons."""
    stored: dict[str, StoredSet]
    """Quality and lineage of the sets, for the core."""
    damage: dict[str, str]
    """Damage of the sets, in words."""
    away: dict[str, int]
    """Fellows away at the end of the last run, by id, with the nanoseconds without them."""
    learned: tuple[NameSpace, ...] = ()
    """Name-spaces learned from fellows."""
    pending: tuple[PendingWriter, ...] = ()
    """Durable writers of clients that could still hand over samples."""
    replaced: dict[str, str] = msgspec.field(default_factory=dict)
    """Notes of commands that replaced a set, those that have not been traced."""
    wanted: dict[str, tuple[Element, ...]] = msgspec.field(default_factory=dict)
    """Groups of Lazy name-spaces that readers on this host wanted."""
    runs: dict[str, RunSeen] = msgspec.field(default_factory=dict)
    """Last runs of fellows that were heard, by id."""
    odd: tuple[str, ...] = ()
    """Counters in the store that no node can have, in words."""
    autodispose: dict[str, tuple[AutodisposeWriter, ...]] = msgspec.field(default_factory=dict)
    """Autodispose writers that had not ended."""
    outdated: frozenset[str] = frozenset()
    """Name-spaces without a set of which the run before found out that the store once had more."""

    @property
    def is_restored(self) -> bool:
        """Whether the store was put back from a copy, as the run before found out."""
        return bool(self.outdated) or any(stored.restored for stored in self.stored.values())

    @property
    def began_at(self) -> int:
        """Transactions of the store at the start; 0 if fellows remember more of it, and the node knows."""
        return 0 if self.is_restored else self.report.commits

    @property
    def findings(self) -> tuple[str, ...]:
        """Problems of the store, in words: those of opening it, and damage of the sets."""
        damage = (f"name-space '{name}': {cause}" for name, cause in self.damage.items())
        return (*self.report.findings, *damage)


def read_store(store: Store, now_ns: int) -> StoredContent:
    """Read and verify every complete set: only a verified one has a quality (guide 5.4.4, steps 1 and 2).

    Raises:
        StoreError: the store cannot be read.
    """
    content = StoredContent(store.report, {}, {}, {}, {}, {}, outdated=_outdated(store))
    learned: list[NameSpace] = []
    pending: dict[str, PendingWriter] = {}
    odd: list[str] = []
    for name in store.name_spaces():
        marks = store.marks(name)
        content.away.update(_away(marks))
        elements = _elements(marks.get(ELEMENTS, "")) if marks.get(LEARNED) else ()
        learned += [NameSpace(name, elements)] if elements else []
        pending.update((one.id, one) for one in pending_writers(marks))
        content.wanted[name] = _elements(marks.get(WANTED, ""))
        content.autodispose[name] = _autodispose(marks)
        for node, seen in _runs(marks).items():
            content.runs[node] = max(seen, content.runs.get(node, seen))
        writer = store.filling(name)
        if writer is not None:  # damaged samples of it are requested again
            content.parts[name], _ = _load(store, name, DamageLog(), writer.version)
        if store.complete_set(name) is not None:
            _read_set(store, name, marks, content, now_ns)
            if beyond := _beyond(marks):
                fate = "without it, the set joins any other"
                odd.append(f"name-space '{name}': its history has {beyond}; {fate}")
    return msgspec.structs.replace(
        content, learned=tuple(learned), pending=tuple(pending.values()), odd=tuple(odd)
    )


def _read_set(store: Store, name: str, marks: Mapping[str, str], content: StoredContent, now_ns: int) -> None:
    """Read and verify the complete set of a name-space."""
    log = DamageLog()
    data, descriptions = _load(store, name, log)
    if marks.get(REPLACED_MARK, "") != marks.get(TOLD, ""):
        content.replaced[name] = marks.get(REPLACED_MARK, "")
    for group, group_set in data.groups.items():
        group_set.raise_floor(int(marks.get(floor_mark(group), NO_FLOOR)))
    info = store.complete_set(name)  # only now is it known whether it is intact
    quality = _quality_ns(store, info, now_ns + FUTURE_NS) if info else None
    if quality is not None and marks.get(PART):
        quality = 0  # a Lazy alignee kept it for its readers; a node with the set has more
    is_doubted = store.report.is_damaged and not log.count
    content.sets[name] = (data, descriptions)
    content.stored[name] = StoredSet(
        DAMAGED if quality is None or is_doubted else quality,
        _lineage(marks.get(LINEAGE, "")),
        tuple(map(_lineage, marks[LINE].split())) if LINE in marks else (NO_EPOCH,),
        apart=bool(marks.get(APART)),
        role=marks.get(ROLE, ""),
        part=bool(marks.get(PART)),
        whole=() if quality is None else _elements(marks.get(WHOLE, "")),
        restored=bool(marks.get(RESTORED)),
        purges=_number(marks.get(PURGES, ""), MAX_COUNTER),
    )
    if log.count:
        content.damage[name] = f"{log.count} damaged, first: {log.first[0]}"


def _outdated(store: Store) -> frozenset[str]:
    """Return the name-spaces that have no set, although the run before found out that they once had one."""
    without = (name for name in store.name_spaces() if store.complete_set(name) is None)
    return frozenset(name for name in without if store.marks(name).get(RESTORED))


def _quality_ns(store: Store, info: SetInfo, limit_ns: int) -> int | None:
    """Return the quality of a complete set, to which samples later than `limit_ns` do not add."""
    quality = info.quality_ns
    if quality is None or quality <= limit_ns:
        return quality
    # Not 0, which means that there is no set: a set has data even if all its samples are in the future.
    return max(1, store.newest_until(info.name_space, limit_ns) or 0)


_read_elements: Final = json_reader(tuple[Element, ...])


def _elements(mark: str) -> tuple[Element, ...]:
    """Return the expressions in a mark; none if damaged, since fellows and readers name them again."""
    try:
        elements: tuple[Element, ...] = _read_elements(mark)
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
        if description.group in log.strange:  # fellows have the right ones; these stay in the file
            data.groups.pop(description.group)
            data.open_described(description)
    return data, descriptions


def autodispose_mark(writer: bytes) -> str:
    """Return the name of the mark for an autodispose writer that has not ended; its value is the patience."""
    return f"{_AUTODISPOSE}{writer.hex()}"


def _autodispose(marks: Mapping[str, str]) -> tuple[AutodisposeWriter, ...]:
    """Return the autodispose writers in the marks of a name-space, without damaged ones."""
    found = []
    for name, value in marks.items():
        if name.startswith(_AUTODISPOSE) and value:
            try:
                writer = bytes.fromhex(name.removeprefix(_AUTODISPOSE))
                found.append(AutodisposeWriter(writer, float(value)))
            except ValueError:
                continue  # damaged: the end of this writer is not found any more, and its data stays
    return tuple(found)


def away_mark(node: str) -> str:
    """Return the name of the mark for the absence of a fellow."""
    return f"{_AWAY}{node}"


def _away(marks: Mapping[str, str]) -> dict[str, int]:
    away = {key.removeprefix(_AWAY): value for key, value in marks.items() if key.startswith(_AWAY)}
    return {node: int(value) for node, value in away.items() if _NUMBER.fullmatch(value)}


def run_mark(node: str) -> str:
    """Return the name of the mark for the last run of a fellow that was heard."""
    return f"{_RUN}{node}"


def _runs(marks: Mapping[str, str]) -> dict[str, RunSeen]:
    runs: dict[str, RunSeen] = {}
    for key, value in marks.items():
        fields = value.split() if key.startswith(_RUN) else []
        if len(fields) == len(RunSeen._fields):
            limits = (MAX_INCARNATION, (1 << LIFE_BITS) - 1, MAX_SERIAL)
            runs[key.removeprefix(_RUN)] = RunSeen._make(map(_number, fields, limits))
    return runs


def _number(text: str, limit: int) -> int:
    """Return a stored count; 0 if it is none, or one that no node can have."""
    number = int(text) if _NUMBER.fullmatch(text) else 0
    return number if number <= limit else 0


def _lineage(mark: str) -> Epoch:
    counter, node, run = (*mark.split("/"), "", "", "")[:3]
    is_epoch = _NUMBER.fullmatch(counter) and _NUMBER.fullmatch(run) and not _is_beyond(mark)
    return Epoch(int(counter), node, int(run)) if is_epoch else NO_EPOCH


def _beyond(marks: Mapping[str, str]) -> str:
    """Return the first lineage of a set that no node can have begun; empty for none."""
    lineages = (marks.get(LINEAGE, ""), *marks.get(LINE, "").split())
    return next((f"lineage {one[:80]}" for one in lineages if _is_beyond(one)), "")


def _is_beyond(mark: str) -> bool:
    counter, _, run = (*mark.split("/"), "", "", "")[:3]
    limits = ((counter, MAX_COUNTER), (run, MAX_RUN))
    return any(text.strip("0") and not _number(text, limit) for text, limit in limits)


def core_settings(
    configuration: Configuration, name: str, hosts: tuple[str, ...], found: StoredContent
) -> CoreSettings:
    """Make the settings of the core; `hosts` are the addresses of the interfaces, the main one first.

    `name` is the node's name for people.
    """
    fellows = {fellow.id for known in found.report.fellows.values() for fellow in known}
    configured = configured_settings(configuration, name, hosts[0])
    # A store that lost something may have lost a whole set: an empty one must not win then. The damage is
    # found at the opening only; a run that begins because fellows remember more of it knows it by the mark.
    lost = {
        space.name: StoredSet(DAMAGED, NO_EPOCH)
        for space in (*configured.name_spaces, *found.learned)
        if found.report.is_damaged or space.name in found.outdated
    }
    return msgspec.structs.replace(
        configured,
        further_hosts=hosts[1:],
        node=found.report.node_id,
        incarnation=found.report.incarnation,
        remembered=frozenset(fellows),
        away=found.away,
        stored={**lost, **found.stored},
        learned=found.learned,
        pending=found.pending,
        wanted=found.wanted,
        life=secrets.randbelow((1 << LIFE_BITS) - 1) + 1,
        began_at=found.began_at,
        runs=found.runs,
        autodispose=found.autodispose,
    )


def configured_settings(configuration: Configuration, name: str, host: str) -> CoreSettings:
    """Make the settings that the configuration determines; the store adds identity and sets.

    `name` is the node's name for people, `host` its main address.
    """
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
        max_sample_bytes=configuration.ddsi.max_sample_bytes,
        has_disk=bool(configuration.persistent and configuration.persistent.store_directory),
        waits_for_aligner=alignment.wait_for_aligner_s > 0,
        filtered=tuple(
            (element, str(one.origin)) for one in configuration.filters for element in one.elements
        ),
    )
