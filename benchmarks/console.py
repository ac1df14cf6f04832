"""The console over a large system: how long a key takes, what standing by costs, whether memory grows.

Keys are measured in a terminal by the clock (`benchmarks.terminal`), and besides without one: then what is
written to a terminal is thrown away, and everything before that is as it is.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from textual.events import Key
from textual.pilot import Pilot

from benchmarks import growth, terminal
from benchmarks.rows import Bar, Is, Row
from engine.runtime import monitor
from ospltool.health.health import Health
from ospltool.health.system import System
from ospltool.live.feed import Feed
from ospltool.live.recorder import Recorder
from ospltool.live.replay import ReplayFeed
from tests.fake import SECOND_NS, FakeFeed, ScriptedFeed
from tui.app import TICK_S, ConsoleApp
from tui.background import look_for_garbage_less_often

AREA: Final = "console"
NODES, SPACES, GROUPS_OF_A_NODE = 200, 50, 25
SIZE: Final = (120, 40)
KEYS: Final = ("down", "right", "pagedown", "left", "up", "end", "home", "pageup")
SCREENS: Final = "123456789"
TYPED_ROUNDS: Final = 5
"""Of eight moves of the cursor and nine screens each."""
IDLE_S: Final = 10.0
HOUR_S: Final = 3600
RECORDED_NODES, RECORDED_SPACES, RECORDED_GROUPS = 20, 10, 10
RECORDED_EVERY_S: Final = 5
SETTLED_S, WOUND_S = 10, 30
"""Parts of a recording: every node is seen, and the part over which one jumps."""
FORWARD_S: Final = 10
"""The part of the recording that goes by in one tick."""

Scenario = Callable[[ConsoleApp, Pilot[int]], Awaitable[None]]


def run(repeat: int) -> list[Row]:
    """All measurements."""
    keys: list[float] = []
    keys_work: list[float] = []
    screens: list[float] = []
    screens_work: list[float] = []
    first: list[float] = []
    idle: list[float] = []
    for _ in range(repeat):
        latencies = key_latencies_s(KEYS * 12)
        keys.append(1e3 * percentile_95([waited for waited, _ in latencies]))
        keys_work.append(1e3 * percentile_95([worked for _, worked in latencies]))
        visits = key_latencies_s(tuple(SCREENS) * 6)
        first.append(1e3 * max(waited for waited, _ in visits[: len(SCREENS)]))
        later = visits[len(SCREENS) :]
        screens.append(1e3 * percentile_95([waited for waited, _ in later]))
        screens_work.append(1e3 * percentile_95([worked for _, worked in later]))
        idle.append(100 * idle_share())
    typed = [terminal.latencies(TYPED_ROUNDS, seed) for seed in range(repeat)]
    return [
        *_rows_of_typing(typed),
        *_rows_of_keys(keys, keys_work, screens, screens_work, first),
        *_rows_of_idling(idle, repeat),
        *growth.rows(AREA, repeat),
    ]


def _rows_of_typing(typed: list[terminal.Latencies]) -> list[Row]:
    """By the clock, in a terminal; and without the time in which other processes had the processors."""

    def row(name: str, values: list[list[float]], remark: str = "", bar: Bar | None = None) -> Row:
        return Row(
            AREA, name, "ms", tuple(1e3 * percentile_95(each) for each in values), bar=bar, remark=remark
        )

    def clock(kind: list[list[terminal.Latency]]) -> list[list[float]]:
        return [[one.clock_s for one in each] for each in kind]

    def worked(kind: list[list[terminal.Latency]]) -> list[list[float]]:
        return [[one.worked_s for one in each] for each in kind]

    def own(kind: list[list[terminal.Latency]]) -> list[list[float]]:
        return [[one.own_s for one in each] for each in kind]

    moves, screens, empty = ([getattr(one, kind) for one in typed] for kind in ("moves", "screens", "empty"))
    bar, idle = Bar(Is.AT_MOST, 50), "less the time in which it waited for a processor"
    nothing = row("a key in an empty Textual program, p95", clock(empty), "the same machine, in turns")
    nothing_own = row("that on an idle machine, p95", own(empty), idle)
    return [
        nothing,
        nothing_own,
        row("a key in a terminal, p95", clock(moves), "until its last byte has arrived", bar).against(
            nothing
        ),
        row("that key on an idle machine, p95", own(moves), idle, bar).against(nothing_own),
        row("processor time of that key, p95", worked(moves), "with all that happens besides", bar),
        row("another screen in a terminal, p95", clock(screens), "keys 1 to 9").against(nothing),
        row("that screen on an idle machine, p95", own(screens), idle).against(nothing_own),
        row("processor time of that screen, p95", worked(screens), "with all that happens besides"),
    ]


def _rows_of_keys(
    keys: list[float],
    keys_work: list[float],
    screens: list[float],
    screens_work: list[float],
    first: list[float],
) -> list[Row]:
    system = f"{NODES} nodes, {SPACES} name-spaces, {NODES * GROUPS_OF_A_NODE:,} groups"
    return [
        Row(
            AREA,
            "key to paint, p95",
            "ms",
            tuple(keys),
            bar=Bar(Is.AT_MOST, 100),
            remark=f"{system}; overview",
        ),
        Row(
            AREA,
            "the work of it, p95",
            "ms",
            tuple(keys_work),
            bar=Bar(Is.AT_MOST, 50),
            remark="what an idle machine would wait",
        ),
        Row(
            AREA,
            "to another screen, p95",
            "ms",
            tuple(screens),
            bar=Bar(Is.AT_MOST, 100),
            remark="keys 1 to 9",
        ),
        Row(AREA, "the work of that, p95", "ms", tuple(screens_work)),
        Row(
            AREA,
            "to a screen for the first time, worst",
            "ms",
            tuple(first),
            remark="it is made, numpy is loaded",
        ),
    ]


def _rows_of_idling(idle: list[float], repeat: int) -> list[Row]:
    decode_ms = [1e3 * decode_s() for _ in range(repeat)]
    grown = [memory_growth() for _ in range(min(repeat, 1))]
    replayed = replay_shares(repeat)
    return [
        Row(
            AREA,
            "standing by",
            "% of a core",
            tuple(idle),
            bar=Bar(Is.AT_MOST, 4),
            remark="every node shows itself every two seconds, as with the default heartbeat",
        ),
        Row(
            AREA,
            "one node's message to its value",
            "ms",
            tuple(decode_ms),
            remark="paid by the live feed besides",
        ),
        Row(
            AREA,
            "replay, processor time of a recorded second",
            "ms",
            tuple(1e3 * share for share in replayed),
            bar=Bar(Is.AT_MOST, 50),
            remark="of the same system; a jump over half a minute",
        ),
        Row(
            AREA,
            "memory grown, minute 20 to 60",
            "%",
            tuple(grown),
            bar=Bar(Is.AT_MOST, 5),
            remark=f"an hour of {RECORDED_NODES} nodes, a picture of each every {RECORDED_EVERY_S} s, "
            f"{FORWARD_S / TICK_S:.0f} times as fast",
        ),
    ]


def percentile_95(values: list[float]) -> float:
    """The value that one in twenty exceeds."""
    return statistics.quantiles(values, n=20)[-1]


def prepared(polls: int, period_ns: int = SECOND_NS) -> ScriptedFeed:
    """What the invented system says, worked out before: its own cost is not the console's.

    Nor is looking through all of it for cyclic garbage: a console never holds that much at one time.
    """
    source = FakeFeed(NODES, SPACES, GROUPS_OF_A_NODE, period_ns=period_ns)
    feed = ScriptedFeed([(source.now_ns(), source.poll()) for _ in range(polls)])
    gc.collect()
    look_for_garbage_less_often()
    return feed


def play(feed: Feed, scenario: Scenario, *, timer: bool = False) -> None:
    """Run a console without a terminal, and a scenario on it."""

    async def session() -> None:
        app = ConsoleApp(feed, title="ospltool", timer=timer)
        async with app.run_test(size=SIZE) as pilot:
            await pilot.pause()
            for _ in range(8):
                app.tick()
            await pilot.pause()
            await scenario(app, pilot)

    asyncio.run(session())


def key_latencies_s(keys: tuple[str, ...]) -> list[tuple[float, float]]:
    """Seconds waited and worked from each key until what it changed has been drawn.

    Every fourth key arrives together with what fifty nodes said.
    """
    latencies: list[tuple[float, float]] = []

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        painted = asyncio.Event()
        display = app._display

        def paint(*arguments: Any) -> None:
            display(*arguments)
            painted.set()

        app._display = paint  # type: ignore[method-assign, assignment]  # the moment at which a terminal would get it
        for index, key in enumerate(keys):
            if index % 4 == 0:
                app.call_later(app.tick)
            painted.clear()
            started, worked = time.perf_counter(), time.process_time()
            app.post_message(Key(key, None))
            await asyncio.wait_for(painted.wait(), 20)
            latencies.append((time.perf_counter() - started, time.process_time() - worked))
            await pilot.pause()
            if index + 1 == len(SCREENS):
                await app.workers.wait_for_complete()  # findings, which are worked out once

    play(prepared(len(keys) // 4 + 16), scenario)
    return latencies


def idle_share() -> float:
    """The share of a core that the console takes while nobody touches it."""
    shares: list[float] = []

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        started, worked = time.perf_counter(), time.process_time()
        await asyncio.sleep(IDLE_S)
        shares.append((time.process_time() - worked) / (time.perf_counter() - started))

    play(prepared(round(IDLE_S / TICK_S) + 16, 2 * SECOND_NS), scenario, timer=True)
    return shares[0]


def decode_s() -> float:
    """The time from the bytes of one node's message to its value."""
    source = FakeFeed(NODES, SPACES, GROUPS_OF_A_NODE)
    heard = [one for _ in range(4) for one in source.poll().snapshots][:100]
    payloads = [monitor.encode(one.snapshot) for one in heard]
    started = time.process_time()
    for payload in payloads:
        monitor.decode(payload)
    return (time.process_time() - started) / len(payloads)


def replay_shares(repeat: int) -> list[float]:
    """Processor seconds for each second that a recording is wound on."""
    with tempfile.TemporaryDirectory(prefix="ospltool-console-") as directory:
        path = Path(directory) / "minute.rec"
        source = FakeFeed(NODES, SPACES, GROUPS_OF_A_NODE, period_ns=2 * SECOND_NS)
        recorder = Recorder(path, source="invented", made_by="benchmark")
        begin_ns = source.now_ns()
        while source.now_ns() - begin_ns < (WOUND_S + SETTLED_S) * SECOND_NS:
            recorder.write(source.poll(), source.now_ns())
        recorder.close()
        return [_replay_share(path) for _ in range(repeat)]


def _replay_share(path: Path) -> float:
    feed = ReplayFeed(path, clock=_Clock(), paused=True)
    system = System((feed, Health))

    def wind_to(second: int) -> None:
        feed.seek(feed.begin_ns + second * SECOND_NS)
        while feed.now_ns() < feed.begin_ns + second * SECOND_NS or feed.is_winding:
            system.update()

    wind_to(SETTLED_S)
    worked = time.process_time()
    wind_to(SETTLED_S + WOUND_S - 1)
    feed.close()
    return (time.process_time() - worked) / (WOUND_S - 1)


def memory_growth() -> float:
    """By how much, in percent, the process grows from minute 20 to the end of an hour that is played fast."""
    with tempfile.TemporaryDirectory(prefix="ospltool-console-") as directory:
        path = Path(directory) / "hour.rec"
        record_hour(path)
        resident: dict[int, int] = {}

        async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
            while not app.model.ended_ns:  # winding on may put another model in its place
                clock.now_ns += FORWARD_S * SECOND_NS
                app.tick()
                await pilot.pause()
                minute = (feed.now_ns() - feed.begin_ns) // (60 * SECOND_NS)
                resident[minute] = resident_bytes()

        clock = _Clock()
        feed = ReplayFeed(path, clock=clock)
        play(feed, scenario)
        feed.close()
        early = max(value for minute, value in resident.items() if minute <= 20)
        return max(0.0, 100 * (max(resident.values()) / early - 1))


def record_hour(path: Path) -> None:
    """An hour of an invented system, as the recorder writes it."""
    source = FakeFeed(
        RECORDED_NODES, RECORDED_SPACES, RECORDED_GROUPS, period_ns=RECORDED_EVERY_S * SECOND_NS
    )
    recorder = Recorder(path, source="invented", made_by="benchmark")
    begin_ns = source.now_ns()
    while source.now_ns() - begin_ns < HOUR_S * SECOND_NS:
        recorder.write(source.poll(), source.now_ns())
    recorder.close()


def resident_bytes() -> int:
    """What this process holds in memory."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise OSError("the kernel does not tell how much memory is used")


class _Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns
