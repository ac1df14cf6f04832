from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.runtime.monitor import (
    AlignmentView,
    DeliveryView,
    GroupView,
    NodeEvent,
    NodeSnapshot,
    StoreStatus,
)
from engine.tracing.catalogue import catalogue
from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from ospltool.views import alignment, groups, name_space, node
from ospltool.views.cells import (
    UNICODE,
    CellTable,
    Column,
    Line,
    Rows,
    Tone,
    fit_line,
    note_width,
    plain,
    spread,
)
from ospltool.views.view import Filter, Subject, View
from tests import fake
from tests.fake import SECOND_NS, START_NS, node_id
from tests.health.looking import looked
from tui.screens import conflicts, stores

S = SECOND_NS


def view_of(
    *snapshots: NodeSnapshot,
    events: Sequence[NodeEvent] = (),
    after_s: float = 0,
    text: str = "",
    fields: tuple[str, ...] = (),
    subject: Subject = Subject(),  # noqa: B008 - a frozen value
    lost: int = 0,
) -> View:
    """The system that these snapshots make, looked at some seconds later."""
    model = SystemModel()
    heard = tuple(ReceivedSnapshot(each, START_NS - (each.id == node_id(lost))) for each in snapshots)
    model.apply(Update(heard, tuple(events)), START_NS)
    if lost:
        model.apply(
            Update(notices=(FeedNotice(NoticeKind.NODE_LOST, START_NS, "", node_id(lost)),)), START_NS
        )
    return View(
        looked(model, START_NS + int(after_s * S)),
        START_NS + int(after_s * S),
        UNICODE,
        Filter.parse(text, fields),
        subject,
    )


def rows_of(table: CellTable) -> list[str]:
    """A table as text: cells cut to their columns, joined by bars, blanks at the end removed."""
    rows = []
    for row in range(len(table.keys)):
        cells = [
            plain(fit_line(table.cell(row, i), column.width, right=column.right)).strip()
            for i, column in enumerate(table.columns)
        ]
        rows.append("|".join(cells))
    return rows


def text_of(lines: Sequence[Line]) -> list[str]:
    return [plain(line).rstrip() for line in lines]


def check_rows(table: CellTable, expected: list[str]) -> None:
    assert rows_of(table) == expected


# Columns.


@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(0, 4), st.integers(0, 30)), min_size=1, max_size=8),
    st.integers(1, 250),
)
def test_columns_share_the_room_and_never_take_more(sizes: list[tuple[int, int, int]], width: int) -> None:
    columns = [
        Column(str(i), "", least, grow=grow, most=least + more) for i, (least, grow, more) in enumerate(sizes)
    ]
    spread_out = spread(columns, width)
    for before, after in zip(columns, spread_out, strict=True):
        assert before.width <= after.width <= before.most
    wanted = [sum(column.width + 1 for column in columns[:seen]) + 1 for seen in range(len(columns) + 1)]
    room = width if wanted[-1] <= width else width - note_width(1)
    seen = sum(each <= room for each in wanted[1:])
    assert sum(column.width + 1 for column in spread_out[:seen]) + 1 <= max(room, 1), "still in view"
    assert spread_out[seen:] == tuple(columns[seen:])


# Node.


N1 = fake.snapshot(
    1,
    fake.name_space("Orders", 1, count=1500),
    fake.name_space("Ticks", 2, confirmed=False, aligner=False, merges=("Ignore Old", "Merge *")),
    fellows=(
        fake.fellow(2, heartbeat_ns=START_NS - 2 * S, skew_ns=1_500_000),
        fake.fellow(3, communication="incompatible", problem="Orders is {a} and {b}"),
        fake.fellow(4, communication="waiting", last_heartbeat_ns=0, state="FETCH_INITIAL"),
        fake.fellow(5, communication="lost"),
    ),
    counters={"captured": 12, "stored": 10},
    deliveries=(
        DeliveryView("p1", "Trade", "Orders", "done", 1000, START_NS - 9 * S, START_NS - 9 * S + 250_000_000),
        DeliveryView("p2", "Trade", "Orders", "failed", 0, START_NS - 5 * S, START_NS - 4 * S, "QoS"),
        DeliveryView("p3", "Trade", "Orders", "running", 3, START_NS - S, 0),
    ),
    store=StoreStatus("sqlite", "/var/n1", findings=("not closed cleanly",)),
)


def test_the_card_says_who_the_node_is() -> None:
    view = view_of(N1)
    assert text_of(node.card(view, view.model.nodes[node_id(1)])) == [
        " ● n1  complete  up 10 min  heard now",
        "   id 000000015a5a5a5a5a5a5a5a5a5a5a5a  run 1  version 0.1.0",
        "   host host-1  pid 4001  role DefaultRole  file:///etc/ospl/n1.xml",
        "   store sqlite /var/n1  found at start: not closed cleanly",
        "   captured 12  stored 10",
    ]


def test_the_card_of_a_store_with_a_problem_is_a_fault() -> None:
    view = view_of(fake.snapshot(1, store=StoreStatus("sqlite", "/var/n1", problem="disk full")))
    card = node.card(view, view.model.nodes[node_id(1)])
    assert card[0][1].tone is Tone.FAULT
    assert card[3][-1] == ("  disk full", Tone.FAULT)


def test_fellows_as_the_node_sees_them() -> None:
    view = view_of(N1, after_s=1)
    check_rows(
        node.fellows(view, view.model.nodes[node_id(1)], 100),
        [
            "≠|n3|DefaultRole|complete|incompatible|1 s|+0 ms|Orders is {a} and {b}",
            "◐|n4|DefaultRole|fetch initial|waiting|never|+0 ms|",
            "✖|n5|DefaultRole|complete|lost|1 s|+0 ms|",
            "●|n2|DefaultRole|complete|approved|3 s|+2 ms|",
        ],
    )


def test_name_spaces_of_a_node_with_their_policies() -> None:
    view = view_of(N1)
    check_rows(
        node.name_spaces(view, view.model.nodes[node_id(1)], 120),
        [
            "★|Orders|n1|complete|1,500|Initial|Persistent|100|Merge *|9f3c",
            "|Ticks|n2|complete|1,000|Initial -|Persistent|100|Ignore Old, Merge *|9f3c",
        ],
    )


def test_late_joiners_the_newest_first() -> None:
    view = view_of(N1)
    check_rows(
        alignment.deliveries(view, view.model.ordered_nodes(), 120),
        [
            "◐|1 s|n1|Orders.Trade|p3|running|3||",
            "✖|5 s|n1|Orders.Trade|p2|failed|0|1.00 s|QoS",
            "●|9 s|n1|Orders.Trade|p1|done|1,000|0.25 s|",
        ],
    )


@pytest.mark.parametrize(
    ("text", "fellows", "spaces"),
    [("", 4, 2), ("n3", 1, 0), ("fellow:n3", 1, 0), ("ns:ticks", 0, 1), ("zzz", 0, 0)],
)
def test_the_filter_of_the_node_screen_works_on_all_tables(text: str, fellows: int, spaces: int) -> None:
    view = view_of(N1, text=text, fields=("fellow", "ns", "role", "state", "topic"))
    shown = view.model.nodes[node_id(1)]
    tables: list[Rows[Any]] = [node.fellows(view, shown, 100), node.name_spaces(view, shown, 100)]
    assert [len(table.keys) for table in tables] == [fellows, spaces]
    assert [table.hidden for table in tables] == [4 - fellows, 2 - spaces]


def test_the_node_that_is_looked_at_is_the_chosen_one_else_the_first() -> None:
    snapshots = (fake.snapshot(2), fake.snapshot(1))
    for chosen, shown in (("", 1), (node_id(2), 2), ("gone", 1)):
        found = node.subject_node(view_of(*snapshots, subject=Subject(chosen)))
        assert found is not None
        assert found.id == node_id(shown)
    assert node.subject_node(view_of()) is None


# Name-space.


def test_a_definition_that_all_share_is_said_once() -> None:
    spaces = fake.name_space("Orders", 1, elements=("Orders.*", "Orders2.Trade"))
    view = view_of(fake.snapshot(1, spaces), fake.snapshot(2, spaces))
    (line,) = name_space.definition_lines(view, "Orders")
    assert plain(line) == " Orders.*, Orders2.Trade  as all 2 nodes define it"


def test_definitions_that_differ_contradict_each_other() -> None:
    view = view_of(
        fake.snapshot(1, fake.name_space("Orders", 1)),
        fake.snapshot(2, fake.name_space("Orders", 1, elements=("Orders.Trade",))),
    )
    lines = name_space.definition_lines(view, "Orders")
    assert text_of(lines) == [" ≠ Orders.*  as n1 defines it", " ≠ Orders.Trade  as n2 defines it"]
    assert {line[0].tone for line in lines} == {Tone.CONFLICT}


def test_the_name_space_on_every_node_that_has_it() -> None:
    view = view_of(
        fake.snapshot(1, fake.name_space("Orders", 1)),
        fake.snapshot(2, fake.name_space("Orders", 1, complete=False, phase="align", confirmed=False)),
        fake.snapshot(3, fake.name_space("Orders", 0), role="Backup"),
        fake.snapshot(4, fake.name_space("Ticks", 1)),
    )
    check_rows(
        name_space.holders(view, "Orders", 120),
        [
            "●★|n1|DefaultRole|complete|1,000|n1|1/00000001|Initial, Persistent|100|Merge *|9f3c",
            "◐ ○|n2|DefaultRole|align|1,000|n1|1/00000001|Initial, Persistent|100|Merge *|9f3c",
            "● ✖|n3|Backup|complete|1,000|nobody|1/00000000|Initial, Persistent|100|Merge *|9f3c",
        ],
    )


def test_who_is_master_and_why_in_each_role() -> None:
    view = view_of(
        fake.snapshot(1, fake.name_space("Orders", 1)),
        fake.snapshot(2, fake.name_space("Orders", 1)),
        fake.snapshot(3, fake.name_space("Orders", 0, why="every masterPriority is 0"), role="Backup"),
    )
    assert text_of(name_space.master_lines(view, "Orders")) == [
        " ★ DefaultRole: n1  highest masterPriority of n1 200, n2 100, n3 50  1/00000001",
        " ✖ Backup: no master  every masterPriority is 0",
    ]


HIGHEST = "highest masterPriority of n1 200, n2 100, n3 50"


def test_the_masters_since_we_watch_the_newest_first() -> None:
    view = view_of(fake.snapshot(1, fake.name_space("Orders", 1)), after_s=60)
    second = fake.snapshot(2, fake.name_space("Orders", 2, epoch="2/00000002", why="n1 was lost"))
    view.model.apply(Update((ReceivedSnapshot(second, START_NS + 30 * S),)), START_NS + 30 * S)
    assert text_of(name_space.history_lines(view, "Orders")) == [
        " 01:03:50   > 30 s ago  n2 for DefaultRole  2/00000002  n1 was lost",
        f" 01:03:20  > 1 min ago  n1 for DefaultRole  1/00000001  {HIGHEST}",
    ]


def test_a_name_space_has_the_sign_of_the_worst_that_a_node_holds_or_follows() -> None:
    whole = fake.name_space("Orders", 1)
    fetching = fake.name_space("Orders", 1, complete=False, phase="align")
    leaderless = fake.name_space("Orders", 0, why="none")
    unheard = fake.name_space("Orders", 4, epoch="4/00000004")
    cases = (
        ((whole, whole, whole), "●"),
        ((whole, fetching, whole), "○"),
        ((unheard, unheard, unheard), "▲"),
        ((whole, fetching, unheard), "★"),  # in the tone of a fault: two are confirmed
        ((leaderless, unheard, unheard), "✖"),
    )
    for spaces, sign in cases:
        fellows = (fake.fellow(4, START_NS - 60 * S),)
        nodes = (fake.snapshot(n, space, fellows=fellows) for n, space in enumerate(spaces, 1))
        rows = name_space.every_name_space(view_of(*nodes), 100)
        assert plain(rows.cell(0, 0)) == sign, spaces


def test_only_the_trouble_of_this_name_space_is_shown() -> None:
    spaces = (fake.name_space("Orders", 0, why="none"), fake.name_space("Ticks", 0, why="none"))
    view = view_of(fake.snapshot(1, *spaces))
    lines = name_space.trouble_lines(view, "Ticks", view.health.open)
    assert text_of(lines) == [" ✖   20 s  DUL-NO-MASTER  Ticks has no master on n1: none"]


def test_a_node_that_is_gone_is_trouble_of_its_name_spaces() -> None:
    both = (fake.name_space("Orders", 1), fake.name_space("Ticks", 1))
    due_before = fake.snapshot(2, both[0], update_period_ns=0)
    view = view_of(fake.snapshot(1, *both), due_before, lost=2)
    gone = [one for one in view.health.open if one.code.id == "DUL-NODE-GONE"]
    assert [one.subjects for one in gone] == [(node_id(2),)]
    here = text_of(name_space.trouble_lines(view, "Orders", gone))
    assert [line.endswith("n2 is gone") for line in here] == [True]
    assert name_space.trouble_lines(view, "Ticks", gone) == []


# Alignment.


def aligning(direction: str, fellow: int, samples: int = 250) -> AlignmentView:
    return AlignmentView(direction, node_id(fellow), samples, 1000, samples * 100, START_NS - 3 * S)


def test_each_alignment_is_shown_once_as_the_alignee_tells_it() -> None:
    view = view_of(
        fake.snapshot(
            1, fake.name_space("Orders", 1, alignments=(aligning("to", 2, 260), aligning("to", 3)))
        ),
        fake.snapshot(2, fake.name_space("Orders", 1, complete=False, alignments=(aligning("from", 1),))),
    )
    check_rows(
        alignment.alignments(view, 110),
        [
            "◐|3 s|Orders|n1|n2|━━━╸╌╌╌╌╌╌╌╌╌╌|25 %|250/1,000|83/s|9 s|24.4 KiB",
            "◐|3 s|Orders|n1|00000003|━━━╸╌╌╌╌╌╌╌╌╌╌|25 %|250/1,000|83/s|9 s|24.4 KiB",
        ],
    )


def test_where_there_is_little_room_rate_and_time_left_take_the_place_of_the_bar() -> None:
    view = view_of(fake.snapshot(2, fake.name_space("Orders", 1, complete=False, alignments=())))
    columns = alignment.alignments(view, 80).columns
    assert "bar" not in {column.key for column in columns}
    until = [column.key for column in columns].index("left") + 1
    assert sum(column.width + 1 for column in columns[:until]) <= 80 - note_width(1)


def test_an_alignment_that_stands_still_is_marked() -> None:
    snapshot = fake.snapshot(
        2, fake.name_space("Orders", 1, complete=False, alignments=(aligning("from", 1),))
    )
    view = view_of(msgspec.structs.replace(snapshot, update_period_ns=100 * S), after_s=11)
    assert rows_of(alignment.alignments(view, 110))[0].startswith("▲|14 s|Orders|")


def test_without_alignments_it_says_what_waits() -> None:
    (line,) = text_of(alignment.idle_lines(view_of(N1)))
    assert line.startswith(" nothing is being aligned: every set is complete on the nodes that are heard;")
    assert line.endswith("; n2: not heard yet, and 3 more")
    waiting = fake.snapshot(2, fake.name_space("Orders", 1, complete=False, phase="wait"))
    assert text_of(alignment.idle_lines(view_of(waiting))) == [
        " ○ Orders on n2 is not complete and waits in phase wait"
    ]
    passive = fake.snapshot(2, fake.name_space("Orders", 1, complete=False, phase="passive"))
    assert text_of(alignment.idle_lines(view_of(passive))) == [
        " nothing is being aligned: every set is complete but 1, which may stay without samples"
    ]


def told(seconds: int, event: str, **fields: Any) -> NodeEvent:
    text = catalogue()[event].text.format(**fields)
    return fake.event(seconds, 1, START_NS + seconds * S, text, event=event)


CONFLICTS = (
    told(1, "conflict.native-state", namespace="Orders", fellow="n2", conflict="2/a"),
    told(2, "merge.started", namespace="Orders", fellow="n2", conflict="2/a", policy="Merge", role="R"),
    told(5, "merge.finished", namespace="Orders", role="R", policy="merge", samples=3, elapsed_ns=1),
    told(6, "merge.started", namespace="Ticks", fellow="n2", conflict="2/b", policy="Replace", role="R"),
)


def test_open_conflicts_come_first_and_snapshots_tell_of_them_too() -> None:
    incompatible = fake.fellow(4, communication="incompatible", problem="Orders is {a} and {b}")
    view = view_of(fake.snapshot(1, fellows=(incompatible,)), events=CONFLICTS, after_s=10)
    check_rows(
        conflicts.conflicts(view, 160),
        [
            "≠|4 s||n1|n2|Ticks|sets evolved apart|Replace|merging",
            "≠|||n1|n4||name-spaces overlap without being equal||open",
            "●|9 s|4.00 s|n1|n2|Orders|set with another history, same role|Merge|merge: 3 samples moved",
        ],
    )
    assert conflicts.conflict_title(view, conflicts.conflicts(view, 120)) == "conflicts: 2 open, 1 over"


@pytest.mark.parametrize(
    ("text", "number"), [("", 2), ("state:open", 1), ("state:over", 1), ("ns:orders", 1), ("policy:merge", 1)]
)
def test_conflicts_can_be_filtered(text: str, number: int) -> None:
    view = view_of(events=CONFLICTS, text=text, fields=conflicts.CONFLICT_FIELDS)
    rows = conflicts.conflicts(view, 120)
    assert (len(rows.keys), rows.hidden) == (number, 2 - number)


def test_a_conflict_in_full_is_in_the_words_of_the_node() -> None:
    view = view_of(events=CONFLICTS)
    one = view.model.conflicts.every(view.model.nodes)[1]
    assert text_of(conflicts.conflict_lines(view, one, 100)) == [
        " set with another history, same role  began 2026-11-21 01:03:21.000, ended 2026-11-21 01:03:25.000",
        " Native state conflict in namespace 'Orders' for fellow n2 detected, conflict 2/a created",
    ]


# Groups and stores.


def group(topic: str, **changes: Any) -> GroupView:
    view = GroupView(
        "Orders", "Orders", topic, "T", "PERSISTENT", 100, 10, 2048, "d", START_NS - 5 * S, 100, 0
    )
    return msgspec.structs.replace(view, **changes)


def settled(*snapshots: NodeSnapshot, **options: Any) -> View:
    """The same snapshots again after ten seconds, so that nothing moves any more."""
    view = view_of(*snapshots, after_s=10, **options)
    again = tuple(ReceivedSnapshot(snapshot, view.now_ns) for snapshot in snapshots)
    view.model.apply(Update(again), view.now_ns)
    return view


GROUPS = (
    fake.snapshot(
        1, fake.name_space("Orders", 1), groups=(group("Trade"), group("Quote", samples=7, stored=3))
    ),
    fake.snapshot(
        2,
        fake.name_space("Orders", 1, digest="other"),
        groups=(group("Trade", digest="other", samples=99), group("Quote", durability="TRANSIENT", lost=2)),
        groups_left_out=4,
    ),
)


def test_groups_with_the_figures_of_all_nodes() -> None:
    view = settled(*GROUPS)
    rows = groups.groups(view, 120)
    check_rows(
        rows,
        [
            "▲|Orders.Quote|Orders|2|100|10|2.0 KiB|15 s|-4|2||T",
            "≠|Orders.Trade|Orders|2|100|10|2.0 KiB|15 s|all||n2|T",
        ],
    )
    assert next(each.most for each in rows.columns if each.key == "space") == 10
    assert groups.group_title(view, rows) == "2 groups, 4 more not told by their nodes or not kept"


@pytest.mark.parametrize(
    ("text", "topics"),
    [("", ["Quote", "Trade"]), ("topic:trade", ["Trade"]), ("differs:n2", ["Trade"]), ("!trade", ["Quote"])],
)
def test_groups_can_be_filtered_also_by_who_differs(text: str, topics: list[str]) -> None:
    rows = groups.groups(settled(*GROUPS, text=text, fields=groups.GROUP_FIELDS), 120)
    assert [rows.items[i][1].topic for i in range(len(rows.keys))] == topics


def test_a_group_of_which_readers_ask_for_more_than_is_kept_shows_both() -> None:
    one = fake.snapshot(1, fake.name_space("Orders", 1), groups=(group("Trade", depth=2, asked=5),))
    view = settled(one)
    (key,) = view.model.groups.ordered()
    _, line = text_of(groups.group_lines(view, key))
    assert "keeps KEEP_LAST 2, readers ask for KEEP_LAST 5" in line


def test_a_group_in_full_shows_each_node() -> None:
    view = settled(*GROUPS)
    key = next(key for key in view.model.groups if key.topic == "Trade")
    lines = groups.group_lines(view, key)
    assert text_of(lines) == [
        " Orders.Trade  type T  in Orders, 2 nodes",
        " ★ n1 100 samples  10 instances  2.0 KiB  on disk all  digest d",
        " ≠ n2 99 samples  10 instances  2.0 KiB  on disk all  digest other",
    ]
    assert lines[2][1].tone is Tone.WARN


def test_stores_with_what_is_not_on_disk_yet() -> None:
    full = StoreStatus("sqlite", "/n2", problem="disk full", disk_bytes=94_500_000)
    view = view_of(GROUPS[0], msgspec.structs.replace(GROUPS[1], store=full))
    rows = stores.stores(view, 140)
    assert rows_of(rows)[0].startswith("●|n1|sqlite|1 of 1|107|103|4|0|4.0 KiB||/var/lib/ospltool/n1|")
    assert rows_of(rows)[1].startswith("✖|n2|sqlite|1 of 1|199|200||0|4.0 KiB|90.1 MiB|/n2|disk full")
    titles = {column.key: column.title for column in rows.columns}
    assert (titles["bytes"], titles["disk"]) == ("payload", "disk")
    first = view.model.nodes[node_id(1)]
    assert text_of(stores.store_lines(view, first, 80))[1:] == [
        "   Orders.Quote    7 samples  4 of them not on disk yet",
        "   Orders.Trade  100 samples  on disk",
    ]


def test_requests_are_counted_and_those_that_were_combined() -> None:
    def told(number: int, name: str, **fields: object) -> NodeEvent:
        text = catalogue()[name].text.format(**fields)
        return fake.event(number, 1, START_NS + number, text, event=name)

    request = {"group": "Orders", "fellow": "n2", "source": "1"}
    sent = {"samples": 7, "group": "Orders", "fellow": "n2,n3", "total": 9, "bytes": 90}
    fields = catalogue()["align.sent"].fields
    events = (
        told(1, "align.request-received", **request),
        told(2, "align.request-received", **{**request, "fellow": "n3"}),
        told(3, "align.sent", **{name: sent.get(name, 2) for name in fields}),
        told(4, "compatibility.approved", fellow="n2"),
    )
    view = view_of()
    assert text_of(alignment.told_lines(view, 5, 200)) == [" no requests yet"]
    view.model.apply(Update(events=events), START_NS)
    assert alignment.counts(view) == "2 requests received while watching, 1 combined with another"
    lines = text_of(alignment.told_lines(view, 5, 200))
    assert len(lines) == 3
    assert text_of(alignment.told_lines(view, 2, 200)) == lines[-2:]


def test_a_name_space_shows_the_nodes_in_trouble_first() -> None:
    whole = fake.name_space("Orders", 1)
    coming = fake.name_space("Orders", 1, complete=False, phase="aligning")
    orphan = fake.name_space("Orders", 0, confirmed=False)
    known = tuple(fake.fellow(n) for n in (1, 2, 3, 4))
    spaces = enumerate((whole, whole, coming, orphan), 1)
    view = view_of(*(fake.snapshot(n, space, fellows=known) for n, space in spaces))
    assert name_space.holders(view, "Orders", 120).keys == tuple(node_id(n) for n in (4, 3, 1, 2))


@pytest.mark.parametrize("width", [120, 200])
def test_the_path_of_a_store_is_whole_where_there_is_room(width: int) -> None:
    path = "/var/lib/ospltool/n1"
    rows = stores.stores(view_of(fake.snapshot(1, store=StoreStatus("sqlite", path))), width)
    (column,) = [column for column in rows.columns if column.key == "path"]
    assert column.width >= len(path)
    assert sum(column.width + 1 for column in rows.columns) < width


@pytest.mark.parametrize("kind", ["memory", "sqlite", "simulated"])
@pytest.mark.parametrize("width", [80, 120])
def test_the_kind_of_a_store_is_whole(kind: str, width: int) -> None:
    rows = stores.stores(view_of(fake.snapshot(1, store=StoreStatus(kind, "/var/lib/ospltool/n1"))), width)
    (column,) = [column for column in rows.columns if column.key == "kind"]
    assert column.width >= len(kind)
