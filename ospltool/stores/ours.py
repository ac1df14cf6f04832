"""The stores of ospltool itself, of nodes and of persistence services, read without disturbing either."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from engine.core.untrusted import json_reader, words_of
from engine.dataset.blocks import SampleColumns
from engine.dataset.groups import KEEP_ALL, GroupDescription
from engine.dataset.sample import Sample, make_sample
from engine.dataset.settling import FUTURE_NS
from engine.persistence.service import replica_store as rows
from engine.runtime.shared_state import PART
from engine.store.interface import DamageLog, SetInfo, SetState, StoreError
from engine.store.read_only import StoreView
from engine.store.store_directory import DAMAGED, DATABASE
from ospltool.output.text import plural
from ospltool.stores.model import (
    GroupFacts,
    GroupName,
    SetFacts,
    SetKind,
    StoreFacts,
    StoreFormat,
    StoreUnreadable,
    decoded,
)
from ospltool.stores.sqlite_file import SqliteFile
from ospltool.stores.types import Value

_KINDS = {
    SetState.COMPLETE: SetKind.CURRENT,
    SetState.FILLING: SetKind.FILLING,
    SetState.KEPT: SetKind.BACKUP,
}


class OurStore:
    """A store directory or its database; see `ospltool.stores.model.StoreReader`."""

    def __init__(self, path: Path) -> None:
        """Open a snapshot of the store.

        Raises:
            StoreUnreadable: there is no store, or it is not readable for this user.
        """
        try:
            self._view = StoreView(path)
        except StoreError as error:
            raise StoreUnreadable(str(error)) from error
        except (sqlite3.Error, ValueError) as error:  # ValueError: a name in its tables is no text
            raise StoreUnreadable(f"{path}: {words_of(error)}") from error
        try:
            detail, unread = _detail(self._view)
            sets = tuple(_set_facts(self._view, info, detail) for info in self._view.sets())
        except (sqlite3.Error, ValueError) as error:
            self._view.close()
            raise StoreUnreadable(f"{path}: {words_of(error)}") from error
        self.facts = StoreFacts(
            str(path),
            StoreFormat.OURS,
            sets,
            (*self._view.findings, *unread),
            tuple(detail.items()),
            self._view.path.stat().st_size,
        )

    def read(self, number: int, damage: DamageLog) -> Iterator[tuple[GroupFacts, Iterator[Sample]]]:
        """Yield the verified samples of a set."""
        facts = {group.description: group for group in self.facts.set_of(number).groups}
        for description, samples in self._view.load(number, damage):
            yield facts[description], samples

    def read_columns(
        self, number: int, damage: DamageLog
    ) -> Iterator[tuple[GroupFacts, Iterator[SampleColumns]]]:
        """Yield the same samples and damage as `read`, in columns and faster."""
        facts = {group.description: group for group in self.facts.set_of(number).groups}
        for description, blocks in self._view.load_blocks(number, damage):
            yield facts[description], (columns for columns, _ in blocks)

    def decode(self, group: GroupFacts, sample: Sample) -> dict[str, Value] | None:
        """Decode the fields of a sample; needs cyclonedds."""
        return decoded(group, sample)

    def close(self) -> None:
        """End the snapshot."""
        self._view.close()


def group_facts(description: GroupDescription, stored: int | None = None) -> GroupFacts:
    """Convert the engine's description of a group."""
    qos = description.qos
    return GroupFacts(
        GroupName(description.group.partition, description.group.topic, description.type.name),
        history_depth=0 if qos.history_depth == KEEP_ALL else qos.history_depth,
        cleanup_delay_ns=qos.cleanup_delay_ns,
        durability=qos.durability.name,
        by_source_timestamp=qos.by_source_timestamp,
        type_format="xtypes",
        type_text=description.type.type_id,
        description=description,
        stored=stored,
    )


def _detail(view: StoreView) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the facts of the node from the small tables, or why they cannot be read."""
    try:
        node_id, incarnation, closed = view.node()
        holder = view.holder()
        marks = {
            f"{space}/{key}": text for space in view.name_spaces() for key, text in view.marks(space).items()
        }
    # The samples are what people came for: they are shown although these small tables are damaged.
    except (StoreError, sqlite3.Error, ValueError) as error:
        return {}, (f"node, marks and fellows cannot be read: {words_of(error)}",)
    detail = {
        "node": node_id,
        "incarnation": str(incarnation),
        "closed": "yes" if closed else "no, its node was killed",
    }
    if holder:
        pid, name, since_ns = holder
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(since_ns / 1e9))
        detail["closed"] = f"in use by node {name} (process {pid}) since {since}"
    return detail | marks, ()


def _set_facts(view: StoreView, info: SetInfo, detail: Mapping[str, str]) -> SetFacts:
    groups = tuple(group_facts(group.description, group.stored.count) for group in info.groups)
    part = info.state is SetState.COMPLETE and bool(detail.get(f"{info.name_space}/{PART}"))
    complete = info.state is not SetState.FILLING and not part
    kind, quality_ns, limit_ns = _KINDS[info.state], info.stored.newest_ns, time.time_ns() + FUTURE_NS
    if quality_ns > limit_ns:  # a node does not count samples in the future either
        quality_ns = view.newest_until(info.version, limit_ns)
    return SetFacts(info.version, info.name_space, kind, complete, quality_ns, groups, info.mark, part)


def is_ours(path: Path) -> bool:
    """Tell whether a path is an ospltool store, or a database of one that was put aside."""
    if path.is_dir():
        return (path / DATABASE).is_file()
    return path.name == DATABASE or path.name.startswith(DAMAGED)


GROUP_BYTES: Final = 8
"""A key begins with the short name of its group."""

THE_SET: Final = 1
_read_description: Final = json_reader(GroupDescription)
_WRITER: Final = re.compile(r"[0-9a-f]{32}")
_SEQUENCES: Final = 1 << 64
_TIMES: Final = 1 << 63


class PersistenceStore:
    """`persistence.sqlite`; see `ospltool.stores.model.StoreReader`."""

    def __init__(self, path: Path) -> None:
        """Open the store.

        Raises:
            StoreUnreadable: it is too damaged.
        """
        self._file = SqliteFile(path)
        self._groups: dict[bytes, GroupFacts] = {}
        findings: list[str] = []
        try:
            (name,) = self._file.connection.execute("SELECT id FROM about").fetchone()
            self._read_groups(findings)
        except (sqlite3.Error, TypeError, ValueError) as error:
            self._file.close()
            raise StoreUnreadable(f"{path}: {words_of(error)}") from error
        groups = tuple(self._groups.values())
        one = SetFacts(THE_SET, "", SetKind.CURRENT, None, None, groups)
        detail = (("service", str(name)), *((("copied", "yes"),) if self._file.is_copy else ()))
        size = path.stat().st_size
        self.facts = StoreFacts(str(path), StoreFormat.PERSISTENCE, (one,), tuple(findings), detail, size)

    def _read_groups(self, findings: list[str]) -> None:
        for id_, text in self._file.connection.execute(
            "SELECT id, description FROM sample_group ORDER BY id"
        ):
            try:
                self._groups[id_] = group_facts(_read_description(text))
            except (ValueError, TypeError) as error:
                findings.append(f"the description of a group is damaged: {words_of(error)}"[:200])

    def read(self, number: int, damage: DamageLog) -> Iterator[tuple[GroupFacts, Iterator[Sample]]]:
        """Yield the last values, group by group."""
        self.facts.set_of(number)
        for id_, group in self._groups.items():
            yield group, self._samples(id_, group, damage)
        self._note_undescribed(damage)

    def _samples(self, id_: bytes, group: GroupFacts, damage: DamageLog) -> Iterator[Sample]:
        upper = (int.from_bytes(id_) + 1).to_bytes(GROUP_BYTES + 1)[1:]
        beyond = " AND key < ?" if any(upper) else ""
        query = f"SELECT * FROM kept WHERE key >= ?{beyond} ORDER BY key"  # noqa: S608  # our own text
        try:
            for row in self._file.connection.execute(query, (id_, upper) if beyond else (id_,)):
                sample = _sample_of(row)
                if sample is None:
                    damage.add(f"group {group.name}", "a value is damaged")
                else:
                    yield sample
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            damage.add(f"group {group.name}", f"a part of it cannot be read: {words_of(error)}")

    def _note_undescribed(self, damage: DamageLog) -> None:
        """Count values whose group is not described."""
        known = ",".join("?" * len(self._groups))
        query = f"SELECT count(*) FROM kept WHERE substr(key, 1, {GROUP_BYTES}) NOT IN ({known})"  # noqa: S608  # marks
        with contextlib.suppress(sqlite3.DatabaseError):  # it was noted
            (count,) = self._file.connection.execute(query, tuple(self._groups)).fetchone()
            if count:
                damage.add(plural(count, "value"), "their group is not described")

    def decode(self, group: GroupFacts, sample: Sample) -> dict[str, Value] | None:
        """Decode the fields of a sample; needs cyclonedds."""
        return decoded(group, sample)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _sample_of(row: tuple[bytes | str | int, ...]) -> Sample | None:
    """Make the sample of a row; None if it is damaged."""
    if not rows.is_whole(row, rows.KEPT):
        return None
    key, writer, sequence, time_ns, status, payload, *_ = row
    found = _WRITER.match(writer) if isinstance(writer, str) else None
    if (
        found is None
        or not (isinstance(key, bytes) and isinstance(sequence, bytes) and isinstance(payload, bytes))
        or not (isinstance(time_ns, int) and isinstance(status, int))
        or not (-_TIMES <= time_ns < _TIMES and 0 <= status < 256)
    ):
        return None
    number = int.from_bytes(sequence) % _SEQUENCES
    return make_sample(time_ns, bytes.fromhex(found[0]), status, key[GROUP_BYTES:], payload, number)
