from __future__ import annotations

import dataclasses

import msgspec
import pytest

from engine.runtime.monitor import AlignmentView, DeliveryView, NodeSnapshot, UnkeptView
from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from ospltool.views.cells import ASCII, UNICODE, Tone, fit_line, plain
from ospltool.views.overview import (
    FIELDS,
    Overview,
    application_lines,
    detail,
    flows,
    hour_lines,
    hour_title,
    mesh_lines,
    nothing_shown,
)
from ospltool.views.view import Filter, View
from tests import fake
from tests.fake import SECOND_NS, START_NS, node_id
from tests.health.looking import looked

S = SECOND_NS


def aligning(samples: int, expected: int) -> AlignmentView:
    return AlignmentView("from", node_id(1), samples, expected, 0, START_NS)


def view_of(*snapshots: NodeSnapshot, after_s: float = 0, text: str = "", lost: int = 0) -> View:
    model = SystemModel()
    model.apply(Update(snapshots=tuple(ReceivedSnapshot(s, START_NS) for s in snapshots)), START_NS)
    if lost:
        notice = FeedNotice(NoticeKind.NODE_LOST, START_NS, "", node_id(lost))
        model.apply(Update(notices=(notice,)), START_NS)
    return View(
        looked(model, START_NS + int(after_s * S)),
        START_NS + int(after_s * S),
        UNICODE,
        Filter.parse(text, FIELDS),
    )


def table(view: View, width: int) -> list[str]:
    """The matrix as text, cells cut to their columns and joined by a bar."""
    overview = Overview(view, width)
    rows = []
    for row in range(len(overview.keys)):
        cells = [
            plain(fit_line(overview.cell(row, i), column.width, right=column.right))
            for i, column in enumerate(overview.columns)
        ]
        rows.append("|".join(cells))
    return rows


def check_table(view: View, expected: list[str], width: int = 80) -> None:
    assert table(view, width) == expected


THREE = (
    fake.snapshot(1, fake.name_space("Orders", 1, count=12345), fake.name_space("Ticks", 2)),
    fake.snapshot(2, fake.name_space("Orders", 1, count=12345), fake.name_space("Ticks", 2, confirmed=False)),
    fake.snapshot(
        3,
        fake.name_space("Orders", 1, complete=False, alignments=(aligning(412, 1000),)),
        state="FETCH_INITIAL",
    ),
)


def test_a_quiet_system() -> None:
    check_table(
        view_of(*THREE),
        [
            "◐|n3    |fetch initial   |   now| ◐     41 % ━━━╸╌╌╌╌╌|·                    ",
            "●|n1    |complete        |   now|★    12,345          |      1,000          ",
            "●|n2    |complete        |   now|     12,345          |☆     1,000          ",
        ],
    )


def test_it_fits_on_a_small_screen_with_eight_nodes_and_six_name_spaces() -> None:
    spaces = [fake.name_space(f"space-{i}", 1) for i in range(6)]
    overview = Overview(view_of(*(fake.snapshot(n, *spaces) for n in range(1, 9))), 80)
    assert sum(column.width + 1 for column in overview.columns) + 1 <= 80
    assert len(overview.keys) == 8
    assert len(overview.columns) == 4 + 6


@pytest.mark.parametrize(
    ("changes", "cell", "tone"),
    [
        ({}, "      1,000             ", Tone.PLAIN),
        ({"complete": False, "count": 0}, " ○      0 % ╌╌╌╌╌╌╌╌╌╌╌╌", Tone.PLAIN),
        ({"complete": False, "count": 9}, " ○     99 % ━━━━━━━━━━━╸", Tone.PLAIN),
        (
            {"complete": False, "count": 0, "alignments": (aligning(0, 0),)},
            " ◐      0 % ╌╌╌╌╌╌╌╌╌╌╌╌",
            Tone.PLAIN,
        ),
        (
            {"complete": False, "count": 0, "alignments": (aligning(1, 1000),)},
            " ◐      1 % ╸╌╌╌╌╌╌╌╌╌╌╌",
            Tone.PLAIN,
        ),
        ({"complete": False, "alignments": (aligning(1000, 1000),)}, " ◐     99 % ━━━━━━━━━━━╸", Tone.PLAIN),
        ({"complete": False, "alignments": (aligning(9, 2),)}, " ◐     99 % ━━━━━━━━━━━╸", Tone.PLAIN),
        ({"master": ""}, " ✖    1,000             ", Tone.FAULT),
        ({"master": node_id(2)}, "★     1,000             ", Tone.PLAIN),
        ({"count": 123_456_789}, "    123.5 M             ", Tone.PLAIN),
    ],
)
def test_a_cell_says_master_state_and_completeness(changes: dict[str, object], cell: str, tone: Tone) -> None:
    view = view_of(fake.snapshot(2, fake.name_space("Orders", 1, **changes), fake.name_space("Ticks", 1)))
    overview = Overview(view, 80)
    assert plain(fit_line(overview.cell(0, 4), overview.columns[4].width)) == cell
    assert overview.cell(0, 4)[1].tone is tone


@pytest.mark.parametrize(
    ("after_s", "lost", "row"),
    [
        (1, 0, "●|n1    |complete  |   1 s|"),
        (2.8, 0, "▲|n1    |silent    |   2 s|"),
        (200, 0, "▲|n1    |silent    | 3 min|"),
        (1, 1, "✖|n1    |gone      |   1 s|"),
    ],
)
def test_a_node_that_is_not_heard_says_so_and_dims(after_s: float, lost: int, row: str) -> None:
    view = view_of(THREE[0], after_s=after_s, lost=lost)
    assert table(view, 80)[0].startswith(row)
    tones = {span.tone for column in range(4, 6) for span in Overview(view, 80).cell(0, column)}
    assert (tones == {Tone.DIM}) is (row[0] != "●")


def test_a_node_that_is_cut_off_from_its_fellows_is_heard_by_the_watch() -> None:
    late = fake.fellow(1, START_NS - 13 * S, communication="lost")
    cut = fake.snapshot(1, fellows=(fake.fellow(2, START_NS - 13 * S, communication="lost"),))
    row = table(view_of(cut, fake.snapshot(2, fellows=(late,)), after_s=1), 80)[0]
    assert row == "●|n1    |complete  |   1 s"


@pytest.mark.parametrize(
    ("text", "rows", "spaces"),
    [
        ("", ["n3", "n1", "n2"], ["Orders", "Ticks"]),
        ("n2", ["n2"], ["Orders", "Ticks"]),
        ("!n2", ["n3", "n1"], ["Orders", "Ticks"]),
        ("state:fetch", ["n3"], ["Orders", "Ticks"]),
        ("host:host-1", ["n1"], ["Orders", "Ticks"]),
        ("ns:tick", ["n3", "n1", "n2"], ["Ticks"]),
        ("n1 !ns:tick", ["n1"], ["Orders"]),
        ("nothing", [], ["Orders", "Ticks"]),
    ],
)
def test_the_filter_chooses_rows_and_columns(text: str, rows: list[str], spaces: list[str]) -> None:
    overview = Overview(view_of(*THREE, text=text), 80)
    assert [overview.name(i) for i in range(len(overview.keys))] == rows
    assert overview.name_spaces == spaces


def test_every_sign_has_an_ascii_form() -> None:
    view = dataclasses.replace(view_of(*THREE), glyphs=ASCII)
    assert all(row.isascii() for row in table(view, 80))


def test_the_detail_says_who_is_master_and_why() -> None:
    view = view_of(*THREE)
    first, second = detail(view, view.model.nodes[node_id(3)], "Orders")
    assert plain(first) == " Orders on n3  master n1: highest masterPriority of n1 200, n2 100, n3 50"
    assert plain(second).startswith(" 1,000 samples in 2 groups, complete  digest 9f3c  epoch 1/00000001")


def test_the_detail_of_a_name_space_that_is_not_there() -> None:
    view = view_of(*THREE)
    first, _ = detail(view, view.model.nodes[node_id(3)], "Ticks")
    assert plain(first).startswith(" Ticks is not on n3  host host-3")


def test_an_empty_matrix_says_why_it_is_empty() -> None:
    assert plain(nothing_shown(view_of())[0]) == " no node heard yet"
    hidden = plain(nothing_shown(view_of(*THREE, text="zzz"))[0])
    assert hidden == " no node matches the filter 'zzz'; 3 nodes hidden"


def test_a_node_that_stopped_in_order_stands_below_healthy_ones_and_differs_from_nobody() -> None:
    """What it has while it is away is no difference between sets, and asks for nothing."""
    model = SystemModel()
    spaces = [fake.name_space("Orders", 2, digest=digest) for digest in ("a", "b", "b")]
    for moment_ns in (START_NS, START_NS + 10 * S):
        heard = tuple(
            ReceivedSnapshot(
                fake.snapshot(n, space, fellows=tuple(fake.fellow(m) for m in (1, 2, 3) if m != n)), moment_ns
            )
            for n, space in enumerate(spaces, 1)
            if n > 1 or moment_ns == START_NS
        )
        model.apply(Update(heard), moment_ns)
    stopped = FeedNotice(NoticeKind.NODE_LOST, START_NS + S, "", node_id(1), in_order=True)
    model.apply(Update(notices=(stopped,)), START_NS + 10 * S)
    view = View(looked(model, START_NS + 10 * S), START_NS + 10 * S, UNICODE)
    shown = Overview(view, 120, view.health.open)
    assert shown.keys == (node_id(2), node_id(3), node_id(1))
    assert "≠" not in plain(shown.cell(2, shown.fixed))


def test_a_node_that_fits_nobody_does_not_look_complete() -> None:
    refused = tuple(fake.fellow(n, communication="incompatible", problem="A: {a}") for n in (1, 2))
    strange = fake.fellow(3, communication="incompatible", problem="A: {a}")
    view = view_of(
        fake.snapshot(1, fellows=(fake.fellow(2), strange)),
        fake.snapshot(2, fellows=(fake.fellow(1), strange)),
        fake.snapshot(3, fellows=refused),
    )
    shown = Overview(view, 120, view.health.open)
    cells = [[plain(shown.cell(row, column)) for column in range(3)] for row in range(3)]
    assert cells == [["≠", "n3", "incompatible"], ["●", "n1", "complete"], ["●", "n2", "complete"]]


def test_the_last_hour_marks_what_began_and_what_nodes_told() -> None:
    view = view_of(*THREE, lost=2, after_s=9)
    view.health.update(view.now_ns)
    told = fake.event(1, 1, START_NS - 1800 * S, "Store full.", level="WARNING")
    old = fake.event(2, 1, START_NS - 4000 * S, "Store full.", level="SEVERE")
    view.model.apply(Update(events=(told, old)), view.now_ns)
    number = len(view.health.open) + len(view.health.closed)
    assert hour_title(view) == f"masters of the last 1 h, {number} incidents (✖ error, ▲ warning)"
    *masters, marks, clock = map(plain, hour_lines(view, 62, 9))
    assert len(masters) == 2
    assert "DUL-DOMAIN-LOST" in {one.code.id for one in view.health.open}
    assert marks[2:].index("▲") == 29
    assert marks.rstrip().endswith("✖")
    assert clock.startswith("  00:03    00:13")
    assert clock.endswith("now")


@pytest.mark.parametrize(
    ("changes", "after_s", "cell"),
    [
        ({"count": 12_345}, 0, "     12,345"),
        ({"count": 12_091, "digest": "8e"}, 0, "     12,091 ↓254 behind"),
        ({"count": 12_357, "digest": "8e"}, 0, "     12,357 ↑12 ahead"),
        ({"count": 12_091, "digest": "8e", "filtered": True}, 0, "     12,091"),
        ({"count": 400, "complete": False, "alignments": (aligning(400, 1000),)}, 0, " ◐     40 % ━━"),
    ],
)
def test_a_cell_says_by_how_much_a_set_differs_from_that_of_its_master(
    changes: dict[str, object], after_s: float, cell: str
) -> None:
    view = view_of(
        fake.snapshot(1, fake.name_space("Orders", 1, count=12_345)),
        fake.snapshot(2, fake.name_space("Orders", 1, **changes)),
        after_s=after_s,
    )
    shown = Overview(view, 120)
    row = shown.keys.index(node_id(2))
    assert plain(shown.cell(row, shown.fixed)).rstrip().startswith(cell.rstrip())
    is_quiet = all(span.tone is Tone.DIM for span in shown.cell(row, shown.fixed) if span.text.strip())
    assert is_quiet is (cell.strip()[-1].isdigit())


def test_what_is_written_meanwhile_is_no_difference() -> None:
    """The snapshots of two nodes are never taken at the same moment."""
    model = SystemModel()
    for second in range(5):
        now_ns = START_NS + second * S
        counts = {1: 10_000 + 100 * second, 2: 9_900 + 100 * second}
        heard = tuple(
            ReceivedSnapshot(
                fake.snapshot(
                    node, fake.name_space("Orders", 1, count=count, digest=str(count)),
                    counters={"stored": count}, time_ns=now_ns,
                ),
                now_ns,
            )
            for node, count in counts.items()
        )  # fmt: skip
        model.apply(Update(snapshots=heard), now_ns)
    view = View(looked(model, now_ns), now_ns, UNICODE)
    shown = Overview(view, 120)
    assert plain(shown.cell(1, shown.fixed)).strip() == "10,300"
    (stored, waits) = flows(view)
    assert stored[0] == "samples stored by all nodes: 200/s"
    assert waits[0].startswith("longest wait for a node: 1.0 s")


def test_masters_stand_in_the_time_in_which_they_led() -> None:
    model = SystemModel()
    for minutes, master in ((50, 1), (30, 2), (10, 1)):
        since_ns = START_NS - minutes * 60 * S
        space = fake.name_space("Orders", master, epoch=f"{60 - minutes}/x", master_since_ns=since_ns)
        heard = (ReceivedSnapshot(fake.snapshot(n, space, time_ns=since_ns), since_ns) for n in (1, 2))
        model.apply(Update(snapshots=tuple(heard)), since_ns)
    view = View(looked(model, START_NS), START_NS, UNICODE)
    line = plain(hour_lines(view, 129, 3)[0])
    names = [(word, line.index(word) - 8) for word in ("◆n1", "◆n2")]
    assert names == [("◆n1", 20), ("◆n2", 60)]
    assert line.rindex("◆n1") - 8 == 100
    assert hour_title(view).startswith("masters of the last 1 h, ◆ 2 hand-overs")


def test_who_hears_whom_is_shown_when_somebody_does_not() -> None:
    met = {1: (2, 3), 2: (1,), 3: (1,)}
    nodes = [fake.snapshot(n, fellows=tuple(map(fake.fellow, others))) for n, others in met.items()]
    assert [plain(line).rstrip() for line in mesh_lines(view_of(*nodes))] == [
        "    hears n2 n3",
        " n2          ✖",
        " n3       ✖",
    ]
    whole = [fake.snapshot(n, fellows=tuple(fake.fellow(f) for f in (1, 2, 3) if f != n)) for n in (1, 2, 3)]
    assert mesh_lines(view_of(*whole)) == []


def test_applications_that_get_nothing_are_named_with_the_reason() -> None:
    done = DeliveryView("a", "Trade", "Orders", "done", 1000, START_NS - 9 * S, START_NS - 8 * S)
    failed = msgspec.structs.replace(done, participant="b", state="failed", problem="no matching reader")
    unkept = UnkeptView("w1", "sea.temp", "", "type", "keyed type without type information")
    node = fake.snapshot(1, deliveries=(done, failed), unkept=(unkept,))
    other = fake.snapshot(2, unkept=(unkept,))
    assert [plain(line).strip() for line in application_lines(view_of(node, other), 120)] == [
        "all nodes: captured 0/s, stored 0/s, delivered 0/s",
        "1 late joiner served, 1,000 samples  ✖ 1 failed",
        "✖ reader of Orders.Trade, served by n1, failed: no matching reader",
        "▲ writer of .sea.temp not kept: keyed type without type information",
    ]
