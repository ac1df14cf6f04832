from __future__ import annotations

from ospltool.live.feed import FeedNotice, Inbox, NoticeKind, ReceivedSnapshot, Update
from tests import fake
from tests.fake import START_NS, FakeFeed, ScriptedFeed


def test_only_the_newest_snapshot_of_a_node_waits() -> None:
    inbox = Inbox()
    for moment in range(3):
        inbox.put(ReceivedSnapshot(fake.snapshot(1, time_ns=moment), moment))
    inbox.put(ReceivedSnapshot(fake.snapshot(2), 9))
    update = inbox.drain()
    assert [heard.heard_ns for heard in update.snapshots] == [2, 9]
    assert update.dropped == 0


def test_events_beyond_the_bound_drop_the_oldest_and_are_counted() -> None:
    inbox = Inbox(max_events=3)
    for number in range(5):
        inbox.put(fake.event(number, 1, START_NS, "x"))
    update = inbox.drain()
    assert [event.number for event in update.events] == [2, 3, 4]
    assert update.dropped == 2


def test_nodes_beyond_the_bound_are_refused_and_counted() -> None:
    inbox = Inbox(max_nodes=2)
    for number in (1, 2, 3, 2):
        inbox.put(ReceivedSnapshot(fake.snapshot(number), number))
    update = inbox.drain()
    assert len(update.snapshots) == 2
    assert update.dropped == 1


def test_draining_empties_but_the_dropped_total_stays() -> None:
    inbox = Inbox(max_events=1)
    inbox.put(fake.event(1, 1, 0, "a"))
    inbox.put(fake.event(2, 1, 0, "b"))
    inbox.put(FeedNotice(NoticeKind.FAULT, 0, "bad line"))
    inbox.set_caption("hello")
    first, second = inbox.drain(), inbox.drain()
    assert first.caption == "hello"
    assert first.notices
    assert not second
    assert second.caption is None
    assert second.dropped == 1


def test_a_script_gives_one_step_a_poll_and_moves_its_clock() -> None:
    feed = ScriptedFeed([(10, Update(caption="a")), (20, Update(caption="b"))])
    assert [feed.poll().caption, feed.now_ns()] == ["a", 10]
    assert [feed.poll().caption, feed.now_ns()] == ["b", 20]
    assert not feed.poll()
    assert feed.now_ns() == 20


def test_the_invented_system_is_the_same_for_the_same_seed() -> None:
    def run(seed: int) -> list[Update]:
        feed = FakeFeed(5, 3, 4, seed=seed)
        return [feed.poll() for _ in range(40)]

    assert run(1) == run(1)
    assert run(1) != run(2)
