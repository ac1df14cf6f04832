from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from engine.runtime.monitor import NodeEvent, NodeSnapshot
from engine.simulator.cluster import Cluster
from engine.simulator.observing import Gone, ObservedRun, Seen
from engine.simulator.options import Fault, SimulationOptions, draw
from engine.simulator.schedule import START_NS
from ospltool.cli import domains
from ospltool.cli.app import main
from ospltool.health.health import Health
from ospltool.live.expectation import NOTHING
from ospltool.live.feed import TimeTravel
from ospltool.live.model import SystemModel
from ospltool.live.simulated import SimulatedFeed
from ospltool.views.cells import UNICODE, plain
from ospltool.views.view import View
from tests.fake import SECOND_NS
from tui import panels
from tui.app import ConsoleApp
from tui.panels import ConsoleStatus

S = SECOND_NS
FAR_NS = START_NS + 3600 * S
SEED = 7
Play = Callable[..., None]
Read = Callable[[ConsoleApp], list[str]]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll goes as far as it should, however slow the machine is."""
    monkeypatch.setattr("ospltool.live.simulated.WORK_S", 60.0)


def options(*faults: Fault, seconds: float = 20) -> SimulationOptions:
    return draw(SEED, faults, nodes=3, minutes=seconds / 60)


def observed(
    given: SimulationOptions, step_s: float = 3600, work_s: float = 60
) -> tuple[list[Seen], ObservedRun]:
    run = ObservedRun(given)
    seen: list[Seen] = []
    until_ns = START_NS
    while run.result is None:
        until_ns += int(step_s * S)
        seen += run.advance(until_ns, work_s)
    return [*seen, *run.advance(until_ns, work_s)], run


class Clock:
    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


def feed_of(given: SimulationOptions) -> tuple[SimulatedFeed, Clock]:
    clock = Clock()
    return SimulatedFeed(given, title="simulation", about="A test.", clock=clock), clock


def wind(feed: SimulatedFeed, model: SystemModel, moment_ns: int) -> None:
    feed.seek(moment_ns)
    before_ns = -1
    while feed.now_ns() != before_ns:
        before_ns = feed.now_ns()
        model.apply(feed.poll(), feed.now_ns())


def test_watching_a_run_does_not_change_it() -> None:
    given = options(Fault.CRASH, Fault.PARTITION)
    alone = Cluster(given).run()
    _, run = observed(given)
    assert run.result is not None
    assert run.result.log == alone.log


@pytest.mark.parametrize("step_s", [0.3, 7.0])
def test_what_is_seen_does_not_depend_on_how_fast_it_is_watched(step_s: float) -> None:
    given = options(Fault.CRASH)
    at_once, _ = observed(given)
    by_steps, _ = observed(given, step_s)
    assert by_steps == at_once


def test_nodes_show_what_live_nodes_show() -> None:
    seen, _ = observed(options(Fault.STOP, seconds=40))
    snapshots = [one.item for one in seen if isinstance(one.item, NodeSnapshot)]
    events = [one.item for one in seen if isinstance(one.item, NodeEvent)]
    assert {one.name for one in snapshots} == {"n1", "n2", "n3"}
    assert {"lifecycle.entering-state", "simulator"} <= {one.event for one in events}
    assert any(isinstance(one.item, Gone) for one in seen)
    assert max(one.name_spaces[0].count for one in snapshots) > 0
    assert all(a.time_ns <= b.time_ns for a, b in itertools.pairwise(seen))


def test_late_joiners_of_a_simulation_are_shown() -> None:
    for seed in range(1, 20):
        given = draw(seed, (), minutes=0.5)
        if given.workload.readers:
            break
    seen, _ = observed(given)
    delivered = {d.state for one in seen if isinstance(one.item, NodeSnapshot) for d in one.item.deliveries}
    assert "done" in delivered


def test_a_feed_plays_at_its_speed_and_ends_with_a_verdict() -> None:
    feed, clock = feed_of(options())
    model = SystemModel()
    clock.now_ns += 5 * S
    model.apply(feed.poll(), feed.now_ns())
    assert feed.now_ns() == START_NS + 5 * S
    assert len(model.nodes) == 3
    feed.set_speed(100)
    for _ in range(20):
        clock.now_ns += S
        model.apply(feed.poll(), feed.now_ns())
    assert model.ended_ns == feed.timeline.end_ns == feed.now_ns()
    assert "all checkers agree" in model.caption
    assert isinstance(feed, TimeTravel)
    feed.close()


def test_a_paused_feed_stands_still() -> None:
    feed, clock = feed_of(options())
    clock.now_ns += 5 * S
    feed.poll()
    feed.pause(paused=True)
    clock.now_ns += 5 * S
    assert not feed.poll()
    assert feed.now_ns() == START_NS + 5 * S
    feed.pause(paused=False)
    clock.now_ns += S
    assert feed.poll()
    feed.close()


def test_winding_back_shows_the_same_moment_again() -> None:
    feed, _ = feed_of(options(Fault.CRASH, seconds=40))
    model = SystemModel()
    feed.pause(paused=True)
    wind(feed, model, START_NS + 12 * S)
    nodes, events = dict(model.nodes), list(model.events)
    assert events
    wind(feed, model, START_NS + 30 * S)
    assert model.nodes != nodes
    wind(feed, model, START_NS + 12 * S)
    assert model.nodes == nodes
    assert model.events == events
    feed.close()


def test_a_machine_that_is_too_slow_shows_where_the_run_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ospltool.live.simulated.WORK_S", 0.0)
    feed, clock = feed_of(options())
    model = SystemModel()
    clock.now_ns += 20 * S
    for _ in range(5):
        update = feed.poll()
        assert all(heard.heard_ns <= feed.now_ns() for heard in update.snapshots)
        model.apply(update, feed.now_ns())
    assert START_NS <= feed.now_ns() < START_NS + 20 * S
    feed.close()


@pytest.mark.parametrize(
    ("work_s", "speed", "is_slow"), [(0.0, 1.0, True), (60.0, 1.0, False), (60.0, 4.0, False)]
)
def test_a_run_that_cannot_keep_up_says_the_speed_that_it_reaches(
    monkeypatch: pytest.MonkeyPatch, work_s: float, speed: float, is_slow: bool
) -> None:
    monkeypatch.setattr("ospltool.live.simulated.WORK_S", work_s)
    feed, clock = feed_of(options(seconds=60))
    feed.set_speed(speed)
    for _ in range(8):
        feed.poll()
        clock.now_ns += S
    feed.poll()
    reached = feed.timeline.reached
    view = View(Health(SystemModel()), feed.now_ns(), UNICODE)
    status = ConsoleStatus("console", feed.title, feed.mode, timeline=feed.timeline)
    (line,) = panels.timebar_lines(view, status, 80)
    assert (reached is not None) == is_slow
    assert (f"x, cannot keep up with {speed:g}x" in plain(line)) == is_slow
    assert len(plain(line)) == 80
    if reached is not None:
        assert 0.0 <= reached < speed
        feed.pause(paused=True)
        assert feed.timeline.reached is None
    feed.close()


def test_steps_go_from_event_to_event_and_back() -> None:
    feed, _ = feed_of(options(seconds=10))
    model = SystemModel()
    moments = []
    while feed.step(1):
        model.apply(feed.poll(), feed.now_ns())
        moments.append(feed.now_ns())
        assert len(moments) < 10_000
    assert moments == sorted(set(moments))
    assert len(moments) > 10
    assert feed.step(-1)
    wind(feed, model, feed._wanted_ns)
    assert feed.now_ns() in (moments[-1], moments[-2])
    feed.seek(START_NS)
    feed.poll()
    assert not feed.step(-1)
    feed.close()


def test_marks_of_a_simulation_are_kept_in_order() -> None:
    feed, clock = feed_of(options())
    for note in ("first", "second"):
        clock.now_ns += S
        feed.poll()
        feed.mark(note)
    assert feed.notes() == ((START_NS + S, "first"), (START_NS + 2 * S, "second"))
    assert feed.timeline.marks == (START_NS + S, START_NS + 2 * S)
    feed.close()


def test_the_console_shows_a_simulation_and_its_keys_wind_it(play: Play, read_screen: Read) -> None:
    feed, clock = feed_of(options(Fault.CRASH))
    clock.now_ns += 6 * S

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        text = "\n".join(read_screen(app))
        assert "simulation" in text
        assert "● n1" in text
        await pilot.press("full_stop")
        await pilot.pause()
        assert "paused" in "\n".join(read_screen(app))
        await pilot.press("right_square_bracket")
        for _ in range(50):
            app.tick()
        await pilot.pause()
        assert "end of simulation" in read_screen(app)[0]
        await pilot.press("left_square_bracket")
        for _ in range(50):
            app.tick()
        await pilot.pause()
        assert feed.now_ns() < START_NS + 60 * S
        assert "end of simulation" not in read_screen(app)[0]

    play(feed, scenario, size=(100, 30), ticks=2)
    feed.close()


# The command.


Capture = pytest.CaptureFixture[str]


def data_of(capture: Capture, *arguments: str) -> dict[str, object]:
    assert main(["top", *arguments]) == 0
    document = json.loads(capture.readouterr().out)
    assert (document["format_version"], document["kind"]) == (1, "system")
    data: dict[str, object] = document["data"]
    return data


RUN = ("--simulate", "none", "--seed", "7", "--faults", "none", "--minutes", "0.3", "--json")


def test_top_says_a_simulated_system_as_json(capsys: Capture) -> None:
    data = data_of(capsys, *RUN)
    assert {"nodes", "groups", "alignments", "conflicts", "events", "findings", "health"} <= data.keys()
    assert "all checkers agree" in str(data["caption"])
    assert data == data_of(capsys, *RUN)


@pytest.mark.parametrize(
    "screen",
    ["overview", "node", "name-space", "alignment", "conflicts", "groups", "trace", "store", "findings"],
)
def test_top_says_each_screen_as_json(capsys: Capture, screen: str) -> None:
    data = data_of(capsys, *RUN, "--screen", screen)
    assert "time_ns" in data
    assert len(data) <= 7


def test_top_simulates_a_deployment(capsys: Capture) -> None:
    fleet = Path(__file__).parents[2] / "samples" / "three-nodes" / "fleet.toml"
    run = ("--simulate", str(fleet), "--seed", "3", "--faults", "none", "--minutes", "0.3", "--json")
    data = data_of(capsys, *run)
    assert "all checkers agree" in str(data["caption"])
    nodes = data["nodes"]
    assert isinstance(nodes, list)
    assert [node["name"] for node in nodes] == ["n1", "n2", "n3"]
    assert {space["name"] for node in nodes for space in node["name_spaces"]} == {"harbour"}


def test_a_simulated_deployment_should_have_what_its_fleet_file_says() -> None:
    fleet = Path(__file__).parents[2] / "samples" / "three-nodes" / "fleet.toml"
    feed, expected = domains.simulated(str(fleet), 3, "none", 0.3, 1.0)
    feed.close()
    assert expected.nodes == ("n1", "n2", "n3")
    assert expected.space("harbour").copies == 3
    feed, expected = domains.simulated("none", 3, "none", 0.3, 1.0)
    feed.close()
    assert expected is NOTHING


def test_top_says_a_moment_of_a_simulation_as_json(capsys: Capture) -> None:
    assert data_of(capsys, *RUN, "--at=+5")["time_ns"] == START_NS + 5 * S


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--simulate", "none", "--faults", "storm", "--json"), "no such fault: storm"),
        (("--simulate", "nothing.toml", "--json"), "nothing.toml"),
        (("--simulate", "none", "--json", "--at", "soon"), "'soon' is not a time"),
        (("--simulate", "none", "--json", "--screen", "none"), "no screen"),
        (("--simulate", "none", "--replay", "x", "--json"), "choose --replay or --simulate"),
        (("--simulate", "none", "--operate"), "--operate needs a live domain"),
        (("--screen", "groups"), "--screen and --at need --json"),
        (("--json", "--domain", "170", "--at", "+5"), "--at needs a recording or a simulation"),
    ],
)
def test_top_refuses_what_makes_no_sense(capsys: Capture, arguments: tuple[str, ...], said: str) -> None:
    assert main(["top", *arguments]) == 2
    assert said in capsys.readouterr().err
