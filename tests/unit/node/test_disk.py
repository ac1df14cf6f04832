"""What a node says of its store at its start."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.core.name_spaces import Group
from engine.dataset.groups import DurabilityKind, GroupDescription, GroupQos, TypeDescription
from engine.dataset.sample import DATA, make_sample
from engine.dds.activity import ThreadActivities
from engine.node.disk import Disk, trace_found
from engine.runtime.store_queue import MAX_GATHERED, StoreQueue
from engine.store.interface import LET_GO_BYTES, REPLACED_MARK, GroupChange
from engine.store.sqlite import SqliteStore
from engine.tracing.levels import Level
from engine.tracing.tracer import Tracer

TYPE = TypeDescription("T", b"information", b"mapping", keyed=True)
GROUP = GroupDescription(
    Group("p", "t", TYPE.type_id), TYPE, GroupQos(DurabilityKind.PERSISTENT, 1, 0, by_source_timestamp=True)
)
SAMPLES = [make_sample(1, b"w" * 16, DATA, b"key", b"payload")]


def fill(directory: Path, *, complete: tuple[str, ...], parts: tuple[str, ...], replaced: str = "") -> None:
    """A store with complete sets, and with sets whose alignment broke off."""
    with contextlib.closing(SqliteStore(directory, "n1", lambda: "f" * 32)) as store:
        for name in (*complete, *parts):
            writer = store.begin_set(name)
            writer.add(GROUP, SAMPLES)
            if name in complete:
                store.commit_complete(writer)
                if name in parts:
                    store.begin_set(name).add(GROUP, SAMPLES)
            if replaced:
                store.mark(name, {REPLACED_MARK: replaced})


def said(directory: Path) -> list[tuple[str, object]]:
    """What a node that starts with the store says of name-spaces."""
    opened = threading.Event()
    disk = Disk(directory, "n1", opened.set, ThreadActivities())
    disk.start()
    assert opened.wait(30)
    found = disk.found()
    assert found is not None
    tracer = Tracer(lambda: 0, recent_level=Level.FINEST)
    trace_found(tracer, str(directory), found)
    told = [record.fields["namespace"] for record in tracer.recent() if record.event.id == "store.namespace"]
    assert told == list(found.sets)
    disk.close(30)
    names = (
        "store.incomplete",
        "store.restored",
        "store.no-backup",
        "store.replaced",
        "lifecycle.local-copy",
        "store.outdated",
        "store.out-of-range",
    )
    return [
        (record.event.id, record.fields.get("namespace"))
        for record in tracer.recent()
        if record.event.id in names
    ]


def test_a_lineage_that_no_node_can_have_is_said(tmp_path: Path) -> None:
    fill(tmp_path, complete=("a",), parts=())
    with contextlib.closing(SqliteStore(tmp_path, "n1", lambda: "f" * 32)) as store:
        store.mark("a", {"lineage": f"{1 << 100}/x/1", "restored": "yes"})
    assert said(tmp_path)[:2] == [("store.outdated", None), ("lifecycle.local-copy", "a")]
    assert said(tmp_path)[-1][0] == "store.out-of-range"


def test_an_incomplete_set_is_said_with_what_takes_its_place(tmp_path: Path) -> None:
    fill(tmp_path, complete=("a",), parts=("a", "b"))
    told = said(tmp_path)
    assert set(told) == {
        ("store.incomplete", "a"),
        ("store.restored", "a"),
        ("store.incomplete", "b"),
        ("store.no-backup", "b"),
        ("lifecycle.local-copy", "a"),
    }


def test_a_replaced_set_is_said_at_the_next_start_and_at_no_other(tmp_path: Path) -> None:
    fill(tmp_path, complete=("a",), parts=(), replaced="by the operator")
    assert ("store.replaced", "a") in said(tmp_path)
    assert said(tmp_path) == [("lifecycle.local-copy", "a")]


class Writing:
    """A store whose changes wait for `gather_s` for others; its transactions are counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path, gather_s: float) -> None:
        monkeypatch.setattr("engine.node.disk.GATHER_S", gather_s)
        fill(directory, complete=("a",), parts=())
        self._news = threading.Condition()
        self.transactions = 0
        self.results = 0
        carry_out = StoreQueue.work

        def counted(queue: StoreQueue) -> bool:
            has_worked = carry_out(queue)
            with self._news:
                self.transactions += has_worked
                self._news.notify_all()
            return has_worked

        monkeypatch.setattr(StoreQueue, "work", counted)
        self.disk = Disk(directory, "n1", self._result, ThreadActivities())
        self.disk.start()
        self.await_results(1)  # the first one says that the store is open

    def _result(self) -> None:
        with self._news:
            self.results += 1
            self._news.notify_all()

    def await_results(self, count: int) -> None:
        with self._news:
            assert self._news.wait_for(lambda: self.results >= count, 30)

    def await_transactions(self, count: int) -> None:
        assert self.has_come_to(count, within_s=30)

    def has_come_to(self, count: int, within_s: float) -> bool:
        with self._news:
            return self._news.wait_for(lambda: self.transactions >= count, within_s)

    def append(self, count: int) -> None:
        for number in range(count):
            change = GroupChange(GROUP, make_sample(number + 2, b"w" * 16, DATA, b"key", b"payload"))
            self.disk.store_queue.append("a", [change])
            self.disk.wake()

    def hurry(self) -> None:
        self.disk.store_queue.hurry()
        self.disk.wake()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Writing]:
    """A store that would wait for longer than a test lasts."""
    made = Writing(monkeypatch, tmp_path, gather_s=600.0)
    yield made
    made.disk.close(30)


def check_one_transaction(writing: Writing, count: int) -> None:
    writing.await_transactions(1)
    assert (writing.transactions, writing.disk.store_queue.carried_out) == (1, count)


def test_changes_that_come_one_by_one_are_one_transaction_for_who_waits_for_them(patient: Writing) -> None:
    patient.append(50)
    assert patient.disk.store_queue.carried_out == 0
    patient.hurry()
    check_one_transaction(patient, 50)
    patient.await_results(2)
    assert patient.disk.store_queue.results()
    assert not patient.disk.store_queue.is_awaited


def test_an_urgent_change_is_written_at_once_while_others_are_gathered(patient: Writing) -> None:
    for number in range(1, 21):
        patient.append(1)
        patient.hurry()
        patient.await_transactions(number)
        patient.await_results(1 + number)
    assert patient.disk.store_queue.carried_out == 20


def test_changes_for_which_nobody_waits_are_written_when_their_time_is_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    writing = Writing(monkeypatch, tmp_path, gather_s=0.05)
    writing.append(1)
    check_one_transaction(writing, 1)
    writing.disk.close(30)
    assert writing.results == 1, "nobody waits for it, so the node's thread is not woken"


def test_changes_that_keep_coming_are_written_less_often(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first one is written soon, the next ones together, unless somebody waits for one."""
    monkeypatch.setattr("engine.node.disk.STEADY_S", 600.0)
    writing = Writing(monkeypatch, tmp_path, gather_s=0.05)
    writing.disk.store_queue.mark("a", {"key": "value"})  # the first transaction of the run
    writing.disk.wake()
    writing.await_transactions(1)
    writing.append(20)
    assert not writing.has_come_to(2, within_s=0.5)
    writing.hurry()
    writing.await_transactions(2)
    assert (writing.transactions, writing.disk.store_queue.carried_out) == (2, 21)
    writing.append(3)
    writing.disk.close(30)
    assert (writing.transactions, writing.disk.store_queue.carried_out) == (3, 24)


def test_many_changes_do_not_wait(patient: Writing) -> None:
    patient.append(MAX_GATHERED)
    patient.await_transactions(1)


def test_large_samples_wait_until_they_are_many_bytes(
    monkeypatch: pytest.MonkeyPatch, patient: Writing
) -> None:
    """One that is replaced while it waits need not be written, so their number does not count."""
    size = LET_GO_BYTES
    monkeypatch.setattr("engine.runtime.store_queue.MAX_GATHERED", 3)
    monkeypatch.setattr("engine.runtime.store_queue.MAX_GATHERED_BYTES", 3 * size)
    queue = patient.disk.store_queue
    samples = [make_sample(number, b"w" * 16, DATA, b"key", b"x" * size) for number in range(1, 10)]
    for before, after in itertools.pairwise([None, *samples]):
        assert after is not None
        queue.append("a", [GroupChange(GROUP, after, [before] if before else [])])
    assert queue.may_gather
    for number in range(1, 4):
        queue.append("a", [GroupChange(GROUP, make_sample(number, b"w" * 16, DATA, b"small", b"x"))])
        assert queue.may_gather is (number < 3)
    patient.disk.wake()
    patient.await_transactions(1)
    for number in range(1, 4):
        queue.append(
            "a", [GroupChange(GROUP, make_sample(number, b"w" * 16, DATA, b"%d" % number, b"x" * size))]
        )
        assert queue.may_gather is (number < 3)
    patient.disk.wake()
    patient.await_transactions(2)


@pytest.mark.parametrize("are_new", [True, False], ids=["new", "replacing"])
def test_large_samples_wait_for_those_that_may_replace_them(
    monkeypatch: pytest.MonkeyPatch, patient: Writing, are_new: bool
) -> None:
    """Samples that replace nothing are written at once: to wait would spare no writing."""
    size = LET_GO_BYTES
    monkeypatch.setattr("engine.runtime.store_queue.MAX_NEW_BYTES", 3 * size)
    queue = patient.disk.store_queue
    for written in (0, 1):
        for number in range(1, 4):
            assert queue.may_gather is (number > 1)
            key = b"%d %d" % (written, number)
            new, old = (make_sample(time_ns, b"w" * 16, DATA, key, b"x" * size) for time_ns in (2, 1))
            queue.append("a", [GroupChange(GROUP, new, [] if are_new else [old])])
        assert queue.may_gather is not are_new
        if are_new:
            patient.disk.wake()
        else:
            patient.hurry()
        patient.await_transactions(written + 1)


def test_after_a_long_transaction_the_store_rests_if_many_bytes_wait(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("engine.node.disk.HEAVY_BYTES", 100)
    monkeypatch.setattr("engine.node.disk.HEAVY_S", 600.0)
    monkeypatch.setattr("engine.node.disk.REST", 1e9)
    monkeypatch.setattr("engine.node.disk.STEADY_S", 0.0)
    writing = Writing(monkeypatch, tmp_path, gather_s=0.0)
    for count in (1, 2):
        writing.append(1)
        writing.await_transactions(count)
    change = GroupChange(GROUP, make_sample(9, b"w" * 16, DATA, b"key", b"x" * 100))
    writing.disk.store_queue.append("a", [change])
    writing.disk.wake()
    assert not writing.has_come_to(3, within_s=0.3)
    writing.hurry()
    writing.await_transactions(3)
    writing.disk.close(30)


def test_a_node_that_ends_writes_what_waits(patient: Writing) -> None:
    patient.append(3)
    patient.disk.close(30)
    check_one_transaction(patient, 3)
