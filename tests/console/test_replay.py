from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.runtime.monitor import NodeEvent
from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from ospltool.live.recorder import Recorder, RecordingLimits
from ospltool.live.recording import RecordingFault
from ospltool.live.replay import ReplayFeed
from ospltool.live.supervision import LocalView, SupervisorReport
from tests import fake
from tests.fake import SECOND_NS, START_NS, node_id

S = SECOND_NS


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns

    def forward(self, seconds: float) -> None:
        self.now_ns += int(seconds * S)


def at(seconds: float) -> int:
    return START_NS + int(seconds * S)


def updates(seconds: int, events_every: int = 10) -> list[tuple[int, Update]]:
    """Two nodes for so many seconds: counts that say the second, an event now and then, one loss."""
    told = []
    for second in range(seconds):
        now_ns = at(second)
        nodes = tuple(
            ReceivedSnapshot(fake.snapshot(n, fake.name_space("A", 1, count=second), time_ns=now_ns), now_ns)
            for n in (1, 2)
        )
        events: tuple[NodeEvent, ...] = ()
        if second % events_every == 5:
            events = (fake.event(second, 1, now_ns, f"second {second}"),)
        told.append((now_ns, Update(nodes[: 1 if 70 <= second < 90 else 2], events)))
        if second == 70:
            told.append(
                (now_ns, Update(notices=(FeedNotice(NoticeKind.NODE_LOST, now_ns, "x", node_id(2)),)))
            )
    return told


def record(path: Path, told: list[tuple[int, Update]], limits: RecordingLimits | None = None) -> Recorder:
    recorder = Recorder(path, source="domain 7", made_by="test", limits=limits)
    for now_ns, update in told:
        recorder.write(update, now_ns)
    recorder.close()
    return recorder


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def replay(tmp_path: Path, clock: Clock) -> Callable[..., ReplayFeed]:
    """A recording of five minutes, played by a clock that stands."""

    def make(**options: float) -> ReplayFeed:
        path = tmp_path / "r.jsonl"
        if not path.exists():
            record(path, updates(300))
        return ReplayFeed(path, clock=clock, **options)  # type: ignore[arg-type]  # speed and paused

    return make


class Reader:
    """A console's model over a replay."""

    def __init__(self, feed: ReplayFeed) -> None:
        self.feed = feed
        self.model = SystemModel()
        self.kinds: list[NoticeKind] = []
        self.poll()

    def poll(self) -> None:
        for _ in range(50):
            update = self.feed.poll()
            self.model.apply(update, self.feed.now_ns())
            self.kinds += [notice.kind for notice in update.notices]
            if not update:
                return

    @property
    def count(self) -> int:
        return self.model.nodes[node_id(1)].name_spaces["A"].count


def test_a_recording_plays_as_it_happened(replay: Callable[..., ReplayFeed], clock: Clock) -> None:
    reader = Reader(replay())
    assert (reader.count, reader.feed.now_ns()) == (0, START_NS)
    for second in (1, 2, 60, 61, 119):
        clock.now_ns = second * S
        reader.poll()
        assert (reader.count, reader.feed.now_ns()) == (second, at(second))
    assert [event.number for event in reader.model.events] == list(range(5, 119, 10))
    reader.feed.close()


def test_a_lost_node_is_lost_in_the_replay_and_found_again(
    replay: Callable[..., ReplayFeed], clock: Clock
) -> None:
    reader = Reader(replay())
    for second, gone in ((69, False), (75, True), (95, False)):
        clock.now_ns = second * S
        reader.poll()
        assert bool(reader.model.nodes[node_id(2)].gone_ns) is gone
    reader.feed.close()


def test_a_recording_without_its_beginning_knows_the_link_and_what_this_machine_knew(
    tmp_path: Path, clock: Clock
) -> None:
    """Both were told once, in a block that the recorder has removed since."""
    known = LocalView({"n1": SupervisorReport("its supervisor says: killed")}, ("10.0.0.1",))
    lost = FeedNotice(NoticeKind.LINK_LOST, at(1), "interface e0 is down")
    told = updates(130)
    told.insert(2, (at(1), Update(notices=(lost,), local=known)))
    told.append((at(129), Update(notices=(FeedNotice(NoticeKind.LINK_FOUND, at(129), ""),))))
    record(tmp_path / "r.jsonl", told, RecordingLimits(max_bytes=80_000))
    reader = Reader(ReplayFeed(tmp_path / "r.jsonl", clock=clock, paused=True))
    assert reader.feed.begin_ns > at(2)
    reader.poll()
    assert (reader.model.link_lost, reader.model.local) == (lost, known)
    reader.feed.seek(at(129))
    reader.poll()
    assert (reader.model.link_lost, reader.model.local) == (None, known)
    reader.feed.close()


def test_speed_counts_from_where_we_stand(replay: Callable[..., ReplayFeed], clock: Clock) -> None:
    reader = Reader(replay(speed=10))
    clock.forward(3)
    reader.poll()
    assert reader.count == 30
    reader.feed.set_speed(0.5)
    clock.forward(10)
    reader.poll()
    assert (reader.count, reader.feed.now_ns()) == (35, at(35))
    reader.feed.close()


def test_a_pause_stands_still(replay: Callable[..., ReplayFeed], clock: Clock) -> None:
    reader = Reader(replay())
    clock.forward(7)
    reader.poll()
    reader.feed.pause(paused=True)
    clock.forward(100)
    reader.poll()
    assert (reader.count, reader.feed.now_ns(), reader.feed.timeline.paused) == (7, at(7), True)
    reader.feed.pause(paused=False)
    clock.forward(1)
    reader.poll()
    assert reader.count == 8
    reader.feed.close()


@pytest.mark.parametrize("second", [0, 1, 59, 60, 61, 75, 130, 299])
def test_a_jump_shows_what_was_there_then(
    replay: Callable[..., ReplayFeed], clock: Clock, second: int
) -> None:
    played, jumped = Reader(replay()), Reader(replay(paused=True))
    clock.now_ns = second * S
    played.poll()
    jumped.feed.seek(at(200))
    jumped.poll()
    jumped.feed.seek(at(second))
    jumped.poll()
    assert jumped.feed.now_ns() == at(second)
    assert {k: n.snapshot for k, n in jumped.model.nodes.items()} == {
        k: n.snapshot for k, n in played.model.nodes.items()
    }
    assert [n.gone_ns for n in jumped.model.nodes.values()] == [
        n.gone_ns for n in played.model.nodes.values()
    ]
    assert jumped.model.events == played.model.events
    played.feed.close()
    jumped.feed.close()


def test_a_jump_beyond_an_end_stops_there(replay: Callable[..., ReplayFeed]) -> None:
    reader = Reader(replay(paused=True))
    feed = reader.feed
    feed.seek(at(10**6))
    reader.poll()
    assert feed.now_ns() == feed.timeline.end_ns == at(299)
    feed.seek(0)
    reader.poll()
    assert feed.now_ns() == feed.timeline.begin_ns == START_NS
    feed.close()


def test_histories_lead_up_to_the_moment_of_a_jump(replay: Callable[..., ReplayFeed]) -> None:
    reader = Reader(replay(paused=True))
    reader.feed.seek(at(250))
    reader.poll()
    points = reader.model.series[node_id(1)].counter("stored")
    assert points[0][0] == START_NS
    assert points[-1][0] == at(250)
    assert len(points) == 251
    reader.feed.close()


def test_steps_go_from_event_to_event_both_ways(replay: Callable[..., ReplayFeed]) -> None:
    reader = Reader(replay())
    seen = []
    for direction in (1, 1, 1, 1, 1, 1, 1, -1, -1, 1, -1, -1, -1, -1, -1):
        assert reader.feed.step(direction)
        reader.poll()
        seen.append((reader.feed.now_ns() - START_NS) // S)
        assert reader.model.events[-1].number == seen[-1]
    assert seen == [5, 15, 25, 35, 45, 55, 65, 55, 45, 55, 45, 35, 25, 15, 5]
    reader.feed.close()


def test_a_step_beyond_the_events_says_so(replay: Callable[..., ReplayFeed]) -> None:
    feed = replay()
    assert not feed.step(-1)
    feed.seek(at(299))
    assert not feed.step(1)
    feed.close()


def test_the_end_is_told_once_and_time_stops_there(replay: Callable[..., ReplayFeed], clock: Clock) -> None:
    reader = Reader(replay())
    clock.forward(5000)
    reader.poll()
    clock.forward(5000)
    reader.poll()
    assert reader.kinds.count(NoticeKind.END) == 1
    assert reader.feed.now_ns() == at(299)
    assert reader.count == 299
    reader.feed.close()


def test_snapshots_that_come_too_soon_are_thinned_and_counted(tmp_path: Path, clock: Clock) -> None:
    told = [
        (at(t / 4), Update((ReceivedSnapshot(fake.snapshot(1, time_ns=t), at(t / 4)),))) for t in range(40)
    ]
    recorder = record(tmp_path / "r.jsonl", told)
    assert recorder.tally.thinned == 30
    fine = record(tmp_path / "all.jsonl", told, RecordingLimits(every_ns=0))
    assert fine.tally.thinned == 0


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingFault, match="No such file"):
        ReplayFeed(tmp_path / "none.jsonl")


def test_a_directory_that_can_not_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingFault, match="No such file"):
        Recorder(tmp_path / "none" / "r.jsonl", source="x", made_by="y")


def test_an_empty_file_is_no_recording(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "r.jsonl").write_bytes(b"")
    with pytest.raises(RecordingFault, match="the file is empty"):
        ReplayFeed(tmp_path / "r.jsonl", clock=clock)


def test_after_a_jump_the_heartbeats_before_it_are_where_they_were(tmp_path: Path) -> None:
    """States that a jump leaves out look like the silence of a node."""
    path = tmp_path / "r.jsonl"
    record(path, updates(60)).close()
    feed = ReplayFeed(path, paused=True)
    try:
        feed.seek(at(50))
        model = SystemModel()
        model.apply(feed.poll(), feed.now_ns())
        gaps = model.series[node_id(1)].silences_s(at(3) - at(2), 8, feed.now_ns())
    finally:
        feed.close()
    assert gaps == [1.0] * 8


def test_marks_are_told_with_the_timeline(replay: Callable[..., ReplayFeed]) -> None:
    reader = Reader(replay(paused=True))
    feed = reader.feed
    feed.seek(at(100))
    reader.poll()
    feed.mark("master changes here")
    feed.seek(at(50))
    reader.poll()
    feed.mark("")
    assert feed.timeline.marks == (at(50), at(100))
    feed.close()
    again = replay()
    assert again.notes() == ((at(50), ""), (at(100), "master changes here"))
    again.close()


LIMITS = RecordingLimits(max_bytes=200_000)


def test_a_recording_is_bounded_and_its_rest_can_be_read(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "r.jsonl"
    record(path, updates(1500), LIMITS)
    assert path.stat().st_size < 1.3 * LIMITS.max_bytes
    reader = Reader(ReplayFeed(path, clock=clock, paused=True))
    assert reader.feed.begin_ns > START_NS
    for second in (1460, 1499, 1450):
        reader.feed.seek(at(second))
        reader.poll()
        assert reader.count == second
        assert len(reader.model.nodes) == 2
    assert not reader.model.dropped
    reader.feed.close()


def test_a_running_recording_is_read_up_to_the_moment_when_it_was_opened(
    tmp_path: Path, clock: Clock
) -> None:
    """The recorder goes on, and removes what is oldest."""
    path, told = tmp_path / "r.jsonl", updates(1500)
    half = next(index for index, (now_ns, _) in enumerate(told) if now_ns == at(900))
    recorder = Recorder(path, source="domain 7", made_by="test", limits=LIMITS)
    for now_ns, update in told[:half]:
        recorder.write(update, now_ns)
    reader = Reader(ReplayFeed(path, clock=clock, paused=True))
    for now_ns, update in told[half:]:
        recorder.write(update, now_ns)
    for second in (1499, 1400):
        reader.feed.seek(at(second))
        reader.poll()
        assert reader.feed.now_ns() == at(899), "that was its end"
    assert not reader.model.dropped
    assert NoticeKind.FAULT not in reader.kinds
    reader.feed.close()
    recorder.close()


def test_a_recording_that_is_there_is_continued(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "r.jsonl"
    record(path, updates(30))
    record(path, [one for one in updates(130) if one[0] >= at(100)])
    reader = Reader(ReplayFeed(path, clock=clock, paused=True))
    for second, count in ((129, 129), (20, 20), (60, 29), (110, 110)):
        reader.feed.seek(at(second))
        reader.poll()
        assert reader.count == count
    reader.feed.close()


def test_a_disk_that_refuses_is_said_and_the_recording_goes_on_later(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "r.jsonl"
    recorder = Recorder(path, source="x", made_by="test")
    told = updates(60)
    for now_ns, update in told[:10]:
        recorder.write(update, now_ns)
    file = recorder._file
    assert file is not None
    (most,) = file.execute("PRAGMA max_page_count").fetchone()
    file.execute("PRAGMA max_page_count = 1")  # no more than there are
    for now_ns, update in told[10:20]:
        if not recorder.problem:
            recorder.write(update, now_ns)
    assert "database or disk is full" in recorder.problem
    file.execute(f"PRAGMA max_page_count = {most}")
    for now_ns, update in told[20:]:
        recorder.write(update, now_ns)
    assert recorder.problem == ""
    assert recorder.tally.lost > 2
    recorder.close()
    reader = Reader(ReplayFeed(path, clock=clock, paused=True))
    for second in (55, 9):
        reader.feed.seek(at(second))
        reader.poll()
        assert reader.count == second
    reader.feed.close()


@pytest.mark.parametrize("content", [b"<?xml version='1.0'?>\n", b"\x00\x01\x02", b"{}\n" * 40])
def test_a_file_that_is_no_recording_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "r.jsonl").write_bytes(content)
    with pytest.raises(RecordingFault, match=r"r\.jsonl: file is not a database"):
        ReplayFeed(tmp_path / "r.jsonl")
