"""The part of a service that synchronizes: groups, what waits for replicas that are behind, and rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.core.name_spaces import Group
from engine.dataset.groups import DurabilityKind, GroupDescription, GroupQos, TypeDescription
from engine.dataset.sample import DATA
from engine.dds.own_types import SenderState
from engine.dds.topics import description_of
from engine.persistence.core.messages import (
    Announcement,
    GroupDescriptions,
    Inventory,
    KeptSample,
    MessageFault,
    OriginalSample,
    SampleBatch,
    Subscription,
    Want,
)
from engine.persistence.core.positions import Positions
from engine.persistence.core.provider_selection import SynchronizationSettings
from engine.persistence.core.sequences import Sequences
from engine.persistence.service import replica_store as rows
from engine.persistence.service import service_parts
from engine.persistence.service.kept_groups import KnownGroups, group_id, writer_name
from engine.persistence.service.replica_store import connect
from engine.persistence.service.service_parts import Synchronization

ON = SynchronizationSettings(enable=True)
TYPE = description_of(SenderState)
DESCRIPTION = GroupDescription(
    Group("p", "t", TYPE.type_id), TYPE, GroupQos(DurabilityKind.PERSISTENT, by_source_timestamp=True)
)
ID = group_id(DESCRIPTION.group)
WRITER = writer_name(bytes(16), ID)


class Cell:
    """A service's part with a group and samples of one writer."""

    def __init__(self, name: str, store: sqlite3.Connection | None = None) -> None:
        self.groups = KnownGroups(())
        self.part = Synchronization(name, ON, self.groups)
        if store is not None:
            self.part.restore(store)
        self.part.group_seen(DESCRIPTION)
        self.positions = Positions()

    def write(self, *numbers: int, time_ns: int = 1_000) -> None:
        for number in numbers:
            key = ID + bytes((number,))
            sample = self.positions.sample(WRITER, key, time_ns + number, DATA, b"x")
            self.part.captured([sample])

    def kinds(self) -> list[type]:
        return [type(message) for _, message in self.part.messages()]


def subscribed() -> Cell:
    made = Cell("a")
    made.part.connected("b")
    made.part.receive("b", Subscription(1, (Want(WRITER, Sequences()),)))
    assert made.kinds() == [GroupDescriptions, Announcement], "groups come first"
    return made


def test_a_replica_that_is_behind_gets_no_more_until_it_has_room() -> None:
    cell = subscribed()
    cell.part.has_room = lambda _: False
    cell.write(1, 2)
    assert cell.kinds() == []
    cell.write(3)
    cell.part.has_room = lambda _: True
    deliveries = list(cell.part.messages())
    assert [type(message) for _, message in deliveries] == [SampleBatch, SampleBatch]
    other = Cell("b")
    other.part.connected("a")
    for _, message in deliveries:
        assert isinstance(message, SampleBatch)
        other.part.receive("a", message)
    assert len(list(other.part.replica.instances())) == 3
    _, last_values = other.part.take_from_others()
    assert [sample.key[-1] for sample in last_values] == [1, 2, 3]


def test_a_replica_that_stays_behind_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_parts, "MAX_WAITING", 3)
    cell = subscribed()
    cell.part.has_room = lambda _: False
    for number in range(4):
        assert cell.part.overrun() == []
        cell.write(number)
        assert cell.kinds() == []
    assert cell.part.overrun() == ["b"]
    cell.part.disconnected("b")
    assert cell.part.overrun() == []


def sample(**changes: object) -> OriginalSample:
    fields = {"writer": WRITER, "sequence": 5, "key": ID + b"k", "source_time_ns": 1, "payload": b""}
    return OriginalSample(**{**fields, **changes})  # type: ignore[arg-type] # - wrong ones are wanted


def strange() -> Iterator[Any]:
    """Messages that are sound, but not for a service."""
    other = bytes(8)
    for one in (
        sample(writer="w"),
        sample(writer=WRITER + "-late"),
        sample(key=b"short"),
        sample(key=other + b"k", writer=writer_name(bytes(16), other)),
    ):
        yield SampleBatch((KeptSample(one, frozenset()),))
    yield Inventory(1, ((b"", (1, WRITER, 1)),))
    wrong = DESCRIPTION.group._replace(type_id="another")
    for group in (GroupDescription(wrong, TYPE, DESCRIPTION.qos), *damaged_types()):
        yield GroupDescriptions((group,))


def damaged_types() -> Iterator[GroupDescription]:
    for information, mapping in ((b"", b""), (TYPE.information, b"x"), (b"x" * 50, TYPE.mapping)):
        type_ = TypeDescription("t", information, mapping, keyed=True)
        yield GroupDescription(Group("p", "t", type_.type_id), type_, DESCRIPTION.qos)


STRANGE = list(strange())


@pytest.mark.parametrize("message", STRANGE, ids=range(len(STRANGE)))
def test_what_is_sound_but_means_nothing_here_is_refused(message: Any) -> None:
    cell = Cell("a")
    cell.part.connected("b")
    with pytest.raises(MessageFault):
        cell.part.receive("b", message)
    assert list(cell.part.replica.instances()) == []
    assert len(list(cell.groups.items())) == 1


@pytest.fixture
def store(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = connect(tmp_path / "store")
    for statement in Synchronization.tables.split(";"):
        connection.execute(statement)
    yield connection
    connection.close()


def save(cell: Cell, store: sqlite3.Connection) -> None:
    write = cell.part.changes()
    assert write is not None
    write(store)


def test_what_was_saved_in_parts_is_there_again(store: sqlite3.Connection) -> None:
    cell = Cell("a")
    for time_ns in (1_000, 2_000):
        cell.write(1, 2, 3, time_ns=time_ns)
        save(cell, store)
    assert cell.part.changes() is None
    again = Cell("a", store)
    assert again.part.replica.saved() == cell.part.replica.saved()
    assert again.part.changes() is None, "the group is known, too"


@pytest.mark.parametrize(
    "what",
    [
        "kept SET payload = 'y' WHERE key",
        "kept SET sequence = CAST(sequence AS TEXT) WHERE key",
        "accounted SET intervals = '[]' WHERE",
        "accounted SET intervals = CAST(intervals AS BLOB) WHERE",
    ],
)
def test_a_damaged_row_is_left_out_and_everything_is_asked_for_again(
    store: sqlite3.Connection, what: str
) -> None:
    cell = Cell("a")
    cell.write(1, 2, 3)
    save(cell, store)
    store.execute(f"UPDATE {what} = (SELECT min(key) FROM kept)" if "key" in what else f"UPDATE {what} 1")
    saved, damaged = rows.read(store)
    assert (len(saved.kept), saved.had, damaged) == (2 if "key" in what else 3, (), 1)
    assert Cell("a", store).part.damaged == 1
