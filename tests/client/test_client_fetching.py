from __future__ import annotations

import itertools

import hypothesis
import pytest
from hypothesis import strategies as st

from engine.dataset.sample import DATA, NO_WRITER, UNREGISTER, Sample, make_sample
from engine.dds.client_protocol.extensions import LinkAddition
from engine.dds.client_protocol.messages import Completeness, ErrorCode, HistoryLimits, Link
from ospltool.client import HistorySelection, InvalidLimit, InvalidTimeRange
from ospltool.client.samples import GRACE_S, HOLD_S, PAUSE_S, HistoryFetch, Send

ONE, TWO = b"1" * 12, b"2" * 12
IDS = {ONE: b"1" * 16, TWO: b"2" * 16}


def sample(number: int, key: bytes = b"k") -> Sample:
    return make_sample(number, b"w" * 16, DATA, key, b"\0\1\0\0")


class Talk:
    """A fetch and the services around it."""

    def __init__(self, *partitions: str, followed: bool = True, services: frozenset[bytes]) -> None:
        self.now = 100.0
        self.services = services
        self.history: list[int] | None = None
        self.updates: list[int] = []
        self.fetch = HistoryFetch(
            partitions or ("p",),
            itertools.count(1),
            HistorySelection(),
            is_followed=followed,
            on_history=lambda parts: setattr(self, "history", [s.source_time_ns for s, _ in parts]),
            on_update=lambda parts: self.updates.extend(s.source_time_ns for s, _ in parts),
        )

    def turn(self, after_s: float = 0.0) -> list[Send]:
        self.now += after_s
        return self.fetch.turn(self.now, self.services)

    def answer(
        self,
        service: bytes,
        number: int,
        *times: int,
        code: ErrorCode = ErrorCode.OK,
        count: int | None = None,
        ours: LinkAddition | None = None,
        complete: bool = True,
    ) -> None:
        exchange = self.fetch.exchange(number)
        assert exchange is not None
        for time_ns in times:
            exchange.part(service, number, sample(time_ns), self.now, exact=True)
        completeness = Completeness.COMPLETE if complete else Completeness.INCOMPLETE
        link = Link(len(times) if count is None else count, completeness, code)
        self.fetch.end(service, number, IDS[service], link, ours)


def covers(*names: str, **name_spaces: bool) -> LinkAddition:
    return LinkAddition(name_spaces=name_spaces, covers=names)


def kept_up_to_date() -> Talk:
    """A fetch that one of two services has answered, and follows up."""
    talk = Talk(services=frozenset((ONE, TWO)))
    talk.turn()
    talk.answer(ONE, 1, 10, ours=covers("a", a=True))
    talk.answer(TWO, 1, code=ErrorCode.NOT_RESPONSIBLE, ours=covers(a=True))
    talk.turn()
    return talk


def test_the_answer_of_the_master_and_the_refusal_of_the_other_complete_the_history() -> None:
    talk = Talk(services=frozenset((ONE, TWO)))
    assert talk.turn() == [Send(1, "p", ())]
    talk.answer(TWO, 1, code=ErrorCode.NOT_RESPONSIBLE, ours=covers(a=True))
    talk.turn()
    assert not talk.fetch.done
    talk.answer(ONE, 1, 10, 11, ours=covers("a", a=True))
    assert talk.turn() == []
    assert talk.history == [10, 11]


def test_two_masters_each_answer_for_their_name_space() -> None:
    talk = Talk(services=frozenset((ONE, TWO)))
    talk.turn()
    talk.answer(ONE, 1, 10, ours=covers("a", a=True, b=True))
    talk.turn()
    assert not talk.fetch.done
    talk.answer(TWO, 1, 20, ours=covers("b", a=True, b=True))
    talk.turn()
    assert talk.history == [10, 20]


def test_every_partition_must_be_complete() -> None:
    talk = Talk("p", "q", services=frozenset((ONE,)))
    assert [send.partition for send in talk.turn()] == ["p", "q"]
    talk.answer(ONE, 1, 10, ours=covers("a", a=True))
    talk.turn()
    assert not talk.fetch.done
    talk.answer(ONE, 2, 11, ours=covers("a", a=True))
    talk.turn()
    assert talk.history == [10, 11]


def test_a_service_that_is_silent_is_not_waited_for_longer_than_a_round() -> None:
    talk = Talk(services=frozenset((ONE, TWO)))
    talk.turn()
    talk.answer(ONE, 1, 10, ours=covers("a", a=True))
    talk.turn(1.0)
    assert not talk.fetch.done
    talk.turn(1.5)
    assert talk.history == [10]


def test_an_answer_that_was_slow_to_begin_is_given_more_time_and_never_mixed_with_the_next() -> None:
    talk = Talk(services=frozenset((ONE,)))
    talk.turn()
    talk.turn(2.1)
    assert talk.turn(0.2) == [Send(2, "p", ())]
    exchange = talk.fetch.exchange(1)
    assert exchange is not None
    exchange.part(ONE, 1, sample(10), talk.now, exact=True)
    assert talk.turn(2.5) == []
    talk.answer(ONE, 2, 10, 11, ours=covers("a", a=True))
    talk.turn()
    assert talk.history == [10, 11]


@pytest.mark.parametrize(
    ("count", "code", "ours"),
    [
        (3, ErrorCode.OK, covers("a", a=True)),
        (None, ErrorCode.OK, covers(a=False)),
        (None, ErrorCode.NO_MASTER_SELECTED, covers(a=False)),
        (None, ErrorCode.OK, covers("a", a=True, b=False)),
    ],
    ids=["a sample is missing", "not complete", "no master", "another name-space is not complete"],
)
def test_what_is_not_complete_is_asked_for_again(
    count: int | None, code: ErrorCode, ours: LinkAddition
) -> None:
    talk = Talk(services=frozenset((ONE,)))
    talk.turn()
    talk.answer(ONE, 1, 10, count=count, code=code, ours=ours)
    talk.turn()
    assert not talk.fetch.done
    assert talk.turn(0.2) == [Send(2, "p", ())]
    talk.answer(ONE, 2, 10, 11, ours=covers("a", "b", a=True, b=True))
    talk.turn()
    assert talk.history is not None
    assert set(talk.history) == {10, 11}


def test_a_service_that_is_not_responsible_is_addressed_when_the_master_does_not_serve_clients() -> None:
    talk = Talk(services=frozenset((ONE,)))
    talk.turn()
    talk.answer(ONE, 1, code=ErrorCode.NOT_RESPONSIBLE, ours=covers(a=True))
    talk.turn()
    assert talk.turn(0.2) == [Send(2, "p", (IDS[ONE],))]
    talk.answer(ONE, 2, 10, ours=covers("a", a=True))
    talk.turn()
    assert talk.history == [10]


def test_a_service_of_another_product_completes_with_its_link() -> None:
    talk = Talk(services=frozenset((ONE, TWO)))
    talk.turn()
    talk.answer(ONE, 1, 10, complete=False)
    talk.turn()
    assert not talk.fetch.done
    talk.answer(TWO, 1, 11)
    talk.turn()
    assert talk.history == [10, 11]


def test_a_refused_request_is_not_sent_again() -> None:
    talk = Talk(services=frozenset((ONE,)))
    talk.turn()
    talk.answer(ONE, 1, code=ErrorCode.INCOMPATIBLE_VERSION)
    assert talk.turn(5.0) == []
    assert talk.turn(5.0) == []
    assert talk.fetch.refusal is ErrorCode.INCOMPATIBLE_VERSION


def test_updates_come_as_they_are_and_one_with_a_gap_makes_everything_come_again() -> None:
    talk = Talk(services=frozenset((ONE,)))
    talk.turn()
    talk.answer(ONE, 1, 10, ours=covers("a", a=True))
    talk.turn()
    talk.answer(ONE, 1, 12, ours=LinkAddition(update=True))
    assert talk.updates == [12]
    assert talk.turn(1.0) == []
    talk.answer(ONE, 1, 13, count=2, ours=LinkAddition(update=True))
    assert talk.updates == [12]
    assert talk.turn(1.0) == [Send(2, "p", (IDS[ONE],))]


def test_when_the_service_that_keeps_it_up_to_date_is_lost_another_is_asked() -> None:
    talk = kept_up_to_date()
    talk.services = frozenset((TWO,))
    assert talk.turn(1.0) == [Send(2, "p", ())]
    talk.answer(TWO, 2, 10, 11, ours=covers("a", a=True))
    talk.turn()
    assert talk.updates == [10, 11]


def test_what_a_merge_takes_back_before_the_history_is_complete_is_no_part_of_it() -> None:
    talk = Talk("p", "q", services=frozenset((ONE,)))
    talk.turn()
    talk.answer(ONE, 1, 10, 11, ours=covers("a", a=True))
    exchange = talk.fetch.exchange(1)
    assert exchange is not None
    exchange.part(ONE, 1, make_sample(50, NO_WRITER, UNREGISTER, b"k", b""), talk.now, exact=True)
    talk.answer(ONE, 1, 12, count=2, ours=LinkAddition(update=True))
    talk.answer(ONE, 2, ours=covers("a", a=True))
    talk.turn()
    assert (talk.history, talk.updates) == ([12], [])


@pytest.mark.parametrize("is_silent", [False, True])
def test_everything_is_asked_for_again_when_something_may_have_been_missed(is_silent: bool) -> None:
    """Who kept the reader up to date is asked, master or not; if it does not answer, everybody."""
    talk = kept_up_to_date()
    assert talk.turn(1.0) == []
    talk.fetch.ask_again()
    assert talk.turn(1.0) == [Send(2, "p", (IDS[ONE],))]
    if is_silent:
        assert talk.turn(HOLD_S + GRACE_S) == []
        assert talk.turn(PAUSE_S) == [Send(3, "p", ())]
    talk.answer(TWO if is_silent else ONE, 3 if is_silent else 2, 10, 11, ours=covers("a", a=True))
    assert talk.turn(1.0) == []
    assert talk.updates == [10, 11]
    assert talk.history == [10]


def test_who_was_lost_while_everything_is_asked_for_again_is_not_waited_for() -> None:
    talk = kept_up_to_date()
    talk.fetch.ask_again()
    talk.services = frozenset((TWO,))
    assert talk.turn(1.0) == [Send(2, "p", ())]


def test_a_part_of_history_is_not_kept_up_to_date() -> None:
    talk = Talk(followed=False, services=frozenset((ONE,)))
    talk.turn()
    talk.answer(ONE, 1, 10, ours=covers("a", a=True))
    talk.turn()
    talk.services = frozenset((TWO,))
    assert talk.turn(5.0) == []


def test_nothing_is_asked_while_nobody_is_there() -> None:
    talk = Talk(services=frozenset())
    assert talk.turn() == []
    talk.services = frozenset((ONE,))
    assert talk.turn(0.1) == [Send(1, "p", ())]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (HistoryLimits(), "a1 a2 a3 a4 a5 b6 b7 c8"),
        (HistoryLimits(start_ns=3, end_ns=6), "a3 a4 a5 b6"),
        (HistoryLimits(max_samples_per_instance=1), "a5 b7 c8"),
        (HistoryLimits(max_instances=2), "b6 b7 c8"),
        (HistoryLimits(max_samples=3), "b6 b7 c8"),
        (HistoryLimits(max_samples=2, max_samples_per_instance=1), "b7 c8"),
        (HistoryLimits(end_ns=7, max_instances=1), "b6 b7"),
        (HistoryLimits(max_samples=0), ""),
        (HistoryLimits(max_instances=0), ""),
        (HistoryLimits(max_samples_per_instance=0), ""),
    ],
)
def test_limits_keep_the_newest(limits: HistoryLimits, expected: str) -> None:
    names = ["a1", "a2", "a3", "a4", "a5", "b6", "b7", "c8"]
    samples = [sample(int(name[1]), name[0].encode()) for name in names]
    got = " ".join(f"{one.key.decode()}{one.source_time_ns}" for one in limits.select(reversed(samples)))
    assert " ".join(sorted(got.split())) == expected
    assert got.split() == sorted(got.split(), key=lambda name: (got.index(name[0]), name))


@hypothesis.given(
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from([b"a", b"b"])), max_size=20, unique=True),
    st.integers(-1, 4),
    st.integers(0, 20),
)
def test_services_may_limit_samples_of_an_instance_before_the_client_does(
    made: list[tuple[int, bytes]], each: int, cut: int
) -> None:
    samples = [sample(time_ns, key) for time_ns, key in made]
    limits = HistoryLimits(max_samples_per_instance=each)
    parts = [*limits.select(samples[:cut]), *limits.select(samples[cut:])]
    assert sorted(limits.select(parts)) == sorted(limits.select(samples))


def test_a_selection_that_no_service_would_accept_is_refused_with_its_code() -> None:
    with pytest.raises(InvalidTimeRange) as range_error:
        HistorySelection(start_ns=5, end_ns=4)
    assert range_error.value.code is ErrorCode.INVALID_TIME_RANGE
    with pytest.raises(InvalidLimit, match="max_samples "):
        HistorySelection(max_samples=-2)
    with pytest.raises(InvalidLimit, match="max_instances"):
        HistorySelection(max_instances=-2)
    with pytest.raises(InvalidLimit, match="max_samples_per_instance"):
        HistorySelection(max_samples_per_instance=-2)


def test_who_has_answered_and_is_gone_before_the_others_have_is_replaced() -> None:
    """It may be back when the round ends: what merges brought meanwhile it has not told us."""
    talk = Talk(services=frozenset((ONE, TWO)))
    talk.turn()
    talk.answer(ONE, 1, 10, ours=covers("a", a=True))
    talk.services = frozenset((TWO,))
    talk.turn(0.1)
    talk.services = frozenset((ONE, TWO))
    sent = talk.turn(5.0) + talk.turn()
    assert talk.history == [10]
    assert [send.number for send in sent + talk.turn()] == [2], "all is asked for again"
    talk.answer(TWO, 2, 10, 11, ours=covers("a", a=True))
    talk.answer(ONE, 2, code=ErrorCode.NOT_RESPONSIBLE, ours=covers(a=True))
    assert talk.turn() == []
    assert talk.fetch.done
