"""What one replica sends to another, message by message."""

from __future__ import annotations

from engine.dataset.sample import DATA
from engine.persistence.core import replica as replica_module
from engine.persistence.core.messages import (
    PARTS,
    Announcement,
    Inventory,
    OriginalSample,
    SampleBatch,
    Subscription,
    Want,
    WriterState,
)
from engine.persistence.core.positions import Positions
from engine.persistence.core.provider_selection import SynchronizationSettings
from engine.persistence.core.replica import Replica
from engine.persistence.core.sequences import MAX_INTERVALS, Sequences
from tests.redundancy.laws import numbers_of

KEY = b"k"
OLD = OriginalSample("w1", 1, KEY, 1_000)
NEW = OriginalSample("w2", 1, KEY, 2_000)
ONE = numbers_of([1])
NONE = Sequences()


def replica(name: str, *samples: OriginalSample) -> Replica:
    made = Replica(name, SynchronizationSettings(enable=True))
    for sample in samples:
        made.samples_arrived([sample])
    return made


def ask(source: Replica, sink: Replica, *wants: Want, has: tuple[str, ...] = ()) -> list[SampleBatch]:
    """What `source` sends to `sink`, which asks for this; `sink` takes it."""
    source.connected(sink.name)
    sink.connected(source.name)
    states = tuple(WriterState(writer, ONE, None) for writer in has)
    source.receive(sink.name, Announcement(states))
    source.receive(sink.name, Subscription(1, wants))
    sent = [
        message for to, message in source.messages() if to == sink.name and isinstance(message, SampleBatch)
    ]
    for message in sent:
        sink.receive(source.name, message)
    return sent


def payloads(sent: list[SampleBatch]) -> list[OriginalSample]:
    return [kept.sample for delivery in sent for kept in delivery.samples]


def test_what_supersedes_a_sample_comes_with_it_whoever_wrote_it() -> None:
    source, sink = replica("a", OLD, NEW), replica("b")
    assert payloads(ask(source, sink, Want("w1", NONE))) == [NEW]
    assert sink.values() == {KEY: NEW}


def test_what_the_other_has_is_not_sent_and_still_supersedes() -> None:
    source, middle, last = replica("a", OLD, NEW), replica("b", NEW), replica("c")
    assert payloads(ask(source, middle, Want("w1", NONE), has=("w2",))) == []
    middle.period()
    *_, announced = (each for _, each in middle.messages() if isinstance(each, Announcement))
    assert {state.writer: state.had for state in announced.states} == {"w1": ONE, "w2": ONE}
    # The middle never had the sample that is superseded, and hands on what supersedes it all the same.
    assert payloads(ask(middle, last, Want("w1", NONE))) == [NEW]
    assert last.values() == {KEY: NEW}


def test_a_sample_is_not_sent_back_to_where_it_came_from() -> None:
    source, sink = replica("a"), replica("b", OLD)
    ask(source, sink, Want("w1", NONE))
    assert payloads(ask(sink, source, Want("w1", NONE))) == [OLD]
    assert [message for _, message in source.messages() if isinstance(message, SampleBatch)] == []
    again = replica("a")
    again.connected("b")
    again.receive("b", Subscription(1, (Want("w1", NONE),)))
    again.receive("b", SampleBatch((ask(sink, replica("c"), Want("w1", NONE))[0].samples[0],)))
    assert again.values() == {KEY: OLD}
    assert [message for _, message in again.messages() if isinstance(message, SampleBatch)] == []


def test_only_the_part_that_is_asked_for_is_given() -> None:
    samples = [OriginalSample("w", number, b"%d" % number, number) for number in range(1, 7)]
    source, sink = replica("a", *samples), replica("b")
    assert payloads(ask(source, sink, Want("w", ONE, numbers_of([2, 3])))) == samples[1:3]
    source.samples_arrived([OriginalSample("w", 7, b"7", 7)])
    assert [message for _, message in source.messages() if isinstance(message, SampleBatch)] == []


def test_a_sample_that_comes_again_is_counted_and_changes_nothing() -> None:
    one = replica("a", OLD, OLD, NEW, OLD)
    assert one.values() == {KEY: NEW}
    assert (one.counters["applied"], one.counters["repeated"]) == (2, 2)


def test_equal_timestamps_are_decided_by_the_writer_then_by_the_number() -> None:
    left, right = OriginalSample("w1", 9, KEY, 5), OriginalSample("w2", 1, KEY, 5)
    for order in ((left, right), (right, left)):
        assert replica("a", *order).values() == {KEY: right}


def test_messages_of_one_that_is_not_connected_are_not_listened_to() -> None:
    one = replica("a")
    one.receive("x", Subscription(1, (Want("w1", NONE),)))
    one.samples_arrived([OLD])
    assert one.messages() == []


def test_without_enable_nothing_is_chosen_and_nothing_asked_for() -> None:
    one = Replica("a", SynchronizationSettings())
    one.writer_matched("w")
    one.period()
    assert one.messages() == []


def test_many_values_are_given_in_moments() -> None:
    """Positions have gaps: 20,000 numbers are 20,000 intervals, and nothing may look at each pair of them."""
    count = 20_000
    positions = Positions()
    samples = [positions.sample("w", b"%d" % n, n, DATA, b"") for n in range(count)]
    source, sink, again = replica("a"), replica("b"), replica("c")
    source.samples_arrived(samples)
    sent = ask(source, sink, Want("w", NONE))
    assert len(payloads(sent)) == count
    assert sink.values() == source.values()
    again.samples_arrived(samples[::2])
    has = numbers_of(sample.sequence for sample in samples[: 2 * MAX_INTERVALS : 2])
    assert len(payloads(ask(source, again, Want("w", has)))) == count - MAX_INTERVALS
    assert again.values() == source.values()


def test_the_audit_waits_while_something_is_known_to_be_missing() -> None:
    one = replica("a", OLD)
    one.connected("b")
    digests = (1,) * PARTS
    one.receive("b", Announcement((WriterState("w2", ONE, None),), digests))

    def asked(periods: int) -> int:
        for _ in range(periods):
            one.period()
        return sum(isinstance(message, Inventory) for _, message in one.messages())

    assert asked(20) == 0, "what b has of w2 may be on its way"
    one.receive("b", SampleBatch((), (), (("w2", ONE),)))
    assert asked(replica_module.MARGIN_PERIODS + 1) == 0
    assert asked(1) == replica_module.MAX_PARTS_ASKED
    one.receive("b", Inventory(replica_module.part_of(KEY), ()))
    assert [
        kept.sample for _, each in one.messages() if isinstance(each, SampleBatch) for kept in each.samples
    ] == [OLD]
