"""The console's feed and persistence services that run, are killed, and end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import pytest

from engine.runtime.past import UNKNOWN_END
from ospltool.cli.app import main
from ospltool.live.dds import LiveFeed
from ospltool.live.model import SystemModel
from ospltool.live.persistence import ReplicaState
from tests.integration.lab import Lab
from tests.redundancy.replicas import PATIENCE_S, Replicas, write

pytestmark = pytest.mark.dds

COUNT = 50


@pytest.fixture
def feed(lab: Lab) -> Iterator[LiveFeed]:
    feed = LiveFeed(lab.domain, uri=lab.uri)
    yield feed
    feed.close()


def follow(feed: LiveFeed, model: SystemModel, until: Callable[[], bool]) -> None:
    """Take in what comes, as a console does, until the condition holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not until():
        assert time.monotonic() < deadline, [one.view for one in model.persistence.ordered()]
        feed.wait(0.5)
        model.apply(feed.poll(), feed.now_ns())


def test_the_console_shows_providers_and_who_was_killed_or_has_ended(
    replicas: Replicas,
    lab: Lab,
    feed: LiveFeed,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replicas.start("a", "b")
    replicas.wait_connected("a", "b")
    writer = replicas.writer("a")
    writer.answer("done")
    write(writer, {"count": COUNT, "time": 1_000})
    model = SystemModel()

    def states() -> dict[str, ReplicaState]:
        return {one.view.name: one.state(feed.now_ns()) for one in model.persistence.ordered()}

    def paths() -> dict[str, list[tuple[str, ...]]]:
        return {
            one.view.name: [stream.view.path for stream in one.used if not stream.view.late]
            for one in model.persistence.ordered()
            if one.view.values == COUNT
        }

    follow(feed, model, lambda: paths() == {"a": [("a",)], "b": [("a", "b")]})
    follow(feed, model, lambda: states() == {"a": ReplicaState.IN_STEP, "b": ReplicaState.IN_STEP})
    monkeypatch.setenv("CYCLONEDDS_URI", lab.uri)
    assert main(["top", "--domain", str(lab.domain), "--json", "--screen", "persistence"]) == 0
    told = json.loads(capsys.readouterr().out)["data"]["persistence_services"]
    assert {one["name"]: one["state"] for one in told} == {"a": "in step", "b": "in step"}
    assert {one["name"]: one["writers"][0]["provider"] for one in told} == {"a": "original", "b": "a"}
    replicas.kill("a")
    follow(feed, model, lambda: states()["a"] is ReplicaState.GONE)
    follow(feed, model, lambda: states()["b"] is ReplicaState.ALONE)
    assert replicas.stop("b") == [0]
    follow(feed, model, lambda: states()["b"] is ReplicaState.STOPPED)
    assert bool(model.domain_lost_ns)


def test_a_console_that_comes_late_sees_what_services_have_said_and_how_their_runs_ended(
    replicas: Replicas, lab: Lab
) -> None:
    replicas.start("a", "b")
    replicas.wait_connected("a", "b")
    replicas.kill("a")
    killed_ns = time.time_ns()
    replicas.start("a")
    replicas.wait_connected("a", "b")
    feed = LiveFeed(lab.domain, uri=lab.uri)
    model = SystemModel()
    try:
        follow(feed, model, lambda: len(model.runs) == 2 and len(model.persistence) == 2)
    finally:
        feed.close()
    ids = {one.view.name: one.id for one in model.persistence.ordered()}
    assert [run.end for run in model.runs[ids["a"]]] == [UNKNOWN_END, ""]
    assert [run.end for run in model.runs[ids["b"]]] == [""]
    told = [(one.node_name, one.text) for one in model.events if one.time_ns > killed_ns]
    assert ("a", f"the previous run did not stop cleanly: {UNKNOWN_END}") in told
    assert any(one.node_name == "b" and one.time_ns < killed_ns for one in model.events)
    assert len({(one.node, one.time_ns, one.number) for one in model.events}) == len(model.events)
