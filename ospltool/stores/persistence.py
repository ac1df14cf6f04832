"""The store of a persistence service: the last value of each instance of its groups."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from engine.core import plain
from engine.dataset.groups import GroupDescription
from engine.dataset.sample import Sample, make_sample
from engine.persistence.service import rows
from engine.store.interface import DamageLog
from ospltool.stores.model import (
    GroupFacts,
    SetFacts,
    SetKind,
    StoreFacts,
    StoreFormat,
    StoreUnreadable,
    decoded,
)
from ospltool.stores.ours import group_facts
from ospltool.stores.sqlite_file import SqliteFile
from ospltool.stores.types import Value

GROUP_BYTES: Final = 8
"""A key begins with the short name of its group."""

THE_SET: Final = 1
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
            raise StoreUnreadable(f"{path}: {error}") from error
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
                self._groups[id_] = group_facts(plain.from_json(GroupDescription, text))
            except (plain.PlainFault, ValueError, TypeError) as error:
                findings.append(f"the description of a group is damaged: {error}"[:200])

    def read(self, number: int, damage: DamageLog) -> Iterator[tuple[GroupFacts, Iterator[Sample]]]:
        """Yield the last values, group by group."""
        self.facts.set_of(number)
        for id_, group in self._groups.items():
            yield group, self._samples(id_, group, damage)
        self._look_for_others(damage)

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
            damage.add(f"group {group.name}", f"a part of it cannot be read: {error}")

    def _look_for_others(self, damage: DamageLog) -> None:
        """Count values whose group is not described."""
        known = ",".join("?" * len(self._groups))
        query = f"SELECT count(*) FROM kept WHERE substr(key, 1, {GROUP_BYTES}) NOT IN ({known})"  # noqa: S608  # marks
        with contextlib.suppress(sqlite3.DatabaseError):  # it was noted
            (count,) = self._file.connection.execute(query, tuple(self._groups)).fetchone()
            if count:
                damage.add(f"{count} values", "their group is not described")

    def decode(self, group: GroupFacts, sample: Sample) -> dict[str, Value] | None:
        """Decode the fields of a sample; needs cyclonedds."""
        return decoded(group, sample)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _sample_of(row: tuple[bytes | str | int, ...]) -> Sample | None:
    """Make the sample of a row; None if it is damaged."""
    if not rows.is_whole(row):
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
