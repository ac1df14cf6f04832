from __future__ import annotations

import dataclasses
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.runtime.monitor import AlignmentView, DeliveryView, NodeEvent
from engine.tracing.catalogue import catalogue
from ospltool.health.mutes import Mute, MuteEnd
from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from ospltool.views import events, incidents
from ospltool.views.cells import UNICODE, Tone, plain
from ospltool.views.events import event_rows, newest_events, sentence
from ospltool.views.view import Filter, View
from tests import fake
from tests.fake import SECOND_NS, START_NS, node_id
from tests.health.looking import looked
from tui import panels
from tui.app import TABS
from tui.panels import ConsoleStatus

S = SECOND_NS


def view_of(*updates: Update, after_s: float = 0, text: str = "") -> View:
    model = SystemModel()
    for update in updates:
        model.apply(update, START_NS)
    return View(
        looked(model, START_NS + int(after_s * S)), START_NS + int(after_s * S), UNICODE, Filter.parse(text)
    )


def event_texts(view: View, number: int, width: int) -> list[str]:
    rows = event_rows(view, number, width)
    return [plain(rows.line(row) or ()) for row in range(len(rows.keys))]


def heard(*snapshots: object) -> Update:
    return Update(snapshots=tuple(ReceivedSnapshot(s, START_NS) for s in snapshots))  # type: ignore[arg-type]  # table


@pytest.mark.parametrize(
    ("status", "notices", "right", "tone"),
    [
        (ConsoleStatus("t", "domain 7", "live"), (), "live  01:03:20 UTC ", Tone.DIM),
        (
            ConsoleStatus("t", "domain 7", "live", paused=True, behind_ns=12 * S),
            (),
            "PAUSED, 12 s behind  01:03:20 UTC ",
            Tone.WARN,
        ),
        (
            ConsoleStatus("t", "domain 7", "live"),
            (FeedNotice(NoticeKind.DOMAIN_LOST, START_NS - 25 * S, ""),),
            "✖ DOMAIN LOST 25 s ago  01:03:20 UTC ",
            Tone.FAULT,
        ),
        (
            ConsoleStatus("t", "night", "recorded"),
            (FeedNotice(NoticeKind.END, START_NS, ""),),
            "end of recording  01:03:20 UTC ",
            Tone.STRONG,
        ),
    ],
)
def test_the_header_says_what_is_watched_and_how(
    status: ConsoleStatus, notices: tuple[FeedNotice, ...], right: str, tone: Tone
) -> None:
    status = dataclasses.replace(status, screens=("overview", "node", "trace"))
    is_lost = any(one.kind is NoticeKind.DOMAIN_LOST for one in notices)
    before = tuple(ReceivedSnapshot(fake.snapshot(1), START_NS - 25 * S) for _ in range(is_lost))
    view = view_of(Update(snapshots=before), Update(notices=notices))
    line, tabs = panels.header(view, status, "node", "node n1", 80)
    assert plain(line).endswith(right)
    assert plain(line).startswith(f" t  {status.source} · node n1 ")
    assert len(plain(line)) == 80
    assert line[-2].tone is tone
    assert plain(tabs).rstrip() == " 1 overview 2 node 3 trace"
    assert [span.tone for span in tabs[:3]] == [Tone.DIM, Tone.STRONG, Tone.DIM]


@pytest.mark.parametrize(
    ("width", "start", "tabs"),
    [
        (
            120,
            " ospltool  domain 7 · node n1 ",
            " 1 overview 2 node 3 name-space 4 alignment 5 incidents 6 groups 7 trace 8 store",
        ),
        (
            80,
            " ospltool  domain 7 · node n1 ",
            " 1 overview 2 node 3 name-space 4 alignment 5 incidents 6 groups 7 trace 8 9 0 ",
        ),
        (
            60,
            " ospltool  domain 7 · node n1 ",
            " 1 overview 2 node 3 name-space 4 alignment 5 6 7 8 9 0 ",
        ),
        (44, " domain 7 · node n1 ", " 1 overview 2 node 3 4 5 6 7 8 9 0 "),
        (30, " node n", " 1 2 node 3 4 5 6 7 8 9 0 "),
    ],
)
def test_a_screen_has_one_name_at_all_widths_and_the_last_lose_theirs_first(
    width: int, start: str, tabs: str
) -> None:
    status = ConsoleStatus("ospltool", "domain 7", "live", screens=TABS)
    first, second = map(plain, panels.header(view_of(), status, "node", "node n1", width))
    assert first.startswith(start)
    assert first.endswith("  live  01:03:20 UTC ")
    assert second.startswith(tabs)
    assert len(first) == len(second) == width


def test_a_console_that_may_change_nodes_says_so() -> None:
    status = ConsoleStatus("t", "domain 7", "live", operates=True)
    first = panels.header(view_of(), status, "node", "node", 80)[0]
    assert plain(first).endswith("  OPERATE live  01:03:20 UTC ")


def test_a_caption_takes_at_most_two_lines_and_none_when_there_is_none() -> None:
    assert panels.caption_lines(view_of(), 80) == []
    lines = panels.caption_lines(view_of(Update(caption="word " * 60)), 40)
    assert len(lines) == 2
    assert plain(lines[1]).endswith("…")


@pytest.mark.parametrize(
    ("update", "text"),
    [
        (Update(), " nobody heard yet"),
        (heard(fake.snapshot(1)), " ● OK · 1 of 1 node complete · 0 name-spaces · 0 samples"),
        (
            heard(
                fake.snapshot(
                    1,
                    fake.name_space("A", 1, count=5),
                    fake.name_space("B", 1, count=2000),
                    fellows=(fake.fellow(2),),
                ),
                fake.snapshot(2, fake.name_space("A", 1, count=7), fellows=(fake.fellow(1),)),
            ),
            (
                " ● OK · 2 of 2 nodes complete · redundancy left 0: the last copy (B: 1 copy, 1 on disk)"
                " · 2 name-spaces · 2,007 samples"
            ),
        ),
        (
            heard(
                fake.snapshot(
                    1, fake.name_space("A", 0, why="all priorities are 0"), fellows=(fake.fellow(2),)
                ),
                fake.snapshot(2, fellows=(fake.fellow(1, skew_ns=5 * S),)),
            ),
            (
                " ✖ ERROR · 1 error, 1 warning · 2 of 2 nodes complete"
                " · redundancy left 0: the last copy (A: 1 copy, 1 on disk) · 1 name-space · 1,000 samples"
            ),
        ),
    ],
)
def test_the_summary_is_one_line_for_the_whole_system(update: Update, text: str) -> None:
    view = view_of(update)
    assert plain(incidents.summary(view, 200)) == text


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (
            106,
            (
                " ● OK · 1 of 1 node complete · redundancy left 0: the last copy (A: 1 copy, 1 on disk)"
                " · 1 name-space"
            ),
        ),
        (92, " ● OK · 1 of 1 node complete · redundancy left 0: the last copy (A: 1 copy, 1 on disk)"),
        (60, " ● OK · 1 of 1 node complete · redundancy left 0"),
        (20, " ● OK · 1 name-space"),
        (4, " ● OK"),
    ],
)
def test_the_summary_leaves_out_what_does_not_fit_and_cuts_nothing(width: int, text: str) -> None:
    view = view_of(heard(fake.snapshot(1, fake.name_space("A", 1))))
    assert plain(incidents.summary(view, width)) == text


def test_attention_names_concerns_before_alignments() -> None:
    running = AlignmentView("from", node_id(1), 250, 1000, 0, START_NS - 3 * S)
    view = view_of(
        heard(
            fake.snapshot(1, fellows=(fake.fellow(2), fake.fellow(3))),
            fake.snapshot(
                2,
                fake.name_space("A", 1, complete=False, alignments=(running,)),
                fellows=(fake.fellow(1), fake.fellow(3)),
            ),
            fake.snapshot(3, fake.name_space("A", 0, why="none"), fellows=(fake.fellow(1), fake.fellow(2))),
        )
    )
    found = incidents.notables(view, view.health.open)
    assert [(one.screen, one.subject.node, one.subject.name_space) for one in found] == [
        ("incident", node_id(3), "A"),
        ("alignment", node_id(2), "A"),
    ]
    assert found[0].subject.incident == view.health.open[0].key
    assert [plain(one.line) for one in found] == [
        " ✖   20 s  DUL-NO-MASTER  A has no master on n3: none",
        " ◐    3 s  A  n1 → n2  ━━╸╌╌╌╌╌╌╌  25 %  250/1,000  83/s  9 s left",
    ]


def test_an_alignment_with_a_rate_says_what_is_left() -> None:
    def running(samples: int) -> Update:
        alignment = AlignmentView("from", node_id(1), samples, 1000, 0, START_NS)
        node = fake.snapshot(2, fake.name_space("A", 1, complete=False, alignments=(alignment,)))
        return Update(snapshots=(ReceivedSnapshot(node, START_NS + samples * S // 100),))

    view = view_of(running(0), running(200), after_s=2)
    (one,) = incidents.notables(view, [])
    assert plain(one.line).endswith("20 %  200/1,000  100/s  8 s left")


def test_events_show_time_age_node_and_text() -> None:
    events = (
        fake.event(1, 1, START_NS, "Fellow n2 approved."),
        fake.event(2, 2, START_NS + S, "Missed heartbeat for node n3.", level="WARNING"),
        fake.event(3, 3, START_NS + 2 * S, "no space left", level="SEVERE"),
    )
    view = view_of(Update(events=events), after_s=62)
    assert [line.rstrip() for line in event_texts(view, 10, 200)] == [
        " 01:03:20  1 min    n1: Fellow n2 approved.",
        " 01:03:21  1 min  ▲ n2: Missed heartbeat for node n3.",
        " 01:03:22  1 min  ✖ n3: no space left",
    ]
    assert [line[-9:] for line in event_texts(view, 1, 200)] == ["pace left"]


def test_where_there_is_no_event_a_sentence_says_why() -> None:
    (line,) = event_texts(view_of(), 5, 200)
    assert "no events yet" in line
    view = view_of(Update(events=(fake.event(1, 1, START_NS, "Fellow n2 approved."),)))
    view = dataclasses.replace(view, filter=Filter.parse("else"))
    (line,) = event_texts(view, 5, 200)
    assert "1 hidden" in line


def test_a_new_state_is_said_once_and_in_words() -> None:
    events = (
        fake.event(1, 1, START_NS, "----LEAVING STATE----", event="lifecycle.leaving-state", state="INIT"),
        fake.event(2, 1, START_NS, "----ENTERING STATE----", event="lifecycle.entering-state"),
    )
    (line,) = event_texts(view_of(Update(events=events)), 10, 200)
    assert line.endswith("n1 became complete")


def test_late_joiners_that_are_served_or_wait_are_under_way() -> None:
    deliveries = tuple(
        DeliveryView("p", "Trade", "Orders", state, 7, START_NS - 2 * S, 0)
        for state in ("running", "waiting", "done")
    )
    view = view_of(heard(fake.snapshot(1, deliveries=deliveries)))
    assert [plain(one.line).rstrip() for one in incidents.notables(view, [])] == [
        " ◐    2 s  late joiner of Orders.Trade, served by n1  7 samples  running",
        " ○    2 s  late joiner of Orders.Trade, served by n1  7 samples  waiting",
    ]


@pytest.mark.parametrize(
    ("text", "numbers"), [("", [0, 1, 2]), ("n2", [1]), ("!heart n1", [0]), ("warning", [1]), ("zzz", [])]
)
def test_the_filter_chooses_events(text: str, numbers: list[int]) -> None:
    events = (
        fake.event(0, 1, START_NS, "approved"),
        fake.event(1, 2, START_NS, "Missed heartbeat", level="WARNING"),
        fake.event(2, 3, START_NS, "other"),
    )
    view = view_of(Update(events=events), text=text)
    assert [one.event.number for one in newest_events(view, 10)] == numbers


def test_what_several_nodes_tell_in_the_same_words_is_one_event() -> None:
    told = [
        fake.event(1, node, START_NS + node * S, "Fellow n9 lost.", level="WARNING") for node in (1, 2, 3)
    ]
    later = fake.event(2, 1, START_NS + 20 * S, "Fellow n9 lost.", level="WARNING")
    view = view_of(Update(events=(*told, later)), after_s=30)
    assert [line.rstrip() for line in event_texts(view, 10, 200)] == [
        " 01:03:21   29 s  ▲ 3 nodes: Fellow n9 lost.",
        " 01:03:40   10 s  ▲ n1: Fellow n9 lost.",
    ]


def test_what_is_below_info_is_on_the_trace_screen_only() -> None:
    view = view_of(Update(events=(fake.event(1, 1, START_NS, "Sending.", level="FINE"),)))
    (line,) = event_texts(view, 5, 200)
    assert line == " no events yet; 7 shows all that is traced"


def test_what_does_not_fit_is_counted_in_the_title() -> None:
    assert panels.counted("attention", [()] * 9, 4) == "attention, 5 more than fit"
    assert panels.counted("attention", [()] * 4, 4) == "attention"


def test_events_that_are_no_longer_kept_are_counted_in_the_title() -> None:
    view = view_of(Update(events=tuple(fake.event(i, 1, 0, "") for i in range(11_005))))
    assert events.events_title(view) == "events, 1,005 older ones not kept"


@given(
    st.integers(6, 200),
    st.sampled_from((1, 2)),
    st.builds(
        panels.Wanted,
        attention=st.integers(0, 300),
        about=st.integers(0, 3),
        nodes=st.integers(0, 300),
        hour=st.integers(2, 10),
        applications=st.integers(1, 40),
    ),
    st.booleans(),
)
def test_the_parts_never_need_more_than_the_room(
    room: int, frame: int, wanted: panels.Wanted, is_wide: bool
) -> None:
    shares = panels.share_height(room, frame, wanted, is_wide=is_wide)
    parts = dataclasses.asdict(shares)
    assert all(part >= 0 for part in parts.values())
    edges = {"attention": frame, "about": 0, "matrix": 2 * (frame == 2), "detail": 0, "flows": 0}
    lines = {name: part and part + edges.get(name, frame) for name, part in parts.items()}
    if is_wide:  # side by side
        lines["attention"] = max(lines["attention"], lines.pop("about"))
        lines["hour"] = max(lines["hour"], lines.pop("applications"))
    assert sum(lines.values()) <= max(room, 10)
    if room >= 24:
        assert shares.events >= 3


def test_what_a_node_tells_again_is_another_event() -> None:
    told = (
        fake.event(1, 1, START_NS, "Fellow n3 approved."),
        fake.event(2, 2, START_NS + S, "Persisted 5 samples."),
        fake.event(3, 2, START_NS + 2 * S, "Fellow n3 approved."),
        fake.event(4, 1, START_NS + 3 * S, "Fellow n3 approved."),
        fake.event(5, 2, START_NS + 4 * S, "Fellow n3 approved."),
    )
    shown = newest_events(view_of(Update(events=told), after_s=5), 10)
    assert [(one.event.text, one.others, one.event.time_ns) for one in shown] == [
        ("Fellow n3 approved.", 1, START_NS),
        ("Persisted 5 samples.", 0, START_NS + S),
        ("Fellow n3 approved.", 1, START_NS + 3 * S),
    ]


def told_as(number: int, node: int, event: str, **fields: object) -> NodeEvent:
    """An event as a node with this number writes it."""
    text = catalogue()[event].text.format_map(fields)
    return fake.event(number, node, START_NS + number * S // 10, text, event=event)


def test_events_are_sentences_and_alike_ones_are_one() -> None:
    master = fake.name_space(
        "harbour",
        1,
        master_since_ns=START_NS + S,
        epoch="1/x",
        why="highest masterPriority of n1 200, n2 100",
    )
    nodes = (fake.snapshot(n, master, time_ns=START_NS) for n in (1, 2, 3, 4))
    told = (
        told_as(1, 3, "fellow.discovered", fellow=node_id(1), state="unknown"),
        told_as(2, 3, "fellow.discovered", fellow=node_id(2), state="unknown"),
        told_as(3, 1, "fellow.confirmed", fellow="n3", state="COMPLETE"),
        told_as(4, 2, "fellow.confirmed", fellow="n3", state="COMPLETE"),
        told_as(10, 1, "election.confirmed-self", namespace="harbour"),
        *(
            told_as(10 + n, n, "election.confirmed-fellow", namespace="harbour", fellow="n1")
            for n in (2, 3, 4)
        ),
        told_as(
            20,
            2,
            "merge.finished",
            namespace="harbour",
            role="a",
            policy="repair",
            samples=200,
            elapsed_ns="0.400000000",
        ),
        told_as(
            21,
            4,
            "fellow.late",
            fellow="n3",
            elapsed_ns="9.512345678",
            period_ns="2.0",
            expiry_ns="10.000000000",
        ),
        told_as(22, 4, "store.opened", directory="/x [red]"),
        told_as(24, 4, "capture.lost", count=1, group="radar.track", total=1),
        fake.event(23, 4, START_NS + 3 * S, "----", event="fellow.discovered"),
    )
    view = view_of(heard(*nodes), Update(events=told), after_s=4)
    assert [sentence(view, one) for one in newest_events(view, 20)] == [
        "n3 discovered n1 and n2",
        "n1 and n2 accepted n3 as fellow within 0.1 s",
        "n1 became master of harbour: highest masterPriority of n1 200, n2 100",
        "3 nodes chose n1 as master of harbour within 0.2 s",
        "n2 caught up in harbour: 200 samples in 0.4 s (repair)",
        "n4 heard n3 only after 9.5 s; after 10.0 s it is lost",
        "n4 opened the store in /x [red]",
        "n4 lost 1 sample of radar.track, which came too late",
        "n4: ----",
    ]


def test_a_node_that_was_gone_before_the_watch_has_its_name_in_all_events() -> None:
    told = (
        told_as(1, 1, "fellow.discovered", fellow=node_id(3), state="unknown"),
        told_as(2, 2, "fellow.discovered", fellow=node_id(3), state="unknown"),
        told_as(3, 2, "fellow.confirmed", fellow="n3", state="COMPLETE"),
        fake.event(4, 1, START_NS, f"My address is: '{node_id(1)}'", event="lifecycle.address"),
        told_as(5, 1, "fellow.disconnected", fellow="n3", reason="it is terminating"),
        fake.event(6, 1, START_NS + S, f"Fellow {node_id(3)} was odd."),
    )
    view = view_of(heard(fake.snapshot(1), fake.snapshot(2)), Update(events=told))
    assert [sentence(view, one) for one in newest_events(view, 9)] == [
        "n1 and n2 discovered n3 within 0.1 s",
        "n2 accepted n3 as fellow",
        "n1 lost n3: it is terminating",
        "n1: Fellow n3 was odd.",
    ]


def test_every_event_of_info_has_a_sentence_or_is_left_out() -> None:
    without = [name for name, one in catalogue().items() if one.level.name == "INFO"]
    known = {*events.SENTENCES, *events.LEFT_OUT, events.ENTERING}
    assert [name for name in without if name not in known] == []


def test_every_sentence_has_the_fields_of_its_event() -> None:
    names = string.Formatter().parse
    for event, said in events.SENTENCES.items():
        fields = {name: f"<{name}>" for _, name, _, _ in names(catalogue()[event].text) if name}
        assert events.fields_of(event, catalogue()[event].text.format_map(fields)) == fields
        assert {name for _, name, _, _ in names(said) if name} <= fields.keys()


def test_the_end_of_a_mute_is_an_event() -> None:
    events = (fake.event(1, 1, START_NS, "before"), fake.event(2, 1, START_NS + 2 * S, "after"))
    view = view_of(Update(events=events), after_s=2)
    mute = Mute("DUL-NODE-GONE", "n2", START_NS + S)
    view.health.mutes.ended.append(MuteEnd(mute, START_NS + S, "its time is over"))
    assert [line.rstrip() for line in event_texts(view, 10, 200)] == [
        " 01:03:20    2 s    n1: before",
        " 01:03:21    1 s    this watch: mute of DUL-NODE-GONE:n2 ended: its time is over",
        " 01:03:22    now    n1: after",
    ]
