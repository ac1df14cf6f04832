"""A watcher that stood still takes its own silence for that of no node."""

from __future__ import annotations

import msgspec
import pytest

from ospltool.cli.health import heading
from ospltool.health.health import Health
from ospltool.health.signs.snapshots import MANY_QUEUED
from ospltool.health.system import HEARING_S, MEETING_S, OwnPauses, System
from ospltool.live.arrival_times import ArrivalTimes
from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.remarks import clock
from tests import fake
from tests.fake import SECOND_NS as S
from tests.fake import START_NS, ScriptedFeed, node_id


class Watch:
    """A watch of three nodes, of which those named are heard at each of its looks."""

    def __init__(self) -> None:
        self.feed = ScriptedFeed([], title="domain 7")
        self.feed.mode = "live"
        self.system = System((self.feed, Health))
        self.system.pauses = OwnPauses(lambda: self.now_s)
        self.now_s = 0.0
        self.troubled: tuple[int, ...] = ()
        self.runs_s: dict[int, float] = {}
        self.waited: tuple[ReceivedSnapshot, ...] = ()
        self.notices: tuple[FeedNotice, ...] = ()

    def look(self, *numbers: int) -> list[str]:
        """Hear nodes now, and what waited; the disks of `troubled` ones are behind. Returns open codes."""
        now_ns = START_NS + int(self.now_s * S)
        met = {n: tuple(fake.fellow(other) for other in (1, 2, 3) if other != n) for n in numbers}
        heard = (
            fake.snapshot(
                n,
                fake.name_space("Orders", 1),
                fellows=met[n],
                counters={"queued": MANY_QUEUED if n in self.troubled else 0},
                time_ns=now_ns,
                pid=4_000 + n + round(self.runs_s.get(n, 0)),
                started_ns=START_NS + round(self.runs_s.get(n, -600) * S),
            )
            for n in numbers
        )
        received = (ReceivedSnapshot(one, now_ns) for one in heard)
        self.feed.add(now_ns, Update((*self.waited, *received), notices=self.notices))
        self.waited, self.notices = (), ()
        self.system.update()
        return sorted(one.code.id for one in self.system.health.open)

    def run(self, seconds: float, *numbers: int) -> list[str]:
        """Look every half second; returns the codes that were told in it."""
        told = []
        for _ in range(int(2 * seconds)):
            self.now_s += 0.5
            told += self.look(*numbers)
        return told


@pytest.mark.parametrize("pause_s", [3.0, 6.0, 3_600.0])
def test_the_silence_of_the_watcher_is_nobodys(pause_s: float) -> None:
    watch = Watch()
    assert watch.run(5, 1, 2, 3) == []
    watch.now_s += pause_s
    assert watch.look() == [], "it has heard nobody since"
    assert watch.run(1, 1, 2) == [], "n3 has not come yet"
    assert watch.run(5, 1, 2, 3) == []
    begin, end = clock(START_NS + 5 * S), clock(START_NS + int(5 + pause_s) * S)
    told = watch.system.pauses.news()
    assert told.startswith(f"this watch did not look from {begin} to {end} UTC ({pause_s:.1f} s)")
    assert watch.system.pauses.news() == "", "once"


def test_who_died_meanwhile_is_told_when_it_had_time_to_be_heard() -> None:
    watch = Watch()
    watch.run(5, 1, 2, 3)
    watch.now_s += 6
    assert watch.run(HEARING_S - 1, 1, 2) == []
    assert "DUL-NODE-SILENT" in watch.run(3, 1, 2)


def test_a_watcher_that_is_starved_all_the_time_still_tells() -> None:
    watch = Watch()
    watch.run(5, 1, 2, 3)
    told = []
    for _ in range(10):
        watch.now_s += 4
        told += watch.look(1, 2)
    assert "DUL-NODE-SILENT" in told


def test_what_lasts_over_a_pause_goes_on() -> None:
    watch = Watch()
    watch.troubled = (2,)
    watch.run(10, 1, 2, 3)
    (before,) = watch.system.health.open
    watch.now_s += 10
    watch.run(15, 1, 2, 3)
    (after,) = watch.system.health.every
    assert (after.key, after.since_ns, after.until_ns) == (before.key, before.since_ns, 0)


def test_what_ended_in_a_pause_ended_before_the_next_look() -> None:
    watch = Watch()
    watch.troubled = (2,)
    watch.run(10, 1, 2, 3)
    watch.now_s, watch.troubled = 20, ()
    watch.run(10, 1, 2, 3)
    (found,) = watch.system.health.closed
    assert found.ended_before
    assert START_NS + 20 * S < found.until_ns <= START_NS + int((20 + MEETING_S + 1) * S)
    now_ns = START_NS + 30 * S
    assert f"UTC to before 2026-11-21 {clock(found.until_ns)} UTC, about " in heading(found, now_ns)


def test_what_began_in_a_pause_began_before_the_next_look() -> None:
    watch = Watch()
    watch.run(10, 1, 2, 3)
    watch.now_s, watch.troubled = 20, (2,)
    watch.run(10, 1, 2, 3)
    (found,) = watch.system.health.open
    assert (found.code.id, found.began_before) == ("DUL-STORE-BEHIND", True)
    watch.troubled = ()
    watch.run(10, 1, 2, 3)
    watch.troubled = (3,)
    watch.run(10, 1, 2, 3)
    (other,) = watch.system.health.open
    assert not other.began_before


@pytest.mark.parametrize("heard_s", [0.0, 4.0], ids=["before the pause", "in the pause"])
def test_a_node_that_died_in_a_pause_died_before_the_next_look_or_after_its_last_message(
    heard_s: float,
) -> None:
    watch = Watch()
    watch.run(10, 1, 2, 3)
    if heard_s:
        at_ns = START_NS + int((10 + heard_s) * S)
        watch.feed.add(at_ns, Update((ReceivedSnapshot(fake.snapshot(3, time_ns=at_ns), at_ns),)))
    watch.now_s = 22
    watch.run(8, 1, 2)
    found = next(one for one in watch.system.health.open if one.who == "n3")
    assert found.began_before is not bool(heard_s)
    if heard_s:
        assert found.since_ns == at_ns
    else:
        assert START_NS + 22 * S <= found.since_ns <= START_NS + int((22 + HEARING_S + 1) * S)


@pytest.mark.parametrize("loss", ["none", "alone", "with snapshots"])
@pytest.mark.parametrize("again_s", [14.0, 30.0], ids=["in the pause", "after it"])
def test_a_node_that_another_process_speaks_for_after_a_pause_was_started_again(
    again_s: float, loss: str
) -> None:
    """Also if Cyclone DDS has lost all participants in the pause, as their leases have ended.

    That is known before the first snapshot after the pause, or comes with it.
    """
    watch = Watch()
    watch.run(10, 1, 2, 3)
    watch.now_s, watch.runs_s = 22, {3: again_s}
    resumed_ns, heard_ns = START_NS + 22 * S, START_NS + round(again_s * S)
    if loss != "none":
        lost = (FeedNotice(NoticeKind.NODE_LOST, resumed_ns, "", node_id(n)) for n in (1, 2, 3))
        kinds = (NoticeKind.DOMAIN_LOST, NoticeKind.DOMAIN_FOUND)
        watch.notices = (*lost, *(FeedNotice(kind, resumed_ns, "") for kind in kinds))
    if loss == "alone":
        watch.look()
    if again_s > watch.now_s:
        assert watch.run(8, 1, 2)[-1] in ("DUL-NODE-GONE", "DUL-NODE-SILENT")
    elif loss == "none":  # what waited is dated by when it was sent
        shown = fake.snapshot(3, time_ns=heard_ns, pid=4_017, started_ns=heard_ns)
        watch.waited = (ReceivedSnapshot(shown, heard_ns),)
        watch.look()
    assert "DUL-NODE-RESTARTED" in watch.run(8, 1, 2, 3)
    watch.run(4, 1, 2, 3)
    assert watch.run(0.5, 1, 2, 3) == []
    (told,) = watch.system.health.every
    assert (told.code.id, told.who) == ("DUL-NODE-RESTARTED", "n3")


class Takes:
    """A reader of snapshots that takes them when the test says so."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.arrivals = ArrivalTimes(lambda: self.now_s)

    def take(self, now_s: float, *sent_s: float) -> list[float]:
        """Take snapshots that n1 sent, by its clock, which is an hour ahead; returns when they were heard."""
        self.now_s = now_s
        now_ns = START_NS + round(now_s * S)
        self.arrivals.note_reading(now_ns)
        shown = [
            msgspec.structs.replace(fake.snapshot(1), time_ns=START_NS + round((3_600 + one) * S))
            for one in sent_s
        ]
        return [(self.arrivals.heard_ns(one, now_ns) - START_NS) / S for one in shown]


def test_what_waited_was_heard_when_its_node_sent_it() -> None:
    reader = Takes()
    for second in range(5):
        assert reader.take(second, second - 0.25) == [second]
    assert reader.take(15.0, 1.0, 7.0, 8.0) == [4.0, 7.25, 8.25], "never before the pause"
    assert reader.take(15.5, 15.5) == [15.5], "never after it is taken"
    for second in range(16, 20):
        reader.take(second, second - 0.25)
    assert reader.take(20.0, 18.0) == [20.0], "nothing waits any more"


def test_what_a_node_sent_that_was_never_heard_before_is_heard_when_it_is_taken() -> None:
    reader = Takes()
    reader.take(0.0)
    assert reader.take(10.0, 5.0) == [10.0]
