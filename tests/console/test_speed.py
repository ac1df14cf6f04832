from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from textual.pilot import Pilot

from ospltool.live.fake import SECOND_NS, FakeFeed
from tui.app import ConsoleApp
from tui.widgets.grid import Grid

NODES, SPACES, GROUPS = 200, 50, 25


def test_two_hundred_nodes_and_fifty_name_spaces_stay_responsive(play: Callable[..., None]) -> None:
    """From a key to the painted screen, while the whole system keeps changing."""
    latencies_s: list[float] = []

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        grid = app.screen.query_one(Grid)
        keys = ["down", "right", "pagedown", "left", "up", "end", "home", "pageup"]
        for index in range(60):
            app.tick()
            key = keys[index % len(keys)]
            started = time.perf_counter()
            await app._press_keys([key])
            await pilot.pause()
            app.screen._compositor.render_strips(app.size)
            latencies_s.append(time.perf_counter() - started)
        assert grid.size.height > 10
        assert len(app.model.nodes) == NODES

    play(FakeFeed(NODES, SPACES, GROUPS), scenario, size=(120, 40), ticks=8)
    slowest_but_5_percent_s = statistics.quantiles(latencies_s, n=20)[-1]
    print(
        f"input to paint: median {statistics.median(latencies_s) * 1e3:.0f} ms, "
        f"p95 {slowest_but_5_percent_s * 1e3:.0f} ms"
    )
    assert slowest_but_5_percent_s < 0.1


def test_a_tick_over_a_large_system_leaves_room_for_everything_else(play: Callable[..., None]) -> None:
    """At four ticks a second, a tick may take a quarter of its period at the very most."""
    costs_s: list[float] = []

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        for _ in range(12):
            update = app.feed.poll()
            started = time.perf_counter()
            app.model.apply(update, app.feed.now_ns())
            app.show()
            await pilot.pause()
            costs_s.append(time.perf_counter() - started)

    play(FakeFeed(NODES, SPACES, GROUPS, period_ns=SECOND_NS), scenario, size=(120, 40), ticks=8)
    print(f"tick: median {statistics.median(costs_s) * 1e3:.0f} ms, worst {max(costs_s) * 1e3:.0f} ms")
    assert statistics.median(costs_s) < 0.0625
