"""Signs of what nodes told in their events (docs/health.md)."""

from __future__ import annotations

import re

import msgspec
import pytest

from engine.capture.unkept import UnkeptReason
from engine.runtime.monitor import GroupView, NodeSnapshot, UnkeptView
from engine.tracing.catalogue import catalogue
from ospltool.health.health import Health
from ospltool.health.incidents import Incident
from ospltool.live.expectation import Expectation
from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from tests import fake
from tests.fake import SECOND_NS, START_NS, node_id
from tests.health.looking import incidents, node

S = SECOND_NS
NEWER = "Node n does not hear m ({}): its message on d_status has version {} 'Status', known are {}."

EVENTS: dict[str, tuple[str, str, str, str]] = {
    "a filter that does not fit": (
        "filter.refused",
        "Nothing of group Orders.Trade is kept, because its content filter does not fit: no field x",
        "DUL-FILTER-REFUSED",
        "",
    ),
    "a setting without effect": (
        "lifecycle.setting-ignored",
        "n1.xml:3: GIDKey has no effect on this node: it has no GIDs",
        "DUL-CONFIG-IGNORED",
        "",
    ),
    "another protocol": (
        "message.unsupported",
        NEWER.format(node_id(9), 9, 1),
        "DUL-PROTOCOL",
        "",
    ),
    "back-pressure": (
        "capture.back-pressure",
        "Queue of 5000 captured samples is full, writers are held back.",
        "DUL-BACK-PRESSURE",
        "capture.relieved:Queue of captured samples has room again after 3.5 seconds.",
    ),
    "a thread that is stuck": (
        "watch.progress-lost",
        'Progress changed: "store"(77):d:5->5',
        "DUL-NODE-STUCK",
        'watch.progress-back:Progress changed: "store"(77):a:5->6',
    ),
    "absurd counters": (
        "fellow.out-of-range",
        "Fellow n7 is not heard: it has counter 9 in name-space 'ns', above 5, which no node can have",
        "DUL-COUNTERS",
        "fellow.in-range:Fellow n7 has possible counters again, or is gone",
    ),
    "a store from a copy": (
        "store.outdated",
        catalogue()["store.outdated"].text.format(directory="/var/store", incarnation=4),
        "DUL-STORE-RESTORED",
        "",
    ),
    "a deletion of a stranger": (
        "delete.refused",
        "Refused to delete for ffffffff, which is no fellow of this node",
        "DUL-DELETION-REFUSED",
        "",
    ),
    "a deletion in the future": (
        "delete.future",
        "Group stock.Reading: the store has a deletion that reaches into the future; it does not count",
        "DUL-DELETION-REFUSED",
        "",
    ),
    "a stall": (
        "watch.stalled",
        "This node stood still for 4.0 seconds; the silence of its fellows in that time does not count.",
        "DUL-NODE-STALLED",
        "",
    ),
}


@pytest.mark.parametrize("name", EVENTS)
def test_what_a_node_told_holds_until_it_tells_otherwise_or_is_restarted(name: str) -> None:
    event, text, code, closing = EVENTS[name]
    model = SystemModel()
    told = fake.event(1, 1, START_NS, text, event=event, level="WARNING")
    model.apply(Update((ReceivedSnapshot(node(), START_NS),), (told,)), START_NS)
    found = incidents(model, START_NS + S)
    who = "00000009 and n1" if code == "DUL-PROTOCOL" else "n1"
    assert [(one.code.id, one.who, one.what) for one in found] == [
        (code, who, f"n1 says: {text.removesuffix('.')}")
    ]
    if closing:
        event, _, text = closing.partition(":")
        told = fake.event(2, 1, START_NS + S, text, event=event)
        model.apply(Update(events=(told,)), START_NS + S)
    else:
        again = node(time_ns=START_NS + S, started_ns=START_NS + S, pid=1)
        ends = fake.event(2, 1, START_NS + S, "bye", state="TERMINATED")
        model.apply(Update(events=(ends,)), START_NS + S)
        model.apply(Update((ReceivedSnapshot(again, START_NS + S),)), START_NS + S)
    stays = code in ("DUL-STORE-RESTORED", "DUL-DELETION-REFUSED")  # a start changes nothing about data
    assert [one.code.id for one in incidents(model, START_NS + 2 * S)] == [code] * stays


@pytest.mark.parametrize("teller", [1, 4])
def test_a_newer_protocol_is_told_as_long_as_its_node_is_heard(teller: int) -> None:
    """A node tells it once in its life, of each sender; the newer one tells it of the others."""
    model = SystemModel()
    events = tuple(
        fake.event(
            sender, one, START_NS, NEWER.format(node_id(sender), *versions), event="message.unsupported"
        )
        for one, sender, versions in ((1, 4, (2, 1)), (2, 4, (2, 1)), (4, 1, (1, 2)), (4, 2, (1, 2)))
        if one != teller
    )
    for second in (0, 20, 1_000):
        now_ns = START_NS + second * S
        fellows = {1: (2,), 2: (1,), 4: ()}
        snapshots = tuple(
            ReceivedSnapshot(
                node(one, time_ns=now_ns, fellows=tuple(fake.fellow(n, now_ns) for n in others)), now_ns
            )
            for one, others in fellows.items()
        )
        model.apply(Update(snapshots, events if not second else ()), now_ns)
        (found,) = [one for one in incidents(model, now_ns) if one.code.id == "DUL-PROTOCOL"]
        assert found.who == "n4"
        assert re.fullmatch(
            r"n4 speaks another version of the protocol than n1 and n2: 2 \(n4\) and 1 \(n[12]\)", found.what
        )
        assert re.fullmatch(r"n4 is of a newer release, whose protocol n[12] does not know", found.why)
    everybody = tuple(
        ReceivedSnapshot(
            node(one, time_ns=now_ns, fellows=tuple(fake.fellow(n, now_ns) for n in (1, 2, 4) if n != one)),
            now_ns,
        )
        for one in (1, 2, 4)
    )
    model.apply(Update(everybody), now_ns)
    assert incidents(model, now_ns) == []


def test_two_nodes_with_one_id_are_one_incident_until_one_of_them_is_left() -> None:
    model = SystemModel()
    text = (
        "Node {} on 10.0.0.{} has the id of this node: one of the two runs on a copy of the other's store, "
        "and the one that came later ends"
    )
    told = [
        fake.event(number, 1, START_NS, text.format(other, number), event="identity.shared", level="SEVERE")
        for number, other in ((1, "n2"), (2, "n1"))
    ]
    for name in ("n1", "n2"):
        model.apply(Update((ReceivedSnapshot(node(name=name), START_NS),), tuple(told)), START_NS)
        found = incidents(model, START_NS + S, Expectation(("n1", "n2")))
        assert [(one.code.id, one.who) for one in found] == [("DUL-IDENTITY-SHARED", "n1 and n2")]
    text = "No other node has the id of this node any more"
    model.apply(Update(events=(fake.event(3, 1, START_NS + S, text, event="identity.unique"),)), START_NS + S)
    assert incidents(model, START_NS + 2 * S) == []


def test_what_an_earlier_run_told_does_not_hold_although_the_node_remembers_it() -> None:
    model = SystemModel()
    event, text, _, _ = EVENTS["a thread that is stuck"]
    past = fake.event(1, 1, START_NS - 601 * S, text, event=event, level="WARNING")
    model.apply(Update((ReceivedSnapshot(node(), START_NS),), (past,)), START_NS)
    assert incidents(model, START_NS + S) == []


def test_a_late_heartbeat_is_about_the_fellow_and_part_of_its_loss() -> None:
    model = SystemModel()
    text = "Heartbeat of fellow n2 came after 1.8 seconds (its period is 0.5, it is lost after 2.0)."
    told = fake.event(1, 1, START_NS, text, event="fellow.late", level="WARNING")
    shown = (node(1, fellows=(fake.fellow(2),)), node(2, fellows=(fake.fellow(1),)))
    model.apply(Update(tuple(ReceivedSnapshot(one, START_NS) for one in shown), (told,)), START_NS)
    found = incidents(model, START_NS + S)
    assert [(one.code.id, one.who) for one in found] == [("DUL-HEARTBEAT-LATE", "n2")]
    gone = FeedNotice(NoticeKind.NODE_LOST, START_NS + S, "", node_id(2))
    for now_ns, notices in ((START_NS + S, (gone,)), (START_NS + 2 * S, ()), (START_NS + 3 * S, ())):
        survivor = msgspec.structs.replace(shown[0], time_ns=now_ns)
        model.apply(Update((ReceivedSnapshot(survivor, now_ns),), notices=notices), now_ns)
    found = incidents(model, START_NS + 3 * S)
    assert [(one.code.id, one.who) for one in found] == [("DUL-NODE-GONE", "n2")]
    assert f"n1 says: {text.removesuffix('.')}" in found[0].signs


@pytest.mark.parametrize(
    ("stopped_s", "apart", "codes"),
    [(3, 1, {"DUL-NODE-STALLED"}), (8, 1, {"DUL-DOMAIN-LOST"}), (8, 6, {"DUL-DOMAIN-LOST"})],
    ids=["short", "long", "long, continued one after the other"],
)
def test_nodes_that_stood_still_together_did_so_once_and_it_was_the_loss_of_all_if_long(
    stopped_s: int, apart: int, codes: set[str]
) -> None:
    """All were stopped and continued, `apart` quarters of a second; each tells that it stood still."""
    texts = [
        f"This node stood still for {stopped_s + 0.4 + number * apart / 4:.2f} seconds; "
        "the silence of its fellows in that time does not count."
        for number in range(3)
    ]
    model = SystemModel()
    health = Health(model)
    for quarter in range(100):
        now_ns = START_NS + quarter * S // 4
        since = quarter - 20 - 4 * stopped_s
        numbers = [n for n in (1, 2, 3) if quarter <= 20 or since > (n - 1) * apart]
        others = {n: tuple(fake.fellow(o, now_ns) for o in (1, 2, 3) if o != n) for n in numbers}
        shown = tuple(ReceivedSnapshot(node(n, time_ns=now_ns, fellows=others[n]), now_ns) for n in numbers)
        told = tuple(
            fake.event(quarter, n, now_ns, texts[n - 1], event="watch.stalled", level="WARNING")
            for n in numbers
            if since == 1 + (n - 1) * apart
        )
        model.apply(Update(shown, told), now_ns)
        health.update(now_ns)
    assert ({one.code.id for one in health.every}, health.open) == (codes, [])
    assert len(health.closed) == 1
    if stopped_s == 3:
        assert (
            health.closed[0].what
            == f"n1, n2 and n3 stood still together; n1 says: {texts[0].removesuffix('.')}"
        )


def test_a_short_stall_is_none_and_a_long_one_is_over_seconds_after_it() -> None:
    text = "This node stood still for {} seconds; the silence of its fellows in that time does not count."
    for seconds, after_s, count in ((2.5, 1, 0), (4.0, 4, 1), (4.0, 6, 0)):
        model = SystemModel()
        told = fake.event(1, 1, START_NS, text.format(seconds), event="watch.stalled", level="WARNING")
        now_ns = START_NS + after_s * S
        model.apply(Update((ReceivedSnapshot(node(time_ns=now_ns), now_ns),), (told,)), now_ns)
        assert len(incidents(model, now_ns)) == count


@pytest.mark.parametrize("ahead_s", [12, -12])
def test_a_stall_of_a_node_whose_clock_is_wrong_is_told_as_long_and_dated_by_the_clock_of_the_watch(
    ahead_s: int,
) -> None:
    text = "This node stood still for 4.0 seconds; the silence of its fellows in that time does not count."
    theirs_ns = START_NS + ahead_s * S
    told = fake.event(1, 1, theirs_ns, text, event="watch.stalled", level="WARNING")
    for after_s, since in ((4, [START_NS - 4 * S]), (6, [])):
        model, later_ns = SystemModel(), after_s * S
        shown = ReceivedSnapshot(node(time_ns=theirs_ns + later_ns), START_NS + later_ns)
        model.apply(Update((shown,), (told,)), START_NS + later_ns)
        health = Health(model)
        health.update(START_NS + later_ns)
        assert [one.since_ns for one in health.open] == since


@pytest.mark.parametrize(("phase", "code"), [("merge", "DUL-MERGE"), ("align", "DUL-CONFLICT")])
def test_a_conflict_within_a_role_is_a_merge_while_the_node_merges(phase: str, code: str) -> None:
    """No event tells that the merge began, or by which policy: within a role it is always Merge."""
    model = SystemModel()
    text = "Native state conflict in namespace 'Orders' for fellow n2 detected, conflict 2/0000 created"
    told = fake.event(1, 1, START_NS, text, event="conflict.native-state", level="FINE")
    view = fake.name_space("Orders", 1, phase=phase, complete=False)
    shown = (
        fake.snapshot(1, view, fellows=(fake.fellow(2),)),
        fake.snapshot(2, fake.name_space("Orders", 1), fellows=(fake.fellow(1),)),
    )
    model.apply(Update(tuple(ReceivedSnapshot(one, START_NS) for one in shown), (told,)), START_NS)
    (found,) = incidents(model, START_NS + S)
    assert (found.code.id, found.who) == (code, "Orders")
    assert ("merging by Merge" in found.what) == (phase == "merge")


def rejecting(number: int, *topics: str) -> NodeSnapshot:
    """A node that rejects samples of these topics of one name-space, and a fellow of the other one."""
    groups = tuple(
        GroupView(
            "Orders", "Orders", topic, "T", "PERSISTENT", 1, 1, 1, "d", START_NS, 1, 0,
            rejected=(("max_samples", number),),
        )
        for topic in topics
    )  # fmt: skip
    return node(number, groups=groups, fellows=(fake.fellow(3 - number),))


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (
            ("A",),
            ("A",),
            ["n1 and n2 rejected samples by the same limits: "],
        ),
        (("A",), ("B",), ["n1 rejected samples of Orders.A: ", "n2 rejected samples of Orders.B: "]),
        (("A", "B"), (), ["n1 rejected samples of Orders.A: 1 by max_samples; Orders.B: 1 by max_samples"]),
    ],
    ids=["one topic", "two topics", "two topics of one node"],
)
def test_rejections_of_one_topic_are_one_incident_and_all_topics_are_named(
    first: tuple[str, ...], second: tuple[str, ...], told: list[str]
) -> None:
    model = SystemModel()
    shown = (rejecting(1, *first), rejecting(2, *second))
    model.apply(Update(tuple(ReceivedSnapshot(one, START_NS) for one in shown)), START_NS)
    found = sorted(one.what for one in incidents(model, START_NS + S))
    assert len(found) == len(told)
    assert all(what.startswith(begin) for what, begin in zip(found, told, strict=True))


@pytest.mark.parametrize("late_s", [1, 4, 6, 60], ids=["soon", "in time", "late", "never"])
def test_a_node_of_another_version_that_shows_itself_late_is_one_incident(late_s: int) -> None:
    """The watcher of a busy machine hears what others tell of a node before it hears the node."""
    model = SystemModel()
    health = Health(model)
    told: dict[str, Incident] = {}
    names: list[str] = []
    for second in range(20):
        now_ns = START_NS + second * S
        there = [1, 2, 3, *([4] if second >= late_s else [])]
        shown = tuple(
            ReceivedSnapshot(
                node(
                    n,
                    time_ns=now_ns,
                    fellows=tuple(fake.fellow(m) for m in (1, 2, 3) if 4 not in (n, m) and m != n),
                ),
                now_ns,
            )
            for n in there
        )
        text = NEWER.format(node_id(4), 9, 1)
        event = (
            fake.event(1, second, now_ns, text, event="message.unsupported", level="WARNING")
            if second in (1, 2, 3)
            else None
        )
        model.apply(Update(shown, (event,) if event else ()), now_ns)
        health.update(now_ns)
        told.update({one.key: one for one in (*health.open, *health.closed)})
        names += [one.who for one in health.open if one.who not in names]
    who = "n4" if late_s < 20 else node_id(4)[:8]
    assert [(one.code.id, one.who) for one in told.values()] == [("DUL-PROTOCOL", who)]
    assert health.open == list(told.values())
    is_by_id = any(node_id(4)[:8] in name for name in names)
    assert is_by_id is (late_s > 4), "its name is awaited for 2.5 s"


def test_a_conflict_of_a_lazy_node_is_over_when_it_does_not_merge_any_more() -> None:
    """Its set is never called complete, only a part; a merge that is given up is not told."""
    model = SystemModel()
    text = "Foreign state conflict in namespace 'Orders' for fellow n2 detected, conflict 2/0000 created"
    event = fake.event(1, 1, START_NS, text, event="conflict.foreign-state", level="FINE")
    model.apply(Update(events=(event,)), START_NS)
    for now_ns, phase, count in ((START_NS + 5 * S, "merge", 1), (START_NS + 10 * S, "part", 0)):
        view = fake.name_space("Orders", 1, phase=phase, complete=False, alignee="Lazy", count=3)
        other = fake.snapshot(2, fake.name_space("Orders", 1), fellows=(fake.fellow(1),), time_ns=now_ns)
        one = fake.snapshot(1, view, fellows=(fake.fellow(2),), time_ns=now_ns)
        model.apply(Update(tuple(ReceivedSnapshot(each, now_ns) for each in (one, other))), now_ns)
        found = [each for each in incidents(model, now_ns) if each.code.cause == "conflict"]
        assert len(found) == count


@pytest.mark.parametrize("why", UnkeptReason)
def test_the_next_step_for_a_writer_that_is_not_kept_depends_on_the_reason(why: UnkeptReason) -> None:
    model = SystemModel()
    health = Health(model, Expectation())
    shown = node(1, unkept=(UnkeptView("01", "Trade", "Orders", why, f"{why}: it is so"),))
    for second in range(12):
        now_ns = START_NS + second * S
        model.apply(Update(snapshots=(ReceivedSnapshot(shown, now_ns),)), now_ns)
        health.update(now_ns)
    (found,) = [one for one in health.open if one.code.id == "DUL-NOT-KEPT"]
    word = {
        UnkeptReason.UNTYPED_KEYED: "type information",
        UnkeptReason.TYPE_AWAITED: "Wait",
        UnkeptReason.TYPE_UNKNOWN: "Start any application on Cyclone DDS 11",
        UnkeptReason.REFUSED: "DATA_REPRESENTATION",
        UnkeptReason.QOS: "RELIABLE",
        UnkeptReason.UNMATCHED: "network interface",
        UnkeptReason.ENDED: "acknowledged",
    }[why]
    assert word in found.next


def test_a_writer_that_ended_too_soon_for_one_node_only_is_no_fault() -> None:
    """Another node captured what it wrote, and sends it; if all that keep the group lack it, it is lost."""
    group = GroupView("Orders", "Orders", "Trade", "T", "PERSISTENT", 1, 1, 1, "", 0, 0, 0)
    view = UnkeptView("01", "Trade", "Orders", UnkeptReason.ENDED, "ended: it is so")
    for number, unkept, count in ((1, (), 0), (2, (view,), 1)):
        snapshots = (node(1, unkept=(view,), groups=(group,)), node(2, unkept=unkept, groups=(group,)))
        model = SystemModel()
        model.apply(Update(tuple(ReceivedSnapshot(each, START_NS) for each in snapshots)), START_NS)
        found = [each for each in incidents(model, START_NS) if each.code.id == "DUL-NOT-KEPT"]
        assert len(found) == count, number
