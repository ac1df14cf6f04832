"""What happened before a console came: nodes tell it, and it survives their restarts."""

from __future__ import annotations

import collections
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.runtime.past import FILE, IN_ORDER, UNKNOWN_END
from ospltool.live.dds import LiveFeed
from ospltool.live.model import SystemModel
from ospltool.live.recorder import Recorder
from ospltool.live.replay import ReplayFeed
from tests.integration.lab import Lab

pytestmark = pytest.mark.dds

PATIENCE_S = 30.0


class Late:
    """A console that is opened now, with a recorder beside it."""

    def __init__(self, lab: Lab, recording: Path) -> None:
        self.feed = LiveFeed(lab.domain, uri=lab.uri)
        self.model = SystemModel()
        self.recorder = Recorder(recording, source="test", made_by="test")

    def follow(self, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not until():
            assert time.monotonic() < deadline, [event.text for event in self.model.events]
            self.feed.wait(0.5)
            update = self.feed.poll()
            self.recorder.write(update, self.feed.now_ns())
            self.model.apply(update, self.feed.now_ns())

    def has_pasts(self, *names: str) -> bool:
        return set(names) <= {self.model.name_of(node) for node in self.model.runs}

    def times(self, name: str, event: str) -> list[int]:
        found = [one for one in self.model.events if (one.node_name, one.event) == (name, event)]
        return [one.time_ns for one in found]

    def check_none_twice(self) -> None:
        told = collections.Counter((one.node, one.time_ns, one.number) for one in self.model.events)
        assert max(told.values()) == 1


@pytest.fixture
def late(lab: Lab, tmp_path: Path) -> Iterator[Callable[[], Late]]:
    opened: list[Late] = []

    def make() -> Late:
        opened.append(Late(lab, tmp_path / f"{len(opened)}.jsonl"))
        return opened[-1]

    yield make
    for each in opened:
        each.feed.close()
        each.recorder.close()


def test_a_console_that_comes_late_sees_kills_restarts_and_masters_with_their_times(
    lab: Lab, late: Callable[[], Late], tmp_path: Path
) -> None:
    started_ns = time.time_ns()
    lab.start_three()
    lab.seen.wait_for("n1 is master", lambda: _master(lab, "n3") == "n1")
    complete_ns = time.time_ns()
    lab.seen.wait_for(
        "its past is on the disk",
        lambda: any(
            b"lifecycle.operational" in path.read_bytes() for path in lab.home("n1").rglob("store.past")
        ),
    )
    lab.kill("n1")
    lab.seen.wait_for("n2 is master", lambda: _master(lab, "n3") == "n2")
    again_ns = lab.start_again("n1")
    back_ns = time.time_ns()
    assert lab.stop("n3") == [0]
    lab.start("n3")
    lab.seen.wait_for("n3 is complete", lambda: lab.seen.are_complete("n3"))
    opened_ns = time.time_ns()

    console = late()
    console.follow(
        lambda: (
            console.has_pasts("n1", "n2", "n3")
            and len(console.model.nodes) == 3
            and len(console.times("n1", "lifecycle.operational")) == 2
            and any(
                console.model.name_of(one.master) == "n2"
                for told in console.model.masterships.values()
                for one in told
            )
        )
    )
    first, second = console.times("n1", "lifecycle.operational")
    assert started_ns < first < complete_ns < again_ns < second < back_ns
    (lost,) = [one for one in console.times("n2", "fellow.disconnected") if one < again_ns]
    assert complete_ns < lost < again_ns
    assert len(console.times("n1", "lifecycle.run-before")) == 1
    assert not console.times("n3", "lifecycle.run-before")
    ends = {console.model.name_of(node): runs for node, runs in console.model.runs.items()}
    assert [run.end for run in ends["n1"]] == [UNKNOWN_END, ""]
    assert [run.end for run in ends["n3"]] == [IN_ORDER, ""]
    assert [run.end for run in ends["n2"]] == [""]
    assert ends["n1"][1].pid == lab.pid("n1")
    masters = [
        one for (name, _), told in console.model.masterships.items() if name == "stock" for one in told
    ]
    named = [(console.model.name_of(one.master), one.since_ns) for one in masters]
    assert "n2" in {name for name, since_ns in named if complete_ns < since_ns < again_ns}
    assert all(since_ns < opened_ns for _, since_ns in named)
    assert [one.since_ns for one in masters] == sorted(one.since_ns for one in masters)

    lab.kill("n2")
    console.follow(lambda: any(one.gone_ns for one in console.model.nodes.values()))
    console.check_none_twice()
    assert not any(one.in_order for one in console.model.nodes.values())
    _check_recording(console, tmp_path / "0.jsonl")


def _check_recording(console: Late, path: Path) -> None:
    """The recording holds the same events, once each, and the runs, also behind a jump."""
    replayed = SystemModel()
    feed = ReplayFeed(path, paused=True)
    feed.seek(feed.end_ns)
    replayed.apply(feed.poll(), feed.now_ns())
    feed.close()
    assert replayed.events == console.model.events
    assert replayed.runs == console.model.runs
    assert replayed.masterships.keys() == console.model.masterships.keys()


def _master(lab: Lab, name: str) -> str:
    node = lab.seen.node(name)
    names = {one.id: one.name for one in node.fellows} if node else {}
    return (
        next((names.get(one.master, "") for one in node.name_spaces if one.name == "stock"), "")
        if node
        else ""
    )


def test_a_node_runs_on_when_its_past_cannot_be_written(lab: Lab, late: Callable[[], Late]) -> None:
    (lab.home("n1") / "store" / f"{FILE}.new").mkdir(parents=True)
    (lab.home("n1") / "store" / FILE).mkdir()
    lab.start_three()
    console = late()
    console.follow(lambda: len(console.times("n1", "lifecycle.operational")) == 1)
    mode = (lab.home("n2") / "store" / FILE).stat().st_mode
    assert stat.S_IMODE(mode) == 0o600
    assert lab.stop("n1", "n2", "n3") == [0, 0, 0]
    assert not list((lab.home("n1") / "store" / FILE).iterdir())
