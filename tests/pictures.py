"""Every screen of the console over a large simulated system, as pictures to look at.

`make pictures` (NODES=200 TO=build/pictures): the nodes advertise what real ones would, first in health, then
with two of them killed, one that stands still and one that is cut off. 200 nodes take minutes of
processor time.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import pathlib
import tempfile
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from engine.config import load
from engine.core import node as core_node
from engine.dataset.groups import DurabilityKind
from engine.runtime.monitor import NodeEvent, NodeSnapshot
from engine.simulator.network import CROWD
from engine.simulator.observing import Gone, ObservedRun, Seen
from engine.simulator.options import NetworkPlan, SimulationOptions, TopicPlan, Workload, deployed
from engine.simulator.schedule import START_NS
from engine.simulator.simulated_node import SimulatedNode
from ospltool.health.system import OwnPauses
from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.views import cells
from ospltool.views.view import Subject
from tests.browser import CHROMIUM, browser
from tests.fake import SECOND_NS, ScriptedFeed
from tui import themes
from tui.app import SCREENS, TICK_S, ConsoleApp

SIZES: Final = {"80x24": (80, 24), "120x40": (120, 40), "200x50": (200, 50)}
HEALTHY_S: Final = 12
"""Moment of the pictures in health: all nodes have met, and have written for some seconds."""
TROUBLE_S: Final = 12
"""Time from the faults to the pictures of trouble: leases have ended, and masters are chosen."""
WRITERS: Final = 4
TURN_S: Final = 0.25
"""Time between two turns of each node of a crowd. A node that is alone on its machine takes more of them, but
here all share one thread: the start of 200 nodes took minutes."""
NAME_SPACES: Final = {
    "Orders": ("Open", "Filled"),
    "Telemetry": ("Position", "Speed", "Depth"),
    "Alarms": ("Raised",),
    "Configuration": ("Limits", "Routes"),
}
CONFIGURATION: Final = """\
<OpenSplice>
  <Domain><Name>pictures</Name><Id>7</Id></Domain>
  <DurabilityService name="durability">
    <Persistent><StoreDirectory>/var/lib/ospltool</StoreDirectory></Persistent>
    <NameSpaces>
      {spaces}
      <Policy nameSpace="*" durability="Durable" aligner="true" alignee="Initial">
        <Merge type="Merge" scope="*"/>
      </Policy>
    </NameSpaces>
  </DurabilityService>
</OpenSplice>
"""

Steps = list[tuple[int, Update]]


def options(nodes: int) -> SimulationOptions:
    """A system of nodes with four name-spaces, in which applications write eight topics."""
    spaces = "".join(f'<NameSpace name="{x}"><Partition>{x}</Partition></NameSpace>' for x in NAME_SPACES)
    with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
        file.write(CONFIGURATION.format(spaces=spaces))
        file.flush()
        configuration = load(file.name, {})
    named = {f"station-{number:03d}": configuration for number in range(1, nodes + 1)}
    kind = DurabilityKind.PERSISTENT
    topics = tuple(TopicPlan(space, topic, kind) for space, each in NAME_SPACES.items() for topic in each)
    return msgspec.structs.replace(
        deployed(named, 1, ()),
        workload=Workload(topics, writers=0, write_pause_s=0.25, keys=40, readers=0),
        network=NetworkPlan(),
        fault_s=600.0,
        start_spread_s=1.0,
        disk_delay_s=0.002,
    )


class LargeSystem:
    """A simulated system, and what a console would hear of it."""

    def __init__(self, nodes: int) -> None:
        self._run = ObservedRun(options(nodes))
        self._cluster = self._run._cluster
        self._cluster.watchers[:-1] = []  # what they check has other tests
        self._s = 0.0
        self.steps: Steps = []
        if nodes > CROWD:
            core_node.STALL_S = 2 * TURN_S  # type: ignore[misc]  # a turn of the simulation is no stall
            for node in self._cluster.nodes:
                node.pause_s = TURN_S
        for number in range(WRITERS):
            self._cluster.schedule.at(1.0 + number, self._cluster.start_writer)

    def advance(self, seconds: float) -> None:
        """Go on, with an update for each tick of the console."""
        for _ in range(round(seconds / TICK_S)):
            self._s += TICK_S
            now_ns = START_NS + int(self._s * SECOND_NS)
            heard: list[Seen] = []
            while self._run.now_ns < now_ns:
                heard += self._run.advance(now_ns, 60)
            self.steps.append((now_ns, update_of(heard)))

    def break_some(self) -> None:
        """Kill two nodes, hold one, and cut one off from all others; of three nodes, only kill one."""
        faults: Sequence[Callable[[SimulatedNode], None]] = (
            SimulatedNode.crash,
            SimulatedNode.crash,
            self._hold,
            self._cut_off,
        )
        for fault, node in zip(faults, self._cluster.nodes[2:], strict=False):
            fault(node)

    def _hold(self, node: SimulatedNode) -> None:
        node.is_stalled = True
        self._cluster.network.freeze(node.participant)

    def _cut_off(self, node: SimulatedNode) -> None:
        for other in self._cluster.nodes:
            self._cluster.network.cut(node.name, other.name)
            self._cluster.network.cut(other.name, node.name)


def update_of(heard: Sequence[Seen]) -> Update:
    """As a live feed would return it."""
    snapshots = [
        ReceivedSnapshot(one.item, one.time_ns) for one in heard if isinstance(one.item, NodeSnapshot)
    ]
    events = tuple(one.item for one in heard if isinstance(one.item, NodeEvent))
    gone = [
        FeedNotice(NoticeKind.NODE_LOST, one.time_ns, "its lease expired", one.item.node)
        for one in heard
        if isinstance(one.item, Gone)
    ]
    return Update(tuple(snapshots), events, tuple(gone))


def simulated(nodes: int) -> tuple[Steps, Steps]:
    """The updates until all is well, and those from the faults on."""
    system = LargeSystem(nodes)
    system.advance(HEALTHY_S)
    healthy, system.steps = system.steps, []
    system.break_some()
    system.advance(TROUBLE_S)
    return healthy, system.steps


async def take(healthy: Steps, trouble: Steps, to: pathlib.Path) -> list[pathlib.Path]:
    """The pictures of both, as SVG."""
    look = themes.choose("ops-dark", no_color=False, term="xterm-256color")
    feed = ScriptedFeed(healthy, title="domain 7")
    signs = cells.choose("utf-8", ascii_only=False)
    app = ConsoleApp(feed, title="ospltool", signs=signs, theme=look, timer=False)
    taken = []
    app.systems.present.pauses = OwnPauses(lambda: feed.now_ns() / SECOND_NS)  # taking pictures is none
    async with app.run_test(size=SIZES["120x40"]) as pilot:
        for name, steps in (("healthy", healthy), ("trouble", trouble)):
            if name == "trouble":
                for moment_ns, update in steps:
                    feed.add(moment_ns, update)
            for _ in steps:
                app.tick()
            for place, size in SIZES.items():
                await pilot.resize_terminal(*size)
                for screen in SCREENS:
                    app.go(screen, subject(app))
                    await pilot.pause()
                    await app.workers.wait_for_complete()
                    app.show()
                    await pilot.pause()
                    path = to / f"{name}-{screen}-{place}.svg"
                    path.write_text(app.export_screenshot(), encoding="utf-8")
                    taken.append(path)
    return taken


def subject(app: ConsoleApp) -> Subject:
    """What an operator would look at: the worst incident, and one of its nodes."""
    worst = next(iter(app.view().health.open), None)
    nodes = worst.nodes if worst else tuple(node.id for node in app.model.ordered_nodes()[2:3])
    return Subject(nodes[0] if nodes else "", "Orders", incident=worst.key if worst else "")


async def to_png(pictures: Sequence[pathlib.Path]) -> None:
    """Draw each with Chromium, if that is installed."""
    if CHROMIUM is None:
        return
    with tempfile.TemporaryDirectory() as home:
        async with browser(pathlib.Path(home)) as tab:
            for picture in pictures:
                columns, lines = SIZES[picture.stem.rpartition("-")[2]]
                width, height = columns * 13 + 20, lines * 25 + 60
                await tab.do(
                    "Emulation.setDeviceMetricsOverride",
                    width=width, height=height, deviceScaleFactor=1, mobile=False,
                )  # fmt: skip
                await tab.do("Page.navigate", url=picture.absolute().as_uri())
                drawn = None
                while drawn is None or await tab.value("document.readyState") != "complete":
                    drawn = await tab.picture(width, height)
                picture.with_suffix(".png").write_bytes(drawn)


def main() -> None:
    """Simulate, and take all pictures."""
    parser = argparse.ArgumentParser(prog="python -m tests.pictures", description=__doc__)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--to", type=pathlib.Path, default=pathlib.Path("build/pictures"))
    given = parser.parse_args()
    given.to.mkdir(parents=True, exist_ok=True)
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    taken = asyncio.run(take(*simulated(given.nodes), given.to))
    asyncio.run(to_png(taken))
    print(f"{len(taken)} pictures in {given.to}")


if __name__ == "__main__":
    main()
