"""The copying of sets between stores: export, import, replacement, and back-ups of replaced sets."""

from __future__ import annotations

import dataclasses
import json
import secrets
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TextIO, TypedDict

from engine.core.name_spaces import Group
from engine.dataset.dataset import make_set
from engine.dataset.group_set import ApplyOutcome, GroupSet
from engine.dataset.groups import DurabilityKind, GroupDescription, GroupQos
from engine.dataset.sample import Sample
from engine.runtime.shared_state import LINEAGE, PART, WHOLE
from engine.store.interface import (
    REPLACED_MARK,
    DamageLog,
    Replaced,
    SetInfo,
    SetState,
    Soundness,
    StoreError,
    note_of,
)
from engine.store.sqlite import SqliteStore
from engine.store.store_directory import DATABASE
from ospltool.output import envelope, progress
from ospltool.output.installation import extra_command
from ospltool.output.text import plural, table, visible
from ospltool.stores.describe import fields_of
from ospltool.stores.listing import whole_value
from ospltool.stores.model import GroupFacts, SetFacts, SetKind, StoreFacts, StoreReader, shown
from ospltool.stores.types import Undecodable, key_paths

# As a transaction of a node (`engine.runtime.store_queue.BATCH_CHANGES`).
_ROWS_AT_ONCE: Final = 20_000


@dataclasses.dataclass(frozen=True, slots=True)
class CopyResult:
    """The result of copying a group.

    Attributes:
        read: samples in the source.
        stored: samples in the target, read back and verified.
        beyond_depth: samples left out because of history depth or limits.
    """

    partition: str
    topic: str
    read: int
    stored: int
    beyond_depth: int


@dataclasses.dataclass(frozen=True, slots=True)
class CopyReport:
    """The result of copying a set into an ospltool store, verified group by group."""

    name_space: str
    target: str
    version: int
    groups: tuple[CopyResult, ...]
    damage: tuple[str, ...]
    kept: bool


def copied_text(report: CopyReport) -> Iterator[str]:
    """Render the result of copying a set."""
    yield f"name-space {visible(report.name_space)}: set {report.version} of {visible(report.target)}"
    rows = [(f"{g.partition}.{g.topic}", g.read, g.stored, g.beyond_depth) for g in report.groups]
    header = ("GROUP", "READ", "STORED", "BEYOND DEPTH")
    yield from (f"  {line}" for line in table(header, rows).splitlines())
    yield from (f"  left out, damaged: {visible(damage)}" for damage in report.damage)
    if report.kept:
        yield "  the set of before is kept"


class CopyRefused(Exception):
    """The set cannot be copied; the text says why. The name-space is unchanged."""


def description_of(group: GroupFacts) -> GroupDescription:
    """Describe a group for an ospltool store; a type of OpenSplice is converted.

    Raises:
        CopyRefused: its type cannot be described.
    """
    if group.description is not None:
        return group.description
    if group.problem:
        raise CopyRefused(f"group {group.name}: {group.problem}")
    try:
        from ospltool.stores.opensplice_values import structure_of  # it loads lxml
        from ospltool.stores.xtypes import describe  # it loads Cyclone DDS

        structure = structure_of(group.type_text, group.name.type_name)
        type_ = describe(structure, key_paths(group.key_list))
    except Undecodable as error:
        raise CopyRefused(f"group {group.name}: {error}") from error
    except ModuleNotFoundError as error:
        raise CopyRefused(f"this needs {error.name}: `{extra_command('dds,sql')}`") from error
    qos = GroupQos(
        DurabilityKind[group.durability],
        group.history_depth,
        group.cleanup_delay_ns,
        group.by_source_timestamp,
    )
    return GroupDescription(Group(group.name.partition, group.name.topic, type_.type_id), type_, qos)


def put_in_place(
    reader: StoreReader,
    sets: Sequence[tuple[str, SetFacts]],
    target: Path,
    mark: str,
    *,
    may_replace: bool,
    tolerate_damage: bool,
) -> list[CopyReport]:
    """Make sets the complete sets of name-spaces in an ospltool store whose node is stopped.

    For each name-space, the new set is read back and compared before the store switches to it; the former
    complete set becomes a back-up.

    Args:
        reader: the source.
        sets: name-spaces of the target and the sets that they get.
        target: the store directory; it is created if it does not exist.
        mark: text to store with the sets.
        may_replace: replace the set of a name-space that has one.
        tolerate_damage: skip records that cannot be read.

    Raises:
        CopyRefused: the target is in use or has a set that must stay, the source is damaged, or the new set
            differs from the source.
        StoreUnreadable: the source cannot be read.
    """
    try:
        store = SqliteStore(target, mark, lambda: secrets.token_hex(16))
    except StoreError as error:
        raise CopyRefused(str(error)) from error
    try:
        for name_space, _ in sets:
            if not may_replace and store.complete_set(name_space) is not None:
                raise CopyRefused(f"{target}: name-space {name_space} has a set already; see `store replace`")
        return [
            _put_one(reader, one, store, name_space, target, mark, tolerate_damage=tolerate_damage)
            for name_space, one in sets
        ]
    except StoreError as error:
        raise CopyRefused(f"{target}: {error}") from error
    finally:
        store.close()


def _put_one(
    reader: StoreReader,
    source: SetFacts,
    store: SqliteStore,
    name_space: str,
    target: Path,
    mark: str,
    *,
    tolerate_damage: bool,
) -> CopyReport:
    damage = DamageLog()
    writer = store.begin_set(name_space)
    read: list[tuple[Group, GroupSet, int, int]] = []
    try:
        for group, samples in reader.read(source.number, damage):
            description = description_of(group)
            kept, count, beyond = _kept(description, progress.counted(samples))
            writer.add(description, ())
            for piece in kept.samples().split(_ROWS_AT_ONCE):
                writer.add(description, piece)
            read.append((description.group, kept, count, beyond))
        if damage.count and not tolerate_damage:
            raise CopyRefused(
                f"{reader.facts.path}: {plural(damage.count, 'record')} cannot be read, "
                f"first {damage.first[0]}"
            )
        _prove(store, name_space, writer.version, read)
    except BaseException:
        store.abandon(writer)
        raise
    before = store.complete_set(name_space)
    at_ns = time.time_ns()
    kept_as = None
    if before is not None and before.stored.count:
        why = f"set {source.number} of {reader.facts.path} takes its place"
        after = writer.stored.count
        kept_as = Replaced(mark, at_ns, why, before.stored.count, after, before.mark).to_mark()
    note = {"by": mark, "from": reader.facts.path, "set": source.number, "at_ns": at_ns}
    # It has no lineage in common with the sets of fellows, and the operator declares it whole.
    marks = {LINEAGE: None, PART: None, WHOLE: None, REPLACED_MARK: json.dumps(note)}
    info: SetInfo = store.commit_complete(writer, mark, keep_previous=kept_as, marks=marks)
    groups = tuple(
        CopyResult(group.partition, group.topic, count, kept.count, beyond)
        for group, kept, count, beyond in read
    )
    return CopyReport(
        name_space, str(target), info.version, groups, tuple(map(str, damage.first)), kept_as is not None
    )


def _kept(description: GroupDescription, samples: Iterator[Sample]) -> tuple[GroupSet, int, int]:
    """Apply history depth and limits; return the set, the number of samples, and how many were left out."""
    kept = make_set(description.qos.history_depth, description.qos.limits)
    count = beyond = 0
    for sample in samples:
        count += 1
        outcome, evicted = kept.apply(sample)
        beyond += len(evicted) + (outcome is not ApplyOutcome.STORED)
    return kept, count, beyond


def _prove(
    store: SqliteStore, name_space: str, version: int, read: list[tuple[Group, GroupSet, int, int]]
) -> None:
    """Read the new set back and compare it with the source.

    Raises:
        CopyRefused: they differ.
    """
    damage = DamageLog()
    stored: dict[Group, GroupSet] = {}
    for description, pieces in store.load(name_space, damage, version):
        group_set = stored[description.group] = GroupSet(0)
        for piece in pieces:
            group_set.extend(piece)
    if damage.count:
        raise CopyRefused(f"the new set cannot be read back: {damage.first[0]}")
    for group, kept, _, _ in read:
        if group not in stored or not stored[group].summary().same_content(kept.summary()):
            raise CopyRefused(f"group {group}: the new set differs from the source")


def write_lines(reader: StoreReader, sets: Sequence[SetFacts], target: TextIO, damage: DamageLog) -> int:
    """Write the samples of sets as JSON lines, with fields if the type is known; return their number."""
    count = 0
    for one in sets:
        for group, samples in reader.read(one.number, damage):
            for sample in progress.counted(samples):
                fields, problem = fields_of(reader, group, sample)
                line = {
                    "set": one.number,
                    "name_space": one.name_space,
                    "partition": group.name.partition,
                    "topic": group.name.topic,
                    "type": group.name.type_name,
                    **whole_value(sample, fields, problem),
                }
                target.write(envelope.line("store-sample", line))
                count += 1
    return count


def is_target_free(target: Path) -> bool:
    """Tell whether there is no store at a path yet."""
    return not (target / DATABASE).exists()


RESTORE = "ospltool store restore"


@dataclasses.dataclass(frozen=True, slots=True)
class Backup:
    """A back-up of a replaced set.

    Attributes:
        number: identifies the set in its store.
        samples: number of its samples; None if the store has no count.
        note: by whom, when and why it was replaced; None if unknown.
    """

    number: int
    name_space: str
    samples: int | None
    newest_ns: int | None
    note: Replaced | None


class StoreBackups(TypedDict):
    """The back-ups of a store, for JSON."""

    path: str
    backups: list[Backup]


@dataclasses.dataclass(frozen=True, slots=True)
class Restored:
    """The result of `restore`; `aside` is the number of the set that is now a back-up."""

    name_space: str
    number: int
    samples: int
    aside: int | None
    samples_aside: int


def backups(facts: StoreFacts) -> list[Backup]:
    """Return the back-ups of a store, by number."""
    return [
        Backup(one.number, one.name_space, samples_of(one), one.quality_ns, note_of(one.mark))
        for one in facts.sets
        if one.kind is SetKind.BACKUP
    ]


def samples_of(one: SetFacts) -> int | None:
    """Return the number of samples of a set, according to its store."""
    known = [group.stored for group in one.groups if group.stored is not None]
    return sum(known) if len(known) == len(one.groups) else None


def backups_text(path: str, found: Sequence[Backup]) -> Iterator[str]:
    """Render back-ups for `store backups`."""
    if not found:
        yield f"{visible(path)}: no back-ups"
        return
    rows = [
        (
            one.number,
            one.name_space,
            "?" if one.samples is None else one.samples,
            shown(one.note.at_ns) if one.note else "?",
            one.note.by if one.note else "?",
            one.note.after if one.note else "?",
            one.note.why if one.note else "?",
        )
        for one in found
    ]
    header = ("SET", "NAME-SPACE", "SAMPLES", "REPLACED AT", "BY", "SAMPLES THEN", "WHY")
    yield f"{visible(path)}:"
    yield from (f"  {line}" for line in table(header, rows).splitlines())


def restore(target: Path, number: int | None) -> Restored:
    """Make a back-up the complete set of its name-space again; the set that it replaces stays as a back-up.

    Args:
        target: store directory of a node that is down.
        number: of the set; None for the only back-up.

    Raises:
        CopyRefused: the store is in use, there is no such back-up, or it is damaged; the store is unchanged.
    """
    try:
        store = SqliteStore(target, RESTORE, lambda: secrets.token_hex(16))
    except StoreError as error:
        raise CopyRefused(str(error)) from error
    try:
        return _restore(store, _chosen(store, target, number))
    except StoreError as error:
        raise CopyRefused(f"{target}: {error}") from error
    finally:
        store.close()


def _chosen(store: SqliteStore, target: Path, number: int | None) -> SetInfo:
    kept = [one for name in store.name_spaces() for one in store.sets(name) if one.state is SetState.KEPT]
    chosen = [one for one in kept if number in (None, one.version)]
    if len(chosen) == 1:
        return chosen[0]
    if not kept:
        raise CopyRefused(f"{target}: there are no back-ups")
    # The oldest first, as `info` lists them.
    numbers = ", ".join(str(one.version) for one in sorted(kept, key=lambda one: one.version))
    raise CopyRefused(f"{target}: choose a back-up with --set: {numbers}")


def _restore(store: SqliteStore, chosen: SetInfo) -> Restored:
    damage = DamageLog()
    for _, pieces in store.load(chosen.name_space, damage, chosen.version):
        for _ in pieces:
            pass
    (read,) = (one for one in store.sets(chosen.name_space) if one.version == chosen.version)
    if read.soundness is not Soundness.INTACT:
        raise CopyRefused(
            f"set {chosen.version} is damaged ({damage.first[0]}); `store replace STORE STORE --set "
            f"{chosen.version} --without-damaged` takes back what can be read"
        )
    before, at_ns = store.complete_set(chosen.name_space), time.time_ns()
    samples = before.stored.count if before else 0
    why = f"back-up {chosen.version} was taken back"
    note = Replaced(RESTORE, at_ns, why, samples, chosen.stored.count, before.mark if before else "")
    told = {"by": RESTORE, "from": "a back-up", "set": chosen.version, "at_ns": at_ns}
    marks = {LINEAGE: None, REPLACED_MARK: json.dumps(told)}  # nothing ties it to the sets of its fellows
    store.restore_backup(chosen.version, RESTORE, note.to_mark(), marks)
    aside = before.version if before else None
    return Restored(chosen.name_space, chosen.version, chosen.stored.count, aside, samples)
