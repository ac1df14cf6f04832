"""OWNERSHIP EXCLUSIVE and LIFESPAN as persistence services apply them, without a network."""

from __future__ import annotations

import sqlite3

import pytest

from engine.dataset import lifespans as lifespans_module
from engine.dataset.sample import DATA, DISPOSE
from engine.persistence.core.messages import OriginalSample, WriterLifespans
from engine.persistence.service import service_process as intake
from engine.persistence.service.kept_groups import writer_name
from engine.persistence.service.service_parts import Lifespans
from engine.persistence.service.service_process import Owners

LOW, HIGH = bytes(16), b"\xff" * 16
WRITER = writer_name(LOW, bytes(8))

STEPS = [
    ("the first owns", [(LOW, 1, True), (LOW, 1, True)]),
    ("the stronger one takes it", [(LOW, 1, True), (HIGH, 2, True), (LOW, 1, False)]),
    ("of equal ones that with the lower GUID", [(HIGH, 1, True), (LOW, 1, True), (HIGH, 1, False)]),
    ("one that became weaker loses it", [(HIGH, 3, True), (HIGH, 1, True), (LOW, 2, True)]),
    ("negative strengths count, too", [(HIGH, -1, True), (LOW, -2, False)]),
]


@pytest.mark.parametrize(("what", "steps"), STEPS, ids=[what for what, _ in STEPS])
def test_the_owner_is_the_strongest_writer(what: str, steps: list[tuple[bytes, int, bool]]) -> None:
    owners = Owners()
    for writer, strength, counts in steps:
        assert owners.admits(b"k", writer, strength) is counts, what


@pytest.mark.parametrize("ends", ["unregistered", "gone"])
def test_an_owner_that_ends_gives_its_instances_free(ends: str) -> None:
    owners = Owners()
    assert owners.admits(b"k", HIGH, 2)
    assert owners.admits(b"other", HIGH, 2)
    owners.unregistered(b"k", LOW)  # it never owned it
    assert not owners.admits(b"k", LOW, 1)
    if ends == "gone":
        owners.gone(HIGH)
    else:
        owners.unregistered(b"k", HIGH)
    assert owners.admits(b"k", LOW, 1)
    assert owners.admits(b"other", LOW, 1) is (ends == "gone")


def test_who_owned_an_instance_once_takes_nothing_away_at_its_end() -> None:
    owners = Owners()
    assert owners.admits(b"k", LOW, 1)
    assert owners.admits(b"k", HIGH, 2)
    owners.gone(LOW)
    assert not owners.admits(b"k", LOW, 1)


def test_at_the_bound_the_oldest_owner_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "MAX_INSTANCES", 2)
    owners = Owners()
    for key in (b"1", b"2", b"3"):
        assert owners.admits(key, HIGH, 2)
    assert [owners.admits(key, LOW, 1) for key in (b"3", b"2")] == [False, False]
    assert owners.admits(b"1", LOW, 1)


def test_a_sample_expires_by_its_source_time_and_a_dispose_does_not() -> None:
    lifespans = Lifespans()
    lifespans.learn(LOW, 10)
    sample = OriginalSample(WRITER, 1, bytes(9), 100, b"x", DATA)
    assert [lifespans.is_expired(sample, now) for now in (109, 110)] == [False, True]
    assert not lifespans.is_expired(OriginalSample(WRITER, 1, bytes(9), 100, b"x", DISPOSE), 200)
    assert not lifespans.is_expired(OriginalSample(writer_name(HIGH, bytes(8)), 1, bytes(9), 100), 200)


def test_instances_tell_each_other_and_the_smaller_value_counts() -> None:
    nodes = {name: Lifespans() for name in "abc"}
    nodes["a"].learn(LOW, 10)
    nodes["c"].learn(LOW, 7)
    nodes["c"].learn(HIGH, 5)
    for one, other in ("ab", "bc"):
        nodes[one].connected(other)
        nodes[other].connected(one)
    while moved := [(name, message) for name, node in nodes.items() for message in node.messages()]:
        for name, (peer, message) in moved:
            assert isinstance(message, WriterLifespans)
            nodes[peer].receive(name, message)
    store = sqlite3.connect(":memory:")
    for node in nodes.values():
        assert node.is_expired(OriginalSample(WRITER, 1, bytes(9), 0, b"x", DATA), 7)
        store.execute(node.tables)
        write = node.changes()
        assert write is not None
        write(store)
        assert node.changes() is None
    again = Lifespans()
    again.restore(store)
    again.connected("x")
    assert again.messages() == [("x", WriterLifespans({LOW.hex(): 7, HIGH.hex(): 5}))]


def test_only_what_is_new_is_told_and_only_to_others_that_are_there() -> None:
    lifespans = Lifespans()
    for peer in "abc":
        lifespans.connected(peer)
    assert lifespans.messages() == [], "nothing is known"
    lifespans.disconnected("c")
    lifespans.receive("a", WriterLifespans({LOW.hex(): 10}))
    assert [peer for peer, _ in lifespans.messages()] == ["b"]
    lifespans.learn(LOW, 10)
    lifespans.learn(LOW, 11)
    assert lifespans.messages() == []


def test_a_smaller_value_replaces_what_is_saved() -> None:
    lifespans, again = Lifespans(), Lifespans()
    store = sqlite3.connect(":memory:")
    store.execute(lifespans.tables)
    for lifespan_ns in (10, 7):
        lifespans.learn(LOW, lifespan_ns)
        write = lifespans.changes()
        assert write is not None
        write(store)
    again.restore(store)
    assert [again.is_expired(OriginalSample(WRITER, 1, bytes(9), 0, b"x", DATA), now) for now in (6, 7)] == [
        False,
        True,
    ]


def test_writers_beyond_the_bound_are_counted_and_their_samples_do_not_expire(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lifespans_module, "MAX_WRITERS", 1)
    lifespans = Lifespans()
    for writer, lifespan_ns in ((LOW, 10), (HIGH, 10), (LOW, 5)):
        lifespans.learn(writer, lifespan_ns)
    assert lifespans.refused == 1
    assert lifespans.is_expired(OriginalSample(WRITER, 1, bytes(9), 0, b"x", DATA), 5)
    assert not lifespans.is_expired(
        OriginalSample(writer_name(HIGH, bytes(8)), 1, bytes(9), 0, b"x", DATA), 50
    )
