"""The persistence screen: its tables, its filter, its keys."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from textual.pilot import Pilot

from engine.persistence.service.replica_view import PeerView, ReplicaView, WriterView
from ospltool.live.feed import FeedNotice, HeardReplica, NoticeKind, Update
from ospltool.live.model import SystemModel
from ospltool.live.persistence import WatchedReplica
from ospltool.views.cells import ASCII, UNICODE, Rows, Tone
from ospltool.views.incidents import summary
from ospltool.views.view import Filter, View
from tests import fake
from tests.console.test_screen_views import check_rows, rows_of, text_of
from tests.fake import SECOND_NS, START_NS, ScriptedFeed
from tests.health.looking import looked
from tui.app import ConsoleApp
from tui.screens import persistence as views
from tui.widgets.sheet import Sheet

S = SECOND_NS
WIDE = 200
TRADE = fake.provided(1, "Trade")
QUOTE = fake.provided(2, "Quote", direct=False, provider="b", selected="c", path=("d", "b", "a"), stable=1)
FILLED = dataclasses.replace(QUOTE, filling=("c",), selected_filling=("d",), late=True, unsettled=3)
LOG = fake.subscription("logger", pending=7, quorum=2, members=("m1",), in_doubt={"m1": 3, "m2": 4})
UP = (PeerView("b", "up"), PeerView("ff", "refused", "it has our name"))


def view_of(*shown: ReplicaView, after_s: float = 0, text: str = "", lost: str = "") -> View:
    model = SystemModel()
    heard = tuple(HeardReplica(each, START_NS) for each in shown)
    notices = (FeedNotice(NoticeKind.REPLICA_LOST, START_NS, "", fake.replica(lost).id),) if lost else ()
    model.apply(Update(replicas=heard, notices=notices), START_NS)
    return View(
        looked(model, START_NS + int(after_s * S)),
        START_NS + int(after_s * S),
        UNICODE,
        Filter.parse(text, views.FIELDS),
    )


def first(view: View) -> WatchedReplica:
    return view.model.persistence.ordered()[0]


def over_time(*steps: tuple[float, ReplicaView], until_s: float) -> View:
    """Return the view of a replica whose state arrived after these seconds."""
    model = SystemModel()
    for after_s, shown in steps:
        now_ns = START_NS + int(after_s * S)
        model.apply(Update(replicas=(HeardReplica(shown, now_ns),)), now_ns)
    return View(
        looked(model, START_NS + int(until_s * S)),
        START_NS + int(until_s * S),
        UNICODE,
        Filter.parse("", views.FIELDS),
    )


def tone_of(rows: Rows[Any], key: str, row: int = 0) -> Tone:
    column = next(i for i, column in enumerate(rows.columns) if column.key == key)
    return rows.cell(row, column)[0].tone


A = fake.replica("a", TRADE, QUOTE, peers=UP, counters={"captured": 1000, "repeated": 37})


def test_a_replica_has_a_row_with_the_worst_of_its_writers() -> None:
    lagging = dataclasses.replace(QUOTE, provider="", filling=("c", "d"), lag_ns=12 * S)
    view = view_of(
        A,
        fake.replica("b", peers=(PeerView("x", "beginning"),), values=1_500_000, groups=()),
        fake.replica("c", TRADE, lagging, peers=UP),
        fake.replica("a", id="ff", service="other", problems=("disk full",)),
    )
    check_rows(
        views.replicas(view, WIDE),
        [
            "✖|a|problem|1,000||-|-|||1||other",
            "●|a|in step|1,000|original, b|-|1 forced||37|1|b|redundant",
            "◐|b|connecting|1.5 M||-|-|||0||redundant",
            "▲|c|lags|1,000|original, c, d|12.0 s|1 forced|||1|b|redundant",
        ],
    )


@pytest.mark.parametrize(
    ("after_s", "lost", "ending", "expected"),
    [
        (1, "", False, "●|a|in step"),
        (9, "", False, "▲|a|silent"),
        (1, "a", False, "✖|a|gone"),
        (1, "a", True, "○|a|stopped"),
    ],
)
def test_a_replica_that_is_not_there_is_never_fine(
    after_s: float, lost: str, ending: bool, expected: str
) -> None:
    view = view_of(dataclasses.replace(A, ending=ending), after_s=after_s, lost=lost)
    rows = views.replicas(view, WIDE)
    assert rows_of(rows)[0].startswith(expected)
    is_there = expected.startswith("●")
    state = expected.rpartition("|")[2]
    tone = {"in step": Tone.DIM, "gone": Tone.FAULT}.get(state, Tone.WARN)
    assert tone_of(rows, "mark") is tone_of(rows, "state") is tone
    title = "1 persistence service" + ("" if state == "in step" else f", 1 {state}")
    assert views.title(view, rows) == title
    tones = {span.tone for i in range(len(rows.columns)) for span in rows.cell(0, i)}
    assert (Tone.PLAIN in tones) is is_there
    writers = views.streams(view, first(view), WIDE)
    assert (Tone.PLAIN in {span.tone for span in writers.cell(0, 1)}) is is_there


def test_a_writer_has_its_provider_lag_path_and_stability() -> None:
    nobody = fake.provided(3, "Tick", provider="", selected="", path=(), lag_ns=S, stable=0)
    quiet = fake.provided(4, "Old", provider="", selected="", path=())
    shown = fake.replica("a", TRADE, QUOTE, FILLED, nobody, quiet, peers=UP, writers_left_out=5)
    view = view_of(shown)
    rows = views.streams(view, first(view), WIDE)
    assert views.streams_title(first(view), rows) == "a: 4 writers, 6 idle"
    check_rows(
        rows,
        [
            "●|Orders.Trade|original|-|stable|1|a||original|0 of 6|00000000…00000001",
            "◐|Orders.Quote|b|-|forced at 6|3|d > b > a||c|0 of 6|00000000…00000002",
            "◐|Orders.Quote|b+c|-|1 of 2|3|d > b > a||c+d|3 of 6|00000000…00000002 late",
            "◐|Orders.Tick|none|1.0 s|0 of 2||-||-|0 of 6|00000000…00000003",
        ],
    )


@pytest.mark.parametrize(
    ("writer", "state"),
    [
        (dataclasses.replace(QUOTE, lag_ns=60 * S), "lags"),
        (dataclasses.replace(QUOTE, provider="", selected="", lag_ns=1), "no provider"),
        (TRADE, "in step"),
    ],
    ids=["it lags", "nobody gives it", "all is well"],
)
def test_a_writer_that_lags_or_that_nobody_gives_stands_out(writer: WriterView, state: str) -> None:
    shown = fake.replica("a", writer, peers=UP)
    view = over_time((0, shown), (60, shown), until_s=61)
    is_well = state == "in step"
    rows = views.replicas(view, WIDE)
    assert first(view).state(view.now_ns) == state
    assert (tone_of(rows, "lag") is Tone.WARN) is not is_well
    writers = views.streams(view, first(view), WIDE)
    assert (tone_of(writers, "mark") is Tone.WARN) is not is_well
    assert (tone_of(writers, "lag") is Tone.WARN) is not is_well


def test_the_last_change_of_a_provider_is_that_of_any_writer() -> None:
    other = dataclasses.replace(TRADE, provider="b"), dataclasses.replace(QUOTE, provider="c")
    steps = [
        (at, fake.replica("a", *writers, peers=UP))
        for at, writers in ((0.0, (TRADE, QUOTE)), (10.0, (other[0], QUOTE)), (50.0, other))
    ]
    view = over_time(*steps, until_s=55)
    assert "|5 s|" in rows_of(views.replicas(view, WIDE))[0]


def test_a_durable_subscription_without_enough_readers_stands_out() -> None:
    calm = fake.subscription("billing", members=("billing",))
    view = view_of(fake.replica("a", subscriptions=(LOG, calm)))
    one = first(view)
    rows = views.subscriptions(view, one, WIDE)
    assert (
        views.subscriptions_title(view, one, rows) == "a: 2 durable subscriptions, 1 without enough readers"
    )
    check_rows(
        rows,
        [
            "▲|logger|Orders.Trade|7|2|1 of 2: m1|m1 3,m2 4",
            "●|billing|Orders.Trade|none|1|billing|all",
        ],
    )
    both = view_of(
        fake.replica("a", subscriptions=(LOG,)),
        fake.replica("b", subscriptions=(dataclasses.replace(LOG, members=("m2",)),)),
    )
    check_rows(views.subscriptions(both, first(both), WIDE), ["●|logger|Orders.Trade|7|2|m1,m2|m1 3,m2 4"])


def test_the_lines_about_a_replica_say_where_it_is_and_what_is_wrong() -> None:
    shown = dataclasses.replace(A, problems=("disk full",), unwritten=True, store="/x")
    view = view_of(shown, after_s=2)
    assert text_of(views.replica_lines(view, first(view), 100)) == [
        " a of redundant  problem  1,000 values in 1 group, not all on disk yet",
        "   linked with b, ff (refused)  up 10 min  heard 2 s ago  host host-a  pid 5000  store /x",
        "   captured 1,000, repeated 37",
        " ✖         persistence service a: disk full",
    ]


def test_a_long_problem_is_told_whole_where_there_are_eighty_columns() -> None:
    problem = "123456 samples are not kept for durable subscriptions, because too many wait already"
    view = view_of(dataclasses.replace(A, problems=(problem,)))
    lines = text_of(views.replica_lines(view, first(view), 80))
    assert all(len(line) <= 80 for line in lines[3:])
    assert " ".join(" ".join(lines[3:]).split()) == f"✖ persistence service a: {problem}"


B = fake.replica("b", dataclasses.replace(TRADE, provider="a"), subscriptions=(LOG,))
FILTERS: list[tuple[str, list[str], list[str]]] = [
    ("", ["a", "b"], ["Trade", "Quote"]),
    ("b", ["a", "b"], ["Quote"]),
    ("replica:b", ["b"], []),
    ("!replica:b", ["a"], ["Trade", "Quote"]),
    ("topic:quote", ["a"], ["Quote"]),
    ("!topic:trade", ["a"], ["Quote"]),
    ("provider:original", ["a"], ["Trade"]),
    ("trade", ["a", "b"], ["Trade"]),
    ("sub:logger", ["b"], []),
    ("state:alone host:host-b", ["b"], []),
    ("replica:a topic:nothing", [], []),
]


@pytest.mark.parametrize(("text", "names", "topics"), FILTERS, ids=[case[0] for case in FILTERS])
def test_a_filter_keeps_replicas_that_match_or_have_what_matches(
    text: str, names: list[str], topics: list[str]
) -> None:
    view = view_of(A, B, text=text)
    rows = views.replicas(view, WIDE)
    assert [one.view.name for _, one in rows.items] == names
    assert rows.hidden == 2 - len(names)
    writers = views.streams(view, first(view), WIDE)
    assert [stream.view.topic for _, stream in writers.items] == topics


def test_the_overview_counts_persistence_services() -> None:
    view = view_of(A, B, lost="b")
    told = "".join(span.text for span in summary(view, 200))
    assert "2 persistence services" in told
    assert "✖ ERROR · 1 error" in told
    assert "persistence" not in "".join(span.text for span in summary(view_of(), 200))


# The screen.

Play = Callable[..., None]
Read = Callable[[ConsoleApp], list[str]]


def feed_of(*shown: ReplicaView, mode: str = "live") -> ScriptedFeed:
    heard = tuple(HeardReplica(each, START_NS) for each in shown)
    return ScriptedFeed([(START_NS, Update(replicas=heard))], title="domain 7", mode=mode)


def rows_under(app: ConsoleApp, id_: str) -> Rows[Any]:
    table = app.screen.query_one(f"#{id_}", Sheet)._table
    assert isinstance(table, Rows)
    return table


def test_enter_goes_to_the_writers_and_on_to_their_provider(play: Play) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await pilot.press("0", "down")
        await pilot.pause()
        assert [s.view.provider for _, s in rows_under(app, "streams").items] == ["a"]
        await pilot.press("enter")
        assert app.focused is app.screen.query_one("#streams", Sheet)
        await pilot.press("enter")
        await pilot.pause()
        assert app.focused is app.screen.query_one("#replicas", Sheet)
        assert app.screen.query_one("#replicas", Sheet).row_key == A.id
        assert len(rows_under(app, "streams").items) == 2

    play(feed_of(A, B), scenario)


def test_a_title_that_ends_where_the_note_begins_is_whole(play: Play, read_screen: Read) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await pilot.press("0")
        await pilot.pause()
        (header,) = [line for line in read_screen(app) if line.startswith("   replica")]
        assert header.endswith(" changed twice 3>")

    play(feed_of(A, B), scenario)


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("live", "`ospltool persistence run FILE --name NAME`"),
        ("recorded", "no persistence service was heard up to this moment"),
        ("simulated", "simulated systems have no persistence services"),
    ],
)
@pytest.mark.parametrize("width", [80, 120])
def test_where_there_is_none_the_screen_says_why(
    play: Play, read_screen: Read, mode: str, told: str, width: int
) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await pilot.press("0")
        await pilot.pause()
        text = " ".join(line.strip() for line in read_screen(app))
        assert told in text
        assert not app.screen.query_one("#replicas", Sheet).display

    play(feed_of(mode=mode), scenario, size=(width, 24))


def test_a_replica_that_a_filter_hides_takes_its_tables_with_it(play: Play, read_screen: Read) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await pilot.press("0", "slash", *"nobody", "enter")
        await pilot.pause()
        text = "\n".join(read_screen(app))
        assert "no persistence service matches the filter 'nobody'" in text
        assert "Orders.Trade" not in text
        await pilot.press("escape")
        await pilot.pause()
        assert "Orders.Trade" in "\n".join(read_screen(app))

    play(feed_of(A, B), scenario)


@pytest.mark.parametrize("size", [(20, 5), (40, 10), (80, 24), (250, 80)])
def test_hostile_text_is_shown_and_never_obeyed_at_any_size(
    play: Play, read_screen: Read, size: tuple[int, int]
) -> None:
    evil = "\x1b[31m[red]\x9b"
    writer = dataclasses.replace(
        FILLED, topic=evil, partition=evil, provider=evil, path=(evil,), lag_ns=1 << 128
    )
    shown = fake.replica(
        evil,
        writer,
        service=evil,
        host=evil,
        store=evil,
        peers=(PeerView(evil, "up"), PeerView(evil, evil)),
        problems=(evil,),
        counters={evil: 7},
        subscriptions=(fake.subscription(evil, members=(evil,), in_doubt={evil: 1}, pending=1),),
    )

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await pilot.press("0")
        await pilot.pause()
        text = read_screen(app)
        assert all(line.isprintable() for line in text)
        if size[0] >= 80:
            assert "\\x1b[31m[red]\\x9b" in "\n".join(text)

    play(feed_of(shown), scenario, size=size)


def test_without_utf_8_every_sign_is_ascii(play: Play, read_screen: Read) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await pilot.press("0")
        await pilot.pause()
        text = "\n".join(read_screen(app)[:-1])
        assert text.isascii()
        assert "00000000~00000001" in text

    play(feed_of(A, B), scenario, size=(150, 40), signs=ASCII)


def test_a_hundred_replicas_with_a_thousand_writers_scroll(play: Play, read_screen: Read) -> None:
    writers = tuple(fake.provided(number, f"T{number}") for number in range(1000))
    shown = [fake.replica(f"i{number}", *writers) for number in range(100)]

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await pilot.press("0", "end")
        await pilot.pause()
        text = "\n".join(read_screen(app))
        assert "i99 of redundant" in text
        assert "i99: 1,000 writers" in text
        await pilot.press("enter", "end")
        await pilot.pause()
        assert "Orders.T999" in "\n".join(read_screen(app))

    play(feed_of(*shown), scenario)
