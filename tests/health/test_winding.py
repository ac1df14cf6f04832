"""What a replay shows is a function of the recording and the moment, however one came there."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from engine.runtime.monitor import NodeEvent
from ospltool.health.export import system as exported
from ospltool.health.health import Health
from ospltool.health.system import System
from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from ospltool.live.recorder import Recorder, RecordingLimits
from ospltool.live.recording import Recording
from ospltool.live.replay import ReplayFeed
from ospltool.views.cells import UNICODE
from ospltool.views.overview import hour_lines
from ospltool.views.view import View
from tests import fake
from tests.fake import SECOND_NS as S
from tests.fake import START_NS, node_id

LENGTH = 240


def troubled(seed: int) -> list[tuple[int, Update]]:
    """Return what three nodes told in LENGTH seconds: losses, silences and restarts."""
    drawn = random.Random(seed)
    told = []
    away: dict[int, int] = {}
    started = dict.fromkeys((1, 2, 3), START_NS)
    for quarter in range(LENGTH * 4):
        now_ns = START_NS + quarter * S // 4 + drawn.randrange(S // 5)
        notices, events = [], []
        for n in (1, 2, 3):
            if n in away:
                if quarter >= away[n]:
                    del away[n]
                    if drawn.random() < 0.6:
                        started[n] = now_ns
                        notices.append(FeedNotice(NoticeKind.NODE_FOUND, now_ns, "found", node_id(n)))
            elif drawn.random() < 0.004:
                away[n] = quarter + drawn.randrange(4, 200)
                if drawn.random() < 0.7:
                    notices.append(FeedNotice(NoticeKind.NODE_LOST, now_ns, "lost", node_id(n)))
        if drawn.random() < 0.05:
            events.append(fake.event(quarter, 1, now_ns - drawn.randrange(S), f"quarter {quarter}"))
        snapshots = [
            ReceivedSnapshot(
                fake.snapshot(
                    n,
                    fake.name_space("A", min({1, 2, 3} - away.keys(), default=1), count=quarter),
                    time_ns=now_ns,
                    started_ns=started[n],
                    pid=100 + started[n] // S % 1000,
                ),
                now_ns,
            )
            for n in (1, 2, 3)
            if n not in away and quarter % 4 == n
        ]
        told.append((now_ns, Update(tuple(snapshots), tuple(events), tuple(notices))))
    return told


def record(path: Path, told: list[tuple[int, Update]], **limits: int) -> None:
    recorder = Recorder(path, source="domain 7", made_by="test", limits=RecordingLimits(**limits))
    for now_ns, update in told:
        recorder.write(update, now_ns)
    recorder.close()


class Watcher:
    """One who watches a recording, and winds it."""

    def __init__(self, path: Path) -> None:
        self.clock_ns = 0
        self.feed = ReplayFeed(path, clock=lambda: self.clock_ns, paused=True)
        self.system = System((self.feed, Health))

    def settle(self) -> None:
        """Go where it was told to go."""
        while True:
            self.system.update()
            if not self.feed.is_winding:
                return

    def seek(self, moment_ns: int) -> None:
        self.feed.seek(moment_ns)
        self.settle()

    def play(self, until_ns: int, speed: float, tick_ns: int) -> None:
        """Play up to a moment, with a poll at every tick."""
        self.feed.set_speed(speed)
        self.feed.pause(paused=False)
        while (left_ns := until_ns - self.feed.now_ns()) > 0:
            self.clock_ns += min(tick_ns, int(left_ns / speed) + 1)
            self.system.update()
        self.feed.pause(paused=True)

    def shown(self) -> dict[str, Any]:
        """Return all that a console shows of the system."""
        now_ns, health = self.feed.now_ns(), self.system.health
        model = health.model
        lines = hour_lines(View(health, now_ns, UNICODE), 120, 2)
        return {
            "document": exported(health, now_ns),
            "open": health.open,
            "closed": health.closed,
            "verdict": health.verdict,
            "masters": {place: list(told) for place, told in model.masterships.items()},
            "events": model.events,
            "notices": [one for one in model.notices if one.kind is not NoticeKind.END],
            "series": {node: one.counter("stored") for node, one in model.series.items()},
            "lines": lines,
        }


def wind(watcher: Watcher, drawn: random.Random) -> None:
    """Do one of the things that an operator can do."""
    begin_ns, end_ns = watcher.feed.begin_ns, watcher.feed.end_ns
    doing = drawn.randrange(5)
    if doing == 0:
        watcher.seek(drawn.randrange(begin_ns, end_ns))
    elif doing == 1:
        watcher.seek(watcher.feed.now_ns() - drawn.randrange(90) * S)
    elif doing == 2:
        ahead_ns = drawn.randrange(60 * S)
        until_ns = min(watcher.feed.now_ns() + ahead_ns, end_ns - 1)
        watcher.play(until_ns, drawn.choice((0.5, 1, 7, 300)), drawn.randrange(S // 20, 2 * S))
    elif doing == 3:
        watcher.feed.step(drawn.choice((-1, 1)))
        watcher.settle()
    else:
        watcher.feed.seek(drawn.randrange(begin_ns, end_ns))  # and another key before it is there
        watcher.system.update()


def check_paths(path: Path, seed: int, moments: int, detours: int) -> int:
    """Come to some moments by different ways; return how many incidents were seen at them."""
    drawn = random.Random(seed)
    winder = Watcher(path)
    seen = 0
    for _ in range(moments):
        moment_ns = drawn.randrange(winder.feed.begin_ns, winder.feed.end_ns)
        direct = Watcher(path)
        direct.seek(moment_ns)
        for _ in range(detours):
            wind(winder, drawn)
        if winder.feed.now_ns() <= moment_ns and drawn.random() < 0.5:
            winder.seek(moment_ns - 20 * S)
            winder.play(moment_ns, 3, S // 4)
        winder.seek(moment_ns)
        expected, found = direct.shown(), winder.shown()
        assert direct.feed.now_ns() == winder.feed.now_ns() == moment_ns
        for part, value in expected.items():
            assert found[part] == value, (part, (moment_ns - START_NS) / S)
        seen += len(direct.system.health.open) + len(direct.system.health.closed)
        direct.feed.close()
    winder.feed.close()
    return seen


@pytest.mark.parametrize("seed", range(4))
def test_every_way_to_a_moment_shows_the_same(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "r.jsonl"
    record(path, troubled(seed))
    assert check_paths(path, seed, moments=4, detours=3) > 10


def test_every_way_through_many_blocks_shows_the_same(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    record(path, troubled(7), max_bytes=200_000)
    assert check_paths(path, 7, moments=8, detours=2) > 10


def test_what_is_over_stays_readable_and_open_ones_keep_their_age(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    record(path, troubled(1))
    watcher = Watcher(path)
    watcher.seek(watcher.feed.end_ns)
    closed = watcher.system.health.closed
    assert closed
    watcher.seek(closed[0].since_ns + S)
    watcher.seek(watcher.feed.end_ns)
    assert watcher.system.health.closed == closed
    for one in closed:
        watcher.seek(one.until_ns + 5 * S)
        assert [each for each in watcher.system.health.every if each.since_ns == one.since_ns]
    watcher.feed.close()


def test_winding_back_reads_no_more_than_from_the_last_bookmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.jsonl"
    record(path, troubled(2))
    reads: list[int] = []
    read = Recording.read

    def counted(recording: Recording, place: int) -> Any:
        reads.append(1)
        return read(recording, place)

    monkeypatch.setattr(Recording, "read", counted)
    watcher = Watcher(path)
    watcher.seek(watcher.feed.end_ns)
    whole = len(reads)
    reads.clear()
    watcher.seek(watcher.feed.end_ns - 10 * S)
    assert len(reads) < whole / 3
    watcher.feed.close()


def test_events_around_the_loss_of_a_node_are_of_it_or_name_it() -> None:
    model = SystemModel()
    health = Health(model)
    for second in range(20):
        now_ns = START_NS + second * S
        present = (1, 3) if second >= 5 else (1, 2, 3)
        heard = tuple(
            ReceivedSnapshot(fake.snapshot(n, fake.name_space("A", 1), time_ns=now_ns), now_ns)
            for n in present
        )
        lost = FeedNotice(NoticeKind.NODE_LOST, now_ns, "lost", node_id(2))
        told: tuple[NodeEvent, ...] = ()
        if second == 6:
            told = (
                fake.event(1, 1, now_ns, "Removing fellow n2"),
                fake.event(2, 3, now_ns, "Removing fellow n20"),
                fake.event(3, 1, now_ns, "Master of A is n1", event="election.confirmed-self"),
                fake.event(4, 3, now_ns, "Aligned A", event="align.completed"),
                fake.event(5, 2, now_ns, "Store is slow"),
                fake.event(6, 1, now_ns, "n2 is compared", level="FINE"),
            )
        model.apply(Update(heard, told, (lost,) if second == 6 else ()), now_ns)
        health.update(now_ns)
    found = next(one for one in health.open if one.who == "n2")
    assert [event.number for event in health.events(found)] == [1, 3, 5]
