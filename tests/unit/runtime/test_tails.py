"""What is captured while something is on its way to readers, and is given once more."""

from __future__ import annotations

import math

import pytest

from engine.core.messages import ReaderKey
from engine.core.name_spaces import Group
from engine.dataset.groups import DurabilityKind, GroupDescription, GroupQos, TypeDescription
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, Sample, make_sample
from engine.dataset.sample_rows import SampleRows
from engine.runtime.late_joiners import (
    LATE_S,
    MAX_TAIL,
    MISSED_S,
    PASSED_S,
    READERS_S,
    RETURN_S,
    TAIL_S,
    Tails,
)
from engine.runtime.name_space_data import Difference

GROUP = Group("stock", "Reading", "type")
READER = ReaderKey("01" * 16, "Reading", ("stock",), "stock")
STATUS = {"S": DATA, "D": DISPOSE, "U": UNREGISTER}


def sample(word: str) -> Sample:
    """`aS1`: of instance a, at time 1."""
    return make_sample(int(word[2:]), b"w" * 16, STATUS[word[1]], word[0].encode(), b"")


def description(*, by_source: bool) -> GroupDescription:
    qos = GroupQos(durability=DurabilityKind.PERSISTENT, by_source_timestamp=by_source)
    return GroupDescription(GROUP, TypeDescription("depot.Reading", b"", b"", keyed=True), qos)


def told(tails: Tails, words: str) -> None:
    for word in words.split():
        tails.captured(GROUP, sample(word))


def delivery(tails: Tails, words: str, *, by_source: bool = False, has_all: bool = False) -> None:
    rows = SampleRows.coerce([sample(word) for word in words.split()])
    tails.begins(READER, [(description(by_source=by_source), rows)], has_all=has_all)


def passed(tails: Tails, now: float) -> list[Difference]:
    """What is given again when the delivery was over at that time."""
    assert list(tails.take_passed(now)) == []
    return [difference for _, difference in tails.take_passed(now + PASSED_S)]


@pytest.mark.parametrize(
    ("delivered", "meanwhile", "late", "afterwards", "again"),
    [
        ("aS1", "", "", "", ""),
        ("aS1", "aS2", "", "", "aS2"),
        ("aS1", "", "aS2", "", "aS2"),
        ("aS1", "aS2 aS3", "", "", "aS3"),
        ("aS1", "aS2", "aS3", "", "aS3"),
        ("aS1", "aD2", "", "", "aD2"),
        ("aS1", "aS2 aU3", "", "", "aS2"),
        ("aS1", "bS2", "bS3", "", ""),
        ("aS1", "aS2", "", "aS3", ""),
        ("aS1", "", "aS2", "aS3", ""),
        ("aS1 bS1", "aS2", "bS2", "aS3", "bS2"),
    ],
)
def test_what_a_delivery_has_passed_comes_again_unless_its_writer_goes_on(
    delivered: str, meanwhile: str, late: str, afterwards: str, again: str
) -> None:
    """Late: its reader had it before the end of the delivery, this node took it in after that."""
    tails = Tails()
    delivery(tails, delivered)
    told(tails, meanwhile)
    assert list(tails.take_passed(1_000.0)) == [], "it has not ended"
    tails.ended(READER, 5.0)
    told(tails, late)
    assert tails.next_s == 5.0 + LATE_S
    assert list(tails.take_passed(5.0 + LATE_S)) == []
    told(tails, afterwards)
    closed_s = 5.0 + LATE_S + PASSED_S
    found = [one for _, difference in tails.take_passed(closed_s) for one in difference.get(GROUP, [])]
    assert found == [sample(word) for word in again.split()]
    assert not tails


def test_readers_by_source_time_put_it_in_order_themselves() -> None:
    tails = Tails()
    delivery(tails, "aS1", by_source=True)
    assert not tails


def test_a_whole_set_has_every_instance() -> None:
    tails = Tails()
    delivery(tails, "aS1", has_all=True)
    told(tails, "bS2")
    tails.ended(READER, 5.0)
    assert passed(tails, 6.0) == [{GROUP: [sample("bS2")]}]


def test_what_two_deliveries_have_passed_comes_again_after_the_second() -> None:
    tails = Tails()
    delivery(tails, "aS1")
    told(tails, "aS3")
    tails.ended(READER, 5.0)
    delivery(tails, "bS2")
    assert list(tails.take_passed(9.0)) == []
    tails.ended(READER, 9.0)
    assert passed(tails, 10.0) == [{GROUP: [sample("aS3")]}]


def test_a_set_and_a_return_have_a_tail() -> None:
    tails = Tails()
    tails.set_taken(READER, 1.0)
    tails.returned(b"w" * 16, 1.0)
    tails.captured(GROUP, sample("aS1"))
    tails.captured(GROUP, sample("aS2")._replace(writer=b"v" * 16))
    assert tails.next_s == 1.0 + TAIL_S
    both = {GROUP: [sample("aS1"), sample("aS2")._replace(writer=b"v" * 16)]}
    assert list(tails.take_sets(1.0 + TAIL_S)) == [(READER, both, 0)]
    assert [tail.count for tail in tails.take_returns(1.0 + RETURN_S)] == [1]
    assert list(tails.take_sets(1.0 + READERS_S)) == []
    assert not tails


def test_a_further_reader_gets_what_was_captured_until_it_came_in_the_tail_of_the_set() -> None:
    tails = Tails()
    assert not tails.extended(READER, 1.0), "without a set"
    tails.set_taken(READER, 1.0)
    told(tails, "aS1")
    assert list(tails.take_sets(1.0 + TAIL_S)) == [(READER, {GROUP: [sample("aS1")]}, 0)]
    told(tails, "aS2")
    came_s = 1.0 + READERS_S - TAIL_S / 2
    assert tails.extended(READER, came_s)
    told(tails, "aS3")
    assert list(tails.take_sets(1.0 + READERS_S)) == [], "its tail is longer than that of the set"
    late = {GROUP: [sample("aS2"), sample("aS3")]}
    assert list(tails.take_sets(came_s + TAIL_S)) == [(READER, late, 0)]
    assert not tails
    assert not tails.extended(READER, came_s + TAIL_S)


def test_a_tail_that_is_too_long_is_counted_and_serves_no_further_reader() -> None:
    tails = Tails()
    tails.set_taken(READER, 1.0)
    for _ in range(MAX_TAIL + 3):
        tails.captured(GROUP, sample("aS1"))
    assert not tails.extended(READER, 1.0)
    ((_, samples, left_out),) = tails.take_sets(1.0 + TAIL_S)
    assert (len(samples[GROUP]), left_out) == (MAX_TAIL, 3)


def test_what_comes_of_a_lost_writer_before_it_is_found_belongs_to_its_return() -> None:
    tails = Tails()
    tails.lost(b"w" * 16, 0.0)
    assert tails.wants(b"w" * 16)
    assert not tails.wants(b"v" * 16)
    assert tails.next_s is None
    told(tails, "aS1")
    tails.returned(b"w" * 16, 1.0)
    told(tails, "aS2")
    (tail,) = tails.take_returns(1.0 + RETURN_S)
    assert tail.after(0) == {GROUP: [sample("aS1"), sample("aS2")]}
    assert not tails.wants(b"w" * 16)


def test_a_reader_gets_of_a_return_only_what_came_after_its_set_and_the_tail_of_that() -> None:
    later = READER._replace(process="02" * 16)
    tails = Tails()
    tails.lost(b"w" * 16, 0.0)
    told(tails, "aS1")
    tails.missed(GROUP, [sample("bS2")._replace(writer=b"v" * 16)], 1.0)
    tails.lost(b"v" * 16, 1.0)
    tails.returned(b"w" * 16, 1.0)
    tails.set_taken(READER, 1.0)
    told(tails, "aS3")
    assert list(tails.take_sets(1.0 + TAIL_S)) == [(READER, {GROUP: [sample("aS3")]}, 0)]
    told(tails, "aS4")
    tails.set_taken(later, 2.0)
    (missed,) = tails.take_returns(2.0)
    assert [tails.lacking(reader, missed) for reader in (READER, later)] == [{}, {}]
    wanted = [{GROUP: [sample("aS4")]}, {}, {GROUP: [sample("aS1"), sample("aS3"), sample("aS4")]}]
    early = READER._replace(process="03" * 16)
    (tail,) = tails.take_returns(1.0 + RETURN_S)
    assert [tails.lacking(reader, tail) for reader in (READER, later, early)] == wanted


def test_what_came_of_a_writer_that_is_lost_again_is_due_at_once() -> None:
    tails = Tails()
    tails.lost(b"w" * 16, 0.0)
    tails.returned(b"w" * 16, 1.0)
    told(tails, "aS1")
    tails.lost(b"w" * 16, 0.0)
    assert [tail.after(0) for tail in tails.take_returns(1.1)] == [{GROUP: [sample("aS1")]}]


def test_nothing_is_forgotten_of_a_writer_that_is_lost_and_back_between_two_looks() -> None:
    tails = Tails()
    tails.lost(b"w" * 16, 0.0)
    tails.returned(b"w" * 16, 1.0)
    told(tails, "aS1")
    tails.lost(b"w" * 16, 0.0)
    told(tails, "aS2")
    tails.returned(b"w" * 16, 1.5)
    told(tails, "aS3")
    assert list(tails.take_returns(1.0 + RETURN_S)) == []
    (tail,) = tails.take_returns(1.5 + RETURN_S)
    assert tail.after(0) == {GROUP: [sample("aS1"), sample("aS2"), sample("aS3")]}
    assert tail.count == 3


def test_nothing_is_kept_for_a_reader_that_is_gone() -> None:
    tails = Tails()
    tails.set_taken(READER, 1.0)
    delivery(tails, "aS1")
    tails.forget(READER)
    assert not tails


@pytest.mark.parametrize(
    ("heard", "lost_s", "given"),
    [("", 3.0, "aS1 bS2"), ("aS3", 3.0, ""), ("", MISSED_S, "")],
    ids=["the writer is lost", "it was heard in between", "long ago"],
)
def test_what_a_node_missed_is_given_where_its_writer_turns_out_to_be_lost(
    heard: str, lost_s: float, given: str
) -> None:
    tails = Tails()
    tails.missed(GROUP, [sample("aS1"), sample("bS2")], 0.0)
    assert tails.wants(b"w" * 16)
    told(tails, heard)
    tails.lost(b"w" * 16, lost_s)
    found = [one for tail in tails.take_returns(lost_s) for one in tail.after(0)[GROUP]]
    assert found == [sample(word) for word in given.split()]
    tails.returned(b"w" * 16, lost_s)
    assert [tail.count for tail in tails.take_returns(math.inf)] == [0], "and once"
