"""What the console shows of a node that is killed, stands still or has ended: nothing that was once true."""

from __future__ import annotations

import csv
import io
import itertools

import pytest

from ospltool.health import export
from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from ospltool.live.series import NodeSeries
from ospltool.views import alignment, groups, incidents, name_space
from ospltool.views import node as node_view
from ospltool.views.cells import Line, Tone, plain
from ospltool.views.overview import FIELDS, Overview, detail
from ospltool.views.view import View
from tests import fake
from tests.console.watched import S, Watched
from tests.fake import START_NS, node_id
from tests.simulation.scenarios import Scenario, node
from tui import panels
from tui.panels import ConsoleStatus
from tui.screens import stores

NAMES = ("n1", "n2", "n3")


@pytest.fixture
def watched() -> Watched:
    """Three nodes that are complete, with a writer that goes on."""
    scenario = Scenario(*(node(name) for name in NAMES))
    watched = Watched(scenario)
    scenario.start()
    scenario.until(scenario.complete)
    scenario.keep_writing(scenario.writer("n1"), 0, 0.05)
    scenario.run(8)
    return watched


def text(lines: list[Line]) -> str:
    return "\n".join(map(plain, lines))


def without_a_word(watched: Watched, how: str) -> str:
    """The master, after it was killed or stands still."""
    master = watched.scenario.master("n1")
    if how == "killed":
        watched.scenario.kill(master)
    else:
        watched.scenario.node(master).participant.is_frozen = True
        watched.scenario.node(master).is_stalled = True
    watched.scenario.run(6)
    return master


@pytest.mark.parametrize(("how", "word"), [("killed", "gone"), ("stands still", "gone")])
def test_the_screen_of_a_dead_node_shows_nothing_that_was(watched: Watched, how: str, word: str) -> None:
    alive = text(node_view.card(watched.view(), watched.model.nodes[watched.node("n1")]))
    assert "/s" in alive
    assert "  up 1" in alive

    name = without_a_word(watched, how)
    view = watched.view(node=name)
    dead = view.model.nodes[watched.node(name)]
    card = text(node_view.card(view, dead))
    assert f"{name}  {word}" in card
    assert f"{word} since 00:00:" in card
    assert "  up " not in card
    assert "/s" not in card
    first, _ = detail(view, dead, None)
    assert "  up " not in plain(first)

    (stored, _), (gaps, points) = node_view.curves(view, dead)
    assert stored == f"samples stored per second: none, the node is {word}"
    since_s = (view.now_ns - view.health.heartbeat_ns(dead)) / 1e9
    assert since_s > 4
    assert gaps == f"seconds between heartbeats: {since_s:.2f} and rising"
    assert points[-1][0] == view.now_ns
    assert points[-1][1] == pytest.approx(since_s)
    (_, (_, later)) = node_view.curves(watched.view(later_s=3), dead)
    assert later[-1][1] == pytest.approx(since_s + 3)

    for rows in (node_view.name_spaces(view, dead, 150), node_view.fellows(view, dead, 150)):
        spans = [
            span for column in range(len(rows.columns)) for span in rows.cell(0, column) if span.text.strip()
        ]
        assert {span.tone for span in spans} == {Tone.DIM}


def stars(view: View) -> list[str]:
    """The nodes with the sign of a master on the overview."""
    overview = Overview(view, 100)
    return [
        overview.name(row)
        for row in range(len(overview.keys))
        if plain(overview.cell(row, overview.fixed)).strip()[:1]
        in (view.glyphs.master, view.glyphs.unconfirmed)
    ]


@pytest.mark.parametrize("how", ["killed", "stands still"])
def test_one_node_has_the_star_of_a_mastership(watched: Watched, how: str) -> None:
    before = watched.scenario.master("n1")
    assert stars(watched.view()) == [before]
    assert without_a_word(watched, how) == before
    (after,) = {watched.scenario.master(name) for name in NAMES if name != before}
    assert after != before
    assert stars(watched.view()) == [after]
    rows = name_space.holders(watched.view(), "ns1", 150)
    assert [key for row, key in enumerate(rows.keys) if "★" in plain(rows.cell(row, 0))] == [
        watched.node(after)
    ]


def test_a_silent_master_keeps_its_star_dimmed_while_nobody_follows_another(watched: Watched) -> None:
    master = watched.scenario.master("n1")
    view = watched.view(later_s=60)
    assert stars(view) == [master]
    overview = Overview(view, 100)
    cell = overview.cell(overview.keys.index(watched.node(master)), overview.fixed)
    assert {span.tone for span in cell} == {Tone.DIM}


@pytest.mark.parametrize(("how", "word"), [("killed", "gone"), ("stands still", "gone")])
def test_what_a_dead_node_said_is_told_as_its_last_word(watched: Watched, how: str, word: str) -> None:
    view = watched.view(node=(name := without_a_word(watched, how)))
    dead = view.model.nodes[watched.node(name)]
    said, _ = detail(view, dead, "ns1")
    assert f"ns1 on {name}  {word}, said last: master {name}" in plain(said)
    assert said[1].tone is Tone.DIM

    rows = stores.stores(view, 120)
    marks = {plain(rows.cell(row, 1)): plain(rows.cell(row, 0)) for row in range(len(rows.keys))}
    assert marks[name] == view.glyphs.fault
    assert [marks[other] for other in NAMES if other != name] == [view.glyphs.ok] * 2

    held = groups.groups(view, 200)
    column = [one.key for one in held.columns].index("nodes")
    assert plain(held.cell(0, column)) == "2"


def test_nobody_is_heard_after_a_stop_of_all_and_nothing_is_said_to_be_well(watched: Watched) -> None:
    watched.scenario.stop(*NAMES)
    watched.scenario.run(1)
    watched.take()
    watched.tell(Update(notices=(FeedNotice(NoticeKind.DOMAIN_LOST, watched.now_ns, ""),)))
    view = watched.view(later_s=3)
    status = ConsoleStatus("ospltool", "domain 7", "live")
    (first, _) = panels.header(view, status, "overview", "overview", 100)
    assert "all nodes stopped" in plain(first)
    assert "LOST" not in plain(first)
    assert f"{view.glyphs.idle} UNKNOWN · no node heard" in plain(incidents.summary(view, 200))
    said = " no node is heard, so nothing is known to be wrong: n1, n2 and n3 ended in order"
    assert text(incidents.none_lines(view)).startswith(said)
    assert text(alignment.idle_lines(view)) == " no node is heard, so no alignment is seen"


def test_heartbeats_whose_time_is_only_worked_out_anew_are_no_new_heartbeats() -> None:
    series = NodeSeries()
    series.add_heartbeat(START_NS, START_NS)
    series.add_heartbeat(START_NS + S, START_NS + S)
    for second in range(2, 30):
        series.add_heartbeat(START_NS + S + second * 1_000, START_NS + second * S)
    assert series.heartbeat_gaps_s() == [(START_NS + S, 1.0)]


def test_heartbeats_are_those_of_one_fellow_until_it_falls_silent() -> None:
    series = NodeSeries()
    assert series.listens_to("n1", START_NS)
    series.add_heartbeat(START_NS, START_NS)
    assert not series.listens_to("n2", START_NS + S)
    assert series.listens_to("n1", START_NS + S)
    assert series.listens_to("n2", START_NS + 10 * S)
    series.add_heartbeat(START_NS + 500 * S, START_NS + 10 * S)  # its clock is another one
    series.add_heartbeat(START_NS + 501 * S, START_NS + 11 * S)
    assert series.heartbeat_gaps_s() == [(START_NS + 11 * S, 1.0)]


@pytest.mark.parametrize("apart_ms", [0, 300, 1700])
def test_another_fellow_is_the_witness_once_the_first_is_silent(apart_ms: int) -> None:
    model = SystemModel()
    model.apply(Update((ReceivedSnapshot(fake.snapshot(9), START_NS),)), START_NS)

    def tell(teller: int, second: int) -> None:
        now_ns = START_NS + second * S + teller * apart_ms * 1_000_000
        told = fake.snapshot(teller, time_ns=now_ns, fellows=(fake.fellow(9, heartbeat_ns=now_ns),))
        model.apply(Update((ReceivedSnapshot(told, now_ns),)), now_ns)

    for second in range(0, 60, 2):
        for teller in (1, 2, 3):
            if teller > 1 or second < 20:
                tell(teller, second)
    points = model.series[node_id(9)].heartbeat_gaps_s()
    gaps = [gap for _, gap in points]
    times = [moment_ns for moment_ns, _ in points]
    assert set(gaps) == {2.0}
    breaks_s = [(b - a) / S for a, b in itertools.pairwise(times) if b - a > 3 * S]
    assert len(breaks_s) == 1
    assert 10 <= breaks_s[0] <= 17
    assert times[-1] >= START_NS + 58 * S


@pytest.mark.parametrize(("how", "word"), [("killed", "gone"), ("stands still", "gone")])
def test_the_filter_looks_at_the_state_that_is_shown(watched: Watched, how: str, word: str) -> None:
    name = without_a_word(watched, how)
    others = [each for each in NAMES if each != name]

    def shown(wanted: str) -> list[str]:
        overview = Overview(watched.view(wanted, FIELDS), 100)
        return [overview.name(row) for row in range(len(overview.keys))]

    assert shown(f"state:{word}") == [name]
    assert shown("state:complete") == others
    rows = name_space.holders(watched.view(f"state:{word}", ("state",)), "ns1", 150)
    assert rows.keys == (watched.node(name),)

    view = watched.view()
    nodes = export.system(view.health, view.now_ns)["nodes"]
    assert {one["name"]: one["presence"] for one in nodes} == {name: word, **dict.fromkeys(others, "heard")}
    table = csv.DictReader(io.StringIO(export.as_csv(view.health)))
    assert {row["node"]: row["node_state"] for row in table} == {
        name: word,
        **dict.fromkeys(others, "COMPLETE"),
    }


def test_events_and_summary_do_not_count_dead_nodes_among_the_living(watched: Watched) -> None:
    without_a_word(watched, "killed")
    view = watched.view()
    assert plain(incidents.summary(view, 200)).startswith(" ✖ ERROR · 1 error · 2 of 3 nodes complete · ")
