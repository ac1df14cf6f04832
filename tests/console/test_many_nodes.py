"""Names of many nodes on the screens, which are cut where they stay different."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ospltool.live.feed import FeedNotice, NoticeKind, Update
from ospltool.views import events, groups, incidents, name_space, node, text
from ospltool.views.cells import Rows, plain
from ospltool.views.view import View
from tests import fake
from tests.console.test_screen_views import group, text_of, view_of
from tests.fake import SECOND_NS, START_NS, node_id
from tui.screens import stores


@pytest.mark.parametrize("width", [80, 120])
def test_names_of_many_nodes_are_cut_where_they_stay_different(width: int) -> None:
    """Two hundred stations were `station-0…` each on the screen of stores."""
    numbers = range(101, 131)
    fellows = tuple(fake.fellow(n, name=f"weather-station-{n}") for n in numbers)
    view = view_of(
        *(
            fake.snapshot(n, fake.name_space("Orders", n), name=f"weather-station-{n}", fellows=fellows)
            for n in numbers
        )
    )
    nodes = list(view.model.nodes.values())
    for table, column in (
        (stores.stores(view, width), "node"),
        (name_space.holders(view, "Orders", width), "node"),
        (name_space.holders(view, "Orders", width), "master"),
        (node.fellows(view, nodes[0], width), "name"),
    ):
        place = [one.key for one in table.columns].index(column)
        room = table.columns[place].width
        shown = [plain(table.cell(row, place)) for row in range(len(table.keys))]
        assert len({text.fit(one, room) for one in shown}) == len(table.keys), shown
        assert "weather-station-1" in table.value(0, place), "what is copied is whole"


def test_a_name_that_is_alone_in_its_column_is_told_apart_from_those_of_other_nodes() -> None:
    """The master of all name-spaces was `station…`."""
    ids = range(101, 104)
    fellows = tuple(fake.fellow(n, name=f"weather-station-{n}") for n in ids)
    view = view_of(
        *(
            fake.snapshot(n, fake.name_space("Orders", 103), name=f"weather-station-{n}", fellows=fellows)
            for n in ids
        )
    )
    table = node.name_spaces(view, view.model.ordered_nodes()[0], 80)
    place = [one.key for one in table.columns].index("master")
    shown = text.fit(plain(table.cell(0, place)), table.columns[place].width)
    assert shown.endswith("-103"), shown


@pytest.mark.parametrize(
    ("width", "table", "column"),
    [
        (80, lambda view, width: name_space.holders(view, "Orders", width), "node"),
        (80, lambda view, width: node.fellows(view, view.model.ordered_nodes()[0], width), "name"),
        (120, groups.groups, "group"),
        (120, lambda view, width: name_space.holders(view, "Orders", width), "master"),
        (120, groups.groups, "space"),
        (120, stores.stores, "node"),
    ],
)
def test_no_name_is_cut_beside_free_room(
    width: int, table: Callable[[View, int], Rows[Any]], column: str
) -> None:
    """Names were `…ion-001` on 80 and 120 columns, with twenty free cells at the right edge."""
    ids = range(101, 104)
    kept = tuple(group(topic, partition="Configuration") for topic in ("Limits", "Routes"))
    fellows = tuple(fake.fellow(n, name=f"station-{n}") for n in ids)
    view = view_of(
        *(
            fake.snapshot(
                n, fake.name_space("Orders", 103), name=f"station-{n}", fellows=fellows, groups=kept
            )
            for n in ids
        )
    )
    rows = table(view, width)
    place = [one.key for one in rows.columns].index(column)
    shown = [
        text.fit(plain(rows.cell(row, place)), rows.columns[place].width) for row in range(len(rows.keys))
    ]
    assert not [one for one in shown if "…" in one], shown


SHARED = "Confirming master: Fellow 'station-101' is the master for nameSpace "


def test_what_many_nodes_tell_of_an_incident_is_one_line() -> None:
    """With 200 nodes the screen of an incident had 200 equal lines."""
    ids = range(1, 201)
    lost = [
        fake.event(n, n, START_NS + n * 1_000_000, told)
        for n in ids
        for told in ("Removing confirmed fellow.", f"{SHARED}'Orders'.", f"{SHARED}'Alarms'.")
    ]
    again = fake.event(201, 1, START_NS + SECOND_NS, "Removing confirmed fellow.")
    later = fake.event(202, 2, again.time_ns + events.SAME_NS + 1, "Removing confirmed fellow.")
    masters = [
        fake.event(n, n, later.time_ns, "Confirming local durability as master.", event=events.ELECTED)
        for n in (1, 2)
    ]
    rows = events.folded([*lost, again, later, *masters])
    assert [(each.event.node_name, each.others, each.event.text) for each in rows] == [
        ("n1", 199, "Removing confirmed fellow."),
        ("n1", 199, f"{SHARED}'Orders'."),
        ("n1", 199, f"{SHARED}'Alarms'."),
        ("n1", 0, "Removing confirmed fellow."),
        ("n2", 0, "Removing confirmed fellow."),
        ("n1", 0, masters[0].text),
        ("n2", 0, masters[1].text),
    ]


@pytest.mark.parametrize("width", [80, 200])
def test_all_counters_of_a_node_are_whole_in_as_many_lines_as_they_need(width: int) -> None:
    """The line was cut at the right edge."""
    counters = {f"counter_{n}_of_many": 1_000 + n for n in range(12)}
    view = view_of(fake.snapshot(1, counters=counters))
    lines = [plain(line) for line in node.counter_lines(view, view.model.nodes[node_id(1)], width)]
    assert max(map(len, lines)) <= width
    assert len(lines) == {80: 4, 200: 2}[width]
    said = " ".join(lines)
    assert all(f"{name.replace('_', ' ')} {text.count(count)}" in said for name, count in counters.items())


def test_the_events_of_an_incident_are_folded_and_told_apart() -> None:
    events = tuple(
        fake.event(n, n, START_NS, f"{SHARED}'{space}'.", event="election.confirmed-fellow")
        for n in (2, 3)
        for space in ("Orders", "Alarms")
    )
    both = fake.name_space("Orders", 1), fake.name_space("Alarms", 1)
    nodes = (fake.snapshot(n, *both) for n in (1, 2, 3))
    view = view_of(*nodes, events=events, lost=1, after_s=1)
    (one,) = (one for one in view.health.open if node_id(1) in one.subjects)
    rows = incidents.events(view, one, 50)
    shown = [plain(rows.cell(row, 1)) for row in range(len(rows.keys))]
    assert [told.rpartition("…")[2] for told in shown] == ["Orders", "Alarms"]
    assert {len(told) for told in shown} == {rows.columns[1].width}
    assert rows.value(0, 1) == "n2 and n3 chose station-101 as master of Orders", "what is copied is whole"
    assert incidents.events_title(rows).startswith("4 events around it")


@pytest.mark.parametrize(
    ("texts", "width", "shown"),
    [
        (["short", "short"], 20, ["short", "short"]),
        (["the same long text", "the same long text"], 9, ["the same long text"] * 2),
        (["a long beginning, one", "a long beginning, two"], 12, ["a long b…one", "a long b…two"]),
        (["a long beginning, one", "another one"], 12, ["a long beginning, one", "another one"]),
    ],
)
def test_texts_that_would_be_cut_alike_keep_what_differs(
    texts: list[str], width: int, shown: list[str]
) -> None:
    assert text.apart(texts, [width] * len(texts)) == shown


def test_a_node_is_gone_since_the_same_moment_on_every_screen() -> None:
    """The node's card told when its lease ended, the incident when it was heard last."""
    view = view_of(fake.snapshot(1), fake.snapshot(2))
    later_ns = START_NS + 9 * SECOND_NS
    view.model.apply(Update(notices=(FeedNotice(NoticeKind.NODE_LOST, later_ns, "", node_id(1)),)), later_ns)
    gone = view.model.nodes[node_id(1)]
    assert f"gone since {text.clock(gone.heard_ns)} UTC" in text_of(node.card(view, gone))[0]


def test_more_mutes_than_have_room_are_counted() -> None:
    view = view_of(fake.snapshot(1))
    for code in ("DUL-NODE-GONE", "DUL-NODE-SILENT", "DUL-STORE-FAILED", "DUL-STORE-FULL"):
        view.health.mute(code, "n1", 60 * SECOND_NS)
    assert len(incidents.mute_lines(view)) == 4
    view.health.mute("DUL-STORE-SLOW", "n1", 60 * SECOND_NS)
    *shown, more = text_of(incidents.mute_lines(view))
    assert [line.split()[1] for line in shown] == [
        "DUL-NODE-GONE:n1",
        "DUL-NODE-SILENT:n1",
        "DUL-STORE-FAILED:n1",
    ]
    assert more.strip() == "and 2 more lines"
