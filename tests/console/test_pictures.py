from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import msgspec
import pytest
from textual.pilot import Pilot

from engine.persistence.service.replica_view import KeptGroupView as PersistedGroup
from engine.persistence.service.replica_view import PeerView
from engine.runtime.monitor import (
    AlignmentView,
    DeliveryView,
    GroupView,
    NameSpaceView,
    NodeEvent,
    StoreStatus,
)
from engine.tracing.catalogue import catalogue
from ospltool.live.feed import FeedNotice, HeardReplica, NoticeKind, ReceivedSnapshot, Update
from ospltool.views.cells import ASCII
from ospltool.views.view import Subject
from tests import fake
from tests.fake import SECOND_NS, START_NS, ScriptedFeed, node_id
from tests.hygiene.test_svg import foreign
from tui import themes
from tui.app import SCREENS, ConsoleApp

S = SECOND_NS
Play = Callable[..., None]
Read = Callable[[ConsoleApp], list[str]]


def events(*told: tuple[int, int, str, str]) -> tuple[NodeEvent, ...]:
    """(seconds before now, node, level, text) as events."""
    return tuple(
        fake.event(number, node, START_NS - seconds * S, text, level=level)
        for number, (seconds, node, level, text) in enumerate(told)
    )


QUIET_EVENTS = events(
    (41, 1, "INFO", "Durability service up and fully operational."),
    (40, 2, "INFO", "Fellow n1 approved."),
    (40, 2, "INFO", "Master of Orders is n1: highest masterPriority of n1 200, n2 100, n3 50."),
    (38, 2, "INFO", "Name-space Orders is complete, 12,345 samples aligned in 0.4 s."),
    (36, 3, "INFO", "Name-space Orders is complete, 12,345 samples aligned in 0.4 s."),
    (12, 1, "INFO", "Served a late joiner with 1,000 samples of Orders.Trade in 0.2 s."),
)


def orders(**changes: object) -> NameSpaceView:
    return fake.name_space("Orders", 1, **{"count": 12345, **changes})


def telemetry(**changes: object) -> NameSpaceView:
    why = "only candidate with masterPriority above 0"
    return fake.name_space("Telemetry", 2, **{"count": 86_400, "why": why, **changes})


def quiet() -> ScriptedFeed:
    nodes = tuple(
        ReceivedSnapshot(
            fake.snapshot(
                n, orders(), telemetry(), fellows=tuple(fake.fellow(f) for f in (1, 2, 3) if f != n)
            ),
            START_NS,
        )
        for n in (1, 2, 3)
    )
    return ScriptedFeed([(START_NS, Update(nodes, QUIET_EVENTS))], title="domain 7")


def aligning() -> ScriptedFeed:
    """Act 4 of the demo: n3 was killed and is back."""
    steps = []
    for second, samples in ((0, 0), (1, 2100), (2, 4200)):
        now_ns = START_NS + second * S
        alignment = AlignmentView("from", node_id(1), samples, 6000, samples * 180, START_NS)
        nodes = (
            ReceivedSnapshot(fake.snapshot(1, orders(), telemetry()), now_ns),
            ReceivedSnapshot(fake.snapshot(2, orders(), telemetry()), now_ns),
            ReceivedSnapshot(
                fake.snapshot(
                    3,
                    orders(complete=False, phase="align", alignments=(alignment,), count=6345 + samples),
                    telemetry(),
                    state="FETCH_INITIAL",
                    started_ns=START_NS - 2 * S,
                ),
                now_ns,
            ),
        )
        steps.append((now_ns, Update(nodes, QUIET_EVENTS if not second else ())))
    told = events(
        (31, 1, "WARNING", "Fellow n3 lost: its lease expired."),
        (3, 3, "INFO", "Store verified: 6,345 samples, not closed cleanly."),
        (1, 1, "INFO", "Alignment of Orders to n3 begins: 6,000 samples differ."),
    )
    caption = (
        "Act 4 of 5. n3 was killed while 6,000 samples were written. It is back and aligns from the master: "
        "only what differs moves."
    )
    steps.append((steps[-1][0], Update(events=told, caption=caption)))
    return ScriptedFeed(steps, title="domain 7")


def trouble() -> ScriptedFeed:
    incompatible = fake.fellow(
        4, communication="incompatible", problem="Orders is {Orders.*} and {Orders.Trade}"
    )
    full = StoreStatus("sqlite", "/var/lib/ospltool/n2", problem="no space left on device")
    nodes = (
        fake.snapshot(1, orders(), telemetry(), fellows=(incompatible,)),
        fake.snapshot(2, orders(), telemetry(), store=full),
        fake.snapshot(3, orders(complete=False, count=0), telemetry(), state="DISCOVER_PERSISTENT_SOURCE"),
        # It was due before the others were heard.
        fake.snapshot(4, fake.name_space("Orders", 4, count=17), role="Backup", update_period_ns=0),
        fake.snapshot(5, orders(master="", confirmed=False, why="every masterPriority is 0")),
    )
    ages = {2: 9 * S, 3: 1}
    heard = tuple(ReceivedSnapshot(node, START_NS - ages.get(i, 0)) for i, node in enumerate(nodes))
    lost = FeedNotice(NoticeKind.NODE_LOST, START_NS, "", node_id(4))
    told = events(
        (95, 1, "WARNING", "Fellow n4 lost: its lease expired."),
        (61, 2, "SEVERE", "Store /var/lib/ospltool/n2: no space left on device; Orders is kept in memory."),
    )
    return ScriptedFeed(
        [(START_NS, Update(heard, (*QUIET_EVENTS, *told), (lost,), dropped=1200))], title="domain 7"
    )


def services(heard_ns: int) -> tuple[HeardReplica, ...]:
    """Three replicas: c takes from b since ten seconds before now, and falls behind."""
    behind_s = (heard_ns - START_NS) // S + 20
    waiting = (
        fake.subscription("logger", pending=240, members=(), in_doubt={"logger-2": 17}, quorum=2),
        fake.subscription("billing"),
    )
    trade, quote = fake.provided(0x1107E93, "Trade"), fake.provided(0x1107E94, "Quote")
    of_c = dataclasses.replace(
        trade,
        direct=False,
        provider="b" if behind_s else "a",
        selected="b",
        path=("b", "c"),
        lag_ns=behind_s * S + S // 5,
        stable=1,
        unsettled=3,
    )
    of_b = dataclasses.replace(quote, direct=False, provider="a", selected="a", path=("a", "b"))
    groups = (
        PersistedGroup("Orders", "Quote", "shop::Quote", 2345, 1),
        PersistedGroup("Orders", "Trade", "shop::Order", 9000, 2),
    )
    shown = {
        "a": (trade, quote),
        "b": (dataclasses.replace(trade, path=("b",)), of_b),
        "c": (of_c, dataclasses.replace(of_b, path=("a", "c"))),
    }
    counters = {
        "a": {"captured": 11_345, "deliveries": 2, "delivered": 1000, "sent": 12_000},
        "b": {"captured": 9000, "received": 2345, "changes": 1, "sent": 8000},
        "c": {"received": 11_100, "repeated": 37, "applied": 11_063, "changes": 4, "forced": 1},
    }
    return tuple(
        HeardReplica(
            fake.replica(
                name, *writers, values=11_345, groups=groups, counters=counters[name],
                peers=tuple(PeerView(other, "up") for other in shown if other != name),
                subscriptions=waiting,
            ),
            heard_ns,
        )
        for name, writers in shown.items()
    )  # fmt: skip


def guarded() -> ScriptedFeed:
    """The quiet system with persistence services, of which one is gone."""
    _, update = quiet()._steps[0]
    lost = FeedNotice(NoticeKind.REPLICA_LOST, START_NS, "", fake.replica("c").id)
    more = dataclasses.replace(update, replicas=services(START_NS), notices=(lost,))
    return ScriptedFeed([(START_NS, more)], title="domain 7")


def only_services() -> ScriptedFeed:
    heard = services(START_NS - 20 * S)[:2]
    heard = tuple(dataclasses.replace(one, heard_ns=START_NS) for one in heard)
    return ScriptedFeed([(START_NS, Update(replicas=heard))], title="domain 7")


def busy() -> ScriptedFeed:
    """Something for every screen: an alignment, a conflict, groups that differ, late joiners, findings."""
    groups = tuple(
        GroupView(
            "Orders", "Orders", topic, "shop::Order", "PERSISTENT", count, count, count * 90, digest,
            START_NS - 7 * S, count - behind, 0,
        )
        for topic, count, digest, behind in (("Quote", 2345, "77aa01c2", 0), ("Trade", 9000, "9f3c55e0", 40))
    )  # fmt: skip
    other = (msgspec.structs.replace(groups[0], digest="0badcafe"), groups[1])
    served = (
        DeliveryView("0110a7c3", "Trade", "Orders", "done", 1000, START_NS - 9 * S, START_NS - 8 * S),
        DeliveryView("0110beef", "Quote", "Orders", "running", 210, START_NS - S, 0),
    )
    alignment = AlignmentView("from", node_id(1), 2100, 6000, 378_000, START_NS - 4 * S)
    late = orders(complete=False, phase="align", alignments=(alignment,), count=8445)
    fellows = (fake.fellow(2), fake.fellow(3, state="FETCH_INITIAL", skew_ns=-1_700_000))
    nodes = (
        fake.snapshot(
            1, orders(), telemetry(), groups=groups, deliveries=served, fellows=fellows,
            counters={"captured": 12_345, "stored": 12_305, "delivered": 1000, "queued": 40, "refused": 0},
        ),
        fake.snapshot(2, orders(digest="8e2b"), telemetry(master_priority=0), groups=other),
        fake.snapshot(3, late, telemetry(), state="FETCH_INITIAL"),
    )  # fmt: skip
    text = catalogue()["conflict.native-state"].text
    conflict = fake.event(
        77,
        2,
        START_NS - 30 * S,
        text.format(namespace="Telemetry", fellow="n3", conflict="4"),
        event="conflict.native-state",
    )
    early = Update(
        tuple(ReceivedSnapshot(node, START_NS - 20 * S) for node in nodes),
        replicas=services(START_NS - 20 * S),
    )
    heard = tuple(ReceivedSnapshot(node, START_NS) for node in nodes)
    now = Update(heard, (*QUIET_EVENTS, conflict), replicas=services(START_NS))
    return ScriptedFeed([(START_NS - 20 * S, early), (START_NS, now)], title="domain 7")


def empty() -> ScriptedFeed:
    return ScriptedFeed([(START_NS, Update())], title="domain 7")


SIZES = ((80, 24), (200, 50), (60, 20), (120, 40))
OVERVIEW = {
    (60, 20): ("ERROR", "n4 is gone", "node +state", "n2"),
    (80, 24): ("ERROR", "attention", "n4 is gone", "Why", "Next", "node +state", "n2", "events"),
    (120, 40): (
        "ERROR", "attention", "n4 is gone", "Why", "Next", "nodes", "gone", "silent", "Orders on n2",
        "masters of the last", "Telemetry", "events", "n2",
    ),
    (200, 50): (
        "ERROR", "attention.+why, and what to do", "n4 is gone", "nodes", "host", "silent", "Orders on n2",
        "masters of the last.+applications", "captured", "hears", "samples stored.+longest wait", "events",
    ),
}  # fmt: skip
"""What the overview shows of a system in trouble, from top to bottom."""
OTHERS = {
    "node": ("node n1", "id ", "fellows", "name-spaces", "Orders"),
    "name-space": (
        "name-space Orders",
        "as all 3 nodes",
        "DefaultRole: n1",
        "nodes",
        "n3",
        "attention|masters",
    ),
    "alignment": ("1 alignment", "aligner", "n1", "late joiner"),
    "incidents": ("5 incidents", "code", "DUL-", "What", "Why", "Next"),
    "groups": ("2 groups", "topic", "Quote"),
    "trace": ("events: ", "message", "Fellow n1 approved"),
    "store": ("3 stores", "kind", "n1", "/var/lib"),
    "findings": ("findings", "DUR"),
    "persistence": ("persistence services", "state", "lags"),
    "incident": ("no incident chosen",),
    "conflicts": ("conflict", "Telemetry"),
    "topics": ("2 topics", "topic", "Quote"),
    "topic": ("topic Quote", "Orders.Quote", "0 writers, 1 reader", "served", "recorded or simulated"),
    "applications": ("2 applications", "writers +kept", "ipant 0110a"),
    "application": ("application participant 0110", "0 writers, 1 reader", "reader +Orders"),
}


def check_order(lines: list[str], wanted: tuple[str, ...], where: str) -> None:
    """Each pattern is found on the line of the one before, or below it."""
    at = 0
    for pattern in wanted:
        found = [number for number, line in enumerate(lines[at:], at) if re.search(pattern, line)]
        assert found, f"{where}: no {pattern!r} from line {at} on:\n" + "\n".join(lines)
        at = found[0]


def colours_of(app: ConsoleApp, sign: str) -> set[str]:
    """The colours in which a sign is drawn."""
    strips = app.screen._compositor.render_strips(app.size)
    return {
        segment.style.color.get_truecolor().hex
        for strip in strips
        for segment in strip
        if sign in segment.text and segment.style and segment.style.color
    }


def check_laws(app: ConsoleApp, lines: list[str], where: str) -> None:
    """What holds on each screen at any size."""
    width, height = app.size
    assert len(lines) == height, where
    assert "01:03:2" in lines[0], where  # the time of day is always in sight
    assert lines[-1].startswith(" /"), where
    edges = [line for line in lines if line.startswith(("╭", "╰"))]
    assert all(len(line) == width and line[-1] in "╮╯" for line in edges), where
    assert not any(line.startswith("╭") for line in lines) or (width >= 100 and height >= 34), where


async def settled(app: ConsoleApp, pilot: Pilot[int]) -> None:
    for _ in range(2):
        await app.workers.wait_for_complete()
        app.refresh_all()
        await pilot.pause()


@pytest.mark.parametrize("size", SIZES)
def test_the_overview_of_a_system_in_trouble_at_each_size_in_each_theme(
    play: Play, read_screen: Read, size: tuple[int, int]
) -> None:
    async def look(app: ConsoleApp, pilot: Pilot[int]) -> None:
        for theme in (*themes.OWN, "nord", "solarized-light"):
            app.theme = theme
            await settled(app, pilot)
            lines, where = read_screen(app), f"{size} {theme}"
            check_laws(app, lines, where)
            check_order(lines, OVERVIEW[size], where)
            if not themes.ALL[theme].ansi:
                assert themes.ALL[theme].variables["ops-fault"].lower() in colours_of(app, "✖"), where
            if size[0] == 200:  # all of it is used
                used = [line for line in lines if line[190:].strip(" ─│╮╯")]
                assert len(used) >= 6, where

    play(trouble(), look, ticks=2, size=size)


@pytest.mark.parametrize("size", SIZES)
def test_what_stands_where_on_every_other_screen(
    play: Play, read_screen: Read, size: tuple[int, int]
) -> None:
    async def look(app: ConsoleApp, pilot: Pilot[int]) -> None:
        for screen in tuple(SCREENS)[1:]:
            app.go(screen, Subject(node_id(1), "Orders"))
            await settled(app, pilot)
            lines = read_screen(app)
            check_laws(app, lines, f"{screen} {size}")
            check_order(lines, OTHERS[screen], f"{screen} {size}")

    play(busy(), look, ticks=3, size=size)


@pytest.mark.parametrize(
    ("scene", "wanted"),
    [
        (quiet, ("OK", "node +state", "n1", "Orders on n1", "events", "Served")),
        (aligning, ("Act 4", "attention", "n1 → n3.+%", "node +state", "n3.+fetch initial.+◐.+%")),
        (guarded, ("ERROR", "node +state", "n1")),
        (only_services, ("no node heard yet", "0 shows the persistence services")),
        (empty, ("nobody heard yet", "no node heard yet")),
    ],
)
def test_the_overview_of_other_systems(
    play: Play, read_screen: Read, scene: Callable[[], ScriptedFeed], wanted: tuple[str, ...]
) -> None:
    async def look(app: ConsoleApp, pilot: Pilot[int]) -> None:
        check_order(read_screen(app), wanted, scene.__name__)
        await pilot.press("0")
        await settled(app, pilot)
        check_order(read_screen(app), ("persistence service",), scene.__name__)

    play(scene(), look, ticks=4)


def test_without_utf_8_panels_have_edges_and_signs_of_ascii(play: Play, read_screen: Read) -> None:
    async def look(app: ConsoleApp, pilot: Pilot[int]) -> None:
        for screen in SCREENS:
            app.go(screen, Subject(node_id(1), "Orders"))
            await settled(app, pilot)
            assert all(line.isascii() for line in read_screen(app)), screen

    play(busy(), look, ticks=2, theme=themes.MONO.name, signs=ASCII, size=(120, 40))


def test_an_exported_picture_asks_no_other_host_and_is_the_same_each_time(play: Play) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        picture = app.export_screenshot()
        assert "<svg" in picture
        assert foreign(picture) == []
        assert app.export_screenshot() == picture

    play(quiet(), scenario)
