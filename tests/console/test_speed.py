from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from textual.events import Key
from textual.pilot import Pilot

from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from tests import fake
from tests.fake import SECOND_NS, START_NS, FakeFeed, ScriptedFeed, node_id
from tests.machine import count_s, slowness
from tui.app import ConsoleApp
from tui.background import STEPS_S, look_for_garbage_less_often
from tui.widgets.sheet import Sheet

NODES, SPACES, GROUPS = 200, 50, 25
KEYS = ("down", "right", "pagedown", "left", "up", "end", "home", "pageup")


@pytest.fixture(autouse=True)
def collected_as_in_a_console() -> Iterator[None]:
    """Looks at everything for garbage, 0.1 s each, would come to some of the keys by chance."""
    thresholds = gc.get_threshold()
    look_for_garbage_less_often()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def prepared(polls: int) -> ScriptedFeed:
    """What the invented system says, worked out before: its own cost is not the console's."""
    source = FakeFeed(NODES, SPACES, GROUPS, period_ns=SECOND_NS)
    steps = [(source.now_ns(), source.poll()) for _ in range(polls)]
    return ScriptedFeed(steps)


async def seconds_to_paint(app: ConsoleApp, key: str, painted: asyncio.Event) -> float:
    """From the moment a key arrives until what it changed has been written to the terminal.

    Counted is the time that this process worked: on a machine of its own that is the time that a person
    waits, and other tests that run beside this one count only as far as they slow it down.
    """
    painted.clear()
    started = time.process_time()
    app.post_message(Key(key, None))
    await asyncio.wait_for(painted.wait(), 20)
    return time.process_time() - started


def test_two_hundred_nodes_and_fifty_name_spaces_stay_responsive(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every fourth key arrives just as the console begins to take in what fifty nodes said."""
    latencies_s: list[float] = []
    counts_s: list[float] = []

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        painted = asyncio.Event()
        display = app._display

        def paint(*arguments: Any) -> None:
            display(*arguments)
            painted.set()

        monkeypatch.setattr(app, "_display", paint)
        for index in range(60):
            if index % 4 == 0:
                app.call_later(app.tick)
            latencies_s.append(await seconds_to_paint(app, KEYS[index % len(KEYS)], painted))
            counts_s.append(count_s())
            await pilot.pause()
        assert app.screen.query_one("#matrix", Sheet).size.height > 7
        assert len(app.model.nodes) == NODES

    play(prepared(24), scenario, size=(120, 40), ticks=8)
    p95_s, count_p95_s = (statistics.quantiles(each, n=20)[-1] for each in (latencies_s, counts_s))
    print(f"input to paint: median {statistics.median(latencies_s) * 1e3:.0f} ms, p95 {p95_s * 1e3:.0f} ms")
    assert p95_s < 0.1 * slowness(count_p95_s)


def test_a_tick_over_a_large_system_leaves_room_for_everything_else(play: Callable[..., None]) -> None:
    """At four ticks a second, a tick may take a quarter of its period at the very most."""
    costs_s: list[float] = []
    counts_s: list[float] = []

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        for _ in range(12):
            started = time.process_time()
            app.tick()
            costs_s.append(time.process_time() - started)
            counts_s.append(count_s())
            await pilot.pause()

    play(prepared(20), scenario, size=(120, 40), ticks=8)
    print(f"tick: median {statistics.median(costs_s) * 1e3:.0f} ms, worst {max(costs_s) * 1e3:.0f} ms")
    assert statistics.median(costs_s) < 0.0625 * slowness(statistics.median(counts_s))


def heard(number: int, time_ns: int) -> ReceivedSnapshot:
    return ReceivedSnapshot(fake.snapshot(number, time_ns=time_ns), time_ns)


def test_a_large_system_is_drawn_seldom_and_its_troubles_at_once(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What two hundred nodes say changes the screen each 1.5 s; a new verdict and a key do at once."""
    times = [START_NS + n * SECOND_NS // 4 for n in range(61)]
    steps = [(now_ns, Update(tuple(heard(n, now_ns) for n in range(1, NODES + 1)))) for now_ns in times[:41]]
    lost = (FeedNotice(NoticeKind.NODE_LOST, times[41], "", node_id(7)),)
    others = [n for n in range(1, NODES + 1) if n != 7]
    steps += [
        (now_ns, Update(tuple(heard(n, now_ns) for n in others), notices=lost)) for now_ns in times[41:]
    ]
    shown: list[int] = []

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        monkeypatch.setattr(app, "show", lambda: shown.append(app.feed.now_ns()))
        for _ in range(40):
            app.tick()
        assert 6 <= len(shown) <= 8
        shown.clear()
        while "DUL-NODE-GONE" not in {one.code.id for one in app.health.open}:
            app.tick()
        assert shown[-1] == app.feed.now_ns()

    play(ScriptedFeed(steps), scenario)


def test_a_key_is_answered_between_the_steps_of_a_long_examination(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    async def scenario(app: ConsoleApp, _pilot: Pilot[int]) -> None:
        begun, done = asyncio.Event(), asyncio.Event()

        def slow_steps(_model: SystemModel, _update: Update, _now_ns: int) -> Iterator[None]:
            for _ in range(40):
                time.sleep(STEPS_S)
                order.append("step")
                begun.set()
                yield
            done.set()

        monkeypatch.setattr(SystemModel, "steps", slow_steps)
        monkeypatch.setattr(app, "action_help", lambda: order.append("key"))
        app._background.begin(app._steps)
        await begun.wait()
        app.post_message(Key("question_mark", "?"))
        await asyncio.wait_for(done.wait(), 20)
        assert order.count("step") == 40
        assert order.index("key") < 10

    play(prepared(12), scenario, size=(120, 40), ticks=8)
