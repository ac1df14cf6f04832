"""What the live model shows to be wrong: which code, about whom, in which words; and what is not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from engine.core.election import NOBODY
from engine.runtime.monitor import (
    AlignmentView,
    DeliveryView,
    DeviationView,
    FellowView,
    GroupView,
    NodeSnapshot,
    StoreStatus,
    UnkeptView,
    UnprovedView,
)
from ospltool.diagnostics.model import Severity
from ospltool.health.health import Health
from ospltool.live.expectation import Expectation, ExpectedSpace
from ospltool.live.feed import FeedNotice, HeardReplica, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from tests import fake
from tests.fake import SECOND_NS, START_NS, node_id
from tests.health.looking import incidents, looked, node

S = SECOND_NS
GROUP = GroupView("Orders", "Orders", "Trade", "T", "Persistent", 1, 1, 1, "d", START_NS, 1, 0)


def space(number: int, **changes: Any) -> NodeSnapshot:
    others = tuple(fake.fellow(n) for n in (1, 2) if n != number)
    view = fake.name_space("Orders", changes.pop("master_node", 1), **changes)
    return fake.snapshot(number, view, fellows=others)


def check_signs(
    snapshots: list[NodeSnapshot],
    expected: list[tuple[str, str, str]],
    *,
    after_s: float = 1,
    notices: tuple[FeedNotice, ...] = (),
    dropped: int = 0,
) -> None:
    """The incidents are these (code, who, what), worst first."""
    model = SystemModel()
    heard = tuple(ReceivedSnapshot(snapshot, START_NS) for snapshot in snapshots)
    model.apply(Update(snapshots=heard, notices=notices, dropped=dropped), START_NS)
    found = incidents(model, START_NS + int(after_s * S))
    assert [(one.code.id, one.who, one.what) for one in found] == expected
    for one in found:
        assert one.why
        assert one.effect
        assert one.next


def test_a_healthy_system_is_quiet() -> None:
    check_signs([node(1, fellows=(fake.fellow(2),)), node(2, fellows=(fake.fellow(1),))], [])


@pytest.mark.parametrize(("phase", "master"), [("passive", 0), ("part", 2), ("part", 0)])
def test_a_lazy_node_that_has_what_its_readers_want_is_quiet_and_no_copy(phase: str, master: int) -> None:
    lazy = fake.name_space("Orders", master, phase=phase, complete=False, alignee="Lazy", count=3)
    keeper = fake.snapshot(2, fake.name_space("Orders", 2), fellows=(fake.fellow(1),))
    shown = [fake.snapshot(1, lazy, fellows=(fake.fellow(2),)), keeper]
    check_signs(shown, [])
    model = SystemModel()
    model.apply(Update(snapshots=tuple(ReceivedSnapshot(each, START_NS) for each in shown)), START_NS)
    (of_orders,) = looked(model, START_NS + S).redundancies
    assert (of_orders.held, of_orders.coming) == ((node_id(2),), ())


CASES: dict[str, tuple[NodeSnapshot, str, str, str]] = {
    "store full": (
        node(store=StoreStatus("sqlite", "/x", problem="/x/n1.db: no space left on device")),
        "DUL-STORE-FULL",
        "n1",
        "n1 store: no space left on device",
    ),
    "store fails": (
        node(store=StoreStatus("sqlite", "/x", problem="disk I/O error")),
        "DUL-STORE-FAILED",
        "n1",
        "n1 store: disk I/O error",
    ),
    "store behind": (
        node(counters={"queued": 1_200}),
        "DUL-STORE-BEHIND",
        "n1",
        "1,200 changes wait for the disk of n1",
    ),
    "store damaged": (
        node(
            store=StoreStatus("sqlite", "/x", findings=("the last run did not close the store", "table a: b"))
        ),
        "DUL-STORE-DAMAGED",
        "n1",
        "n1 store: table a: b",
    ),
    "slow start": (
        node(state="FETCH_INITIAL", started_ns=START_NS - 61 * S),
        "DUL-NOT-COMPLETE",
        "n1",
        "n1 is still in fetch initial",
    ),
    "incompatible": (
        node(fellows=(fake.fellow(2, communication="incompatible", problem="Orders: {a} and {b}"),)),
        "DUL-INCOMPATIBLE",
        "n1 and n2",
        "n1 and n2 do not communicate: Orders: {a} and {b}",
    ),
    "skew": (
        node(fellows=(fake.fellow(2, skew_ns=-2 * S),)),
        "DUL-CLOCK-SKEW",
        "n1 and n2",
        "clocks differ: that of n2 is -2.0 s off, as n1 sees it",
    ),
    "no master": (
        space(1, master="", confirmed=False, why="the master is gone"),
        "DUL-NO-MASTER",
        "Orders",
        "Orders has no master on n1: the master is gone",
    ),
    "nobody may be master": (
        fake.snapshot(
            1,
            fake.name_space("Orders", 1, master="", confirmed=False, phase="elect", why=NOBODY),
            state="DISCOVER_PERSISTENT_SOURCE",
            started_ns=START_NS,
        ),
        "DUL-MASTER-IMPOSSIBLE",
        "Orders",
        f"Orders has no master on n1: {NOBODY}",
    ),
    "lost samples": (
        node(groups=(msgspec.structs.replace(GROUP, lost=3),)),
        "DUL-CAPTURE-LOSS",
        "n1",
        "n1 lost 3 samples",
    ),
    "limits": (
        node(groups=(msgspec.structs.replace(GROUP, rejected=(("max_samples", 3),)),)),
        "DUL-REJECTED",
        "n1",
        "n1 rejected samples of Orders.Trade: 3 by max_samples",
    ),
    "history cut": (
        node(groups=(msgspec.structs.replace(GROUP, asked=5),)),
        "DUL-HISTORY-CUT",
        "Orders",
        (
            "late joiners get fewer samples of an instance than readers ask for: "
            "Orders.Trade (asked KEEP_LAST 5, kept KEEP_LAST 1)"
        ),
    ),
    "history cut by a limit": (
        node(groups=(msgspec.structs.replace(GROUP, asked=0, depth=0, limits=(-1, -1, 3)),)),
        "DUL-HISTORY-CUT",
        "Orders",
        (
            "late joiners get fewer samples of an instance than readers ask for: "
            "Orders.Trade (asked KEEP_ALL, kept KEEP_LAST 3)"
        ),
    ),
    "writer refused": (
        node(unkept=(UnkeptView("01", "Trade", "Orders", "qos", "qos: it does not match"),)),
        "DUL-NOT-KEPT",
        "Orders.Trade",
        "n1 does not keep a durable writer of Orders.Trade: qos: it does not match",
    ),
    "samples too large": (
        node(counters={"too_large": 12}),
        "DUL-NOT-KEPT",
        "n1",
        "n1 did not capture 12 samples above its MaxSampleSize",
    ),
    "samples of a group too large": (
        node(counters={"too_large": 1}, groups=(msgspec.structs.replace(GROUP, too_large=1),)),
        "DUL-NOT-KEPT",
        "n1",
        "n1 did not capture 1 sample of Orders.Trade above its MaxSampleSize",
    ),
    "reader not served": (
        node(deliveries=(DeliveryView("p", "Trade", "Orders", "failed", 0, 1, START_NS - 2 * S, "QoS"),)),
        "DUL-READER-NOT-SERVED",
        "n1",
        "n1 could not serve a reader of Trade in partition 'Orders'",
    ),
    "reader waits": (
        node(deliveries=(DeliveryView("p", "Trade", "Orders", "running", 0, START_NS, 0, "full"),)),
        "DUL-READER-NOT-SERVED",
        "n1",
        "n1 waits for a reader of Trade in partition 'Orders'",
    ),
    "reader refuses what is kept, long ago": (
        node(deliveries=(DeliveryView("p", "Trade", "Orders", "done", 0, 1, START_NS - 900 * S, "QoS"),)),
        "DUL-READER-NOT-SERVED",
        "n1",
        "n1 could not serve a reader of Trade in partition 'Orders'",
    ),
    "a back-up": (
        space(1, backup="merge policy Replace: 2 samples, set 4", backup_ns=START_NS - 2 * S),
        "DUL-SET-REPLACED",
        "n1",
        "n1 made its stored set of Orders a back-up",
    ),
    "reader deviates": (
        node(deviations=(DeviationView("p", "Trade", "Orders", {"other": 1_200}),)),
        "DUL-READER-DEVIATES",
        "n1",
        "a reader of Trade deviates from the set of n1: 1,200 other",
    ),
}


@pytest.mark.parametrize("state", ["failed", "running", "done"])
def test_a_reader_that_is_gone_is_no_reader_that_is_not_served(state: str) -> None:
    gone = DeliveryView("p", "Trade", "Orders", state, 0, START_NS, START_NS, "QoS", is_gone=True)
    check_signs([node(deliveries=(gone,))], [])


@pytest.mark.parametrize("name", CASES)
def test_one_node_tells_what_is_wrong(name: str) -> None:
    snapshot, code, who, what = CASES[name]
    check_signs([snapshot], [(code, who, what)])


def test_255_beside_other_values_is_named_with_who_has_them() -> None:
    what = "Orders, role DefaultRole: masterPriority 255 beside other values: 100 (n1), 255 (n2)"
    check_signs(
        [space(1, master_priority=100), space(2, master_priority=255)],
        [("DUL-PRIORITIES-MIXED", "Orders", what)],
    )
    check_signs([space(1, master_priority=255), space(2, master_priority=255)], [])


def test_a_definition_that_differs_is_named_with_who_has_it() -> None:
    what = (
        "Orders, role DefaultRole: n1: durability Persistent, merge Merge *; "
        "n2: durability Transient, merge none"
    )
    check_signs(
        [space(1), space(2, durability="Transient", merges=())], [("DUL-CONFIG-DIFFERS", "Orders", what)]
    )
    what = what.replace("n2:", "n2 (n2 learned it under a Policy of its own):")
    check_signs(
        [space(1), space(2, durability="Transient", merges=(), is_learned=True)],
        [("DUL-CONFIG-DIFFERS", "Orders", what)],
    )


@pytest.mark.parametrize(
    "later",
    [
        DeliveryView("p", "Trade", "Orders", "failed", 0, 1, START_NS - 301 * S, "its process is gone"),
        DeliveryView("p", "Trade", "Orders", "done", 7, START_NS - S, START_NS),
        DeliveryView("p", "Trade", "Orders", "running", 0, START_NS - S, 0),
    ],
    ids=["long ago", "served since", "tried again"],
)
def test_a_reader_that_was_served_after_all_or_is_long_gone_is_no_incident(later: DeliveryView) -> None:
    failed = DeliveryView("p", "Trade", "Orders", "failed", 0, 1, START_NS - 302 * S, "its process is gone")
    check_signs([node(deliveries=(failed, later))], [])


@pytest.mark.parametrize(
    ("problem", "advice"),
    [
        (
            "reader 01: DURABILITY: offered TRANSIENT, requested PERSISTENT, OWNERSHIP: offered SHARED, …",
            "Change DURABILITY, OWNERSHIP: have the reader request no more than is offered",
        ),
        ("its process does not answer", "If its QoS or type refuses the data, change that"),
    ],
)
def test_the_advice_for_a_reader_that_is_not_served_mends_its_cause(problem: str, advice: str) -> None:
    view = DeliveryView("p", "Trade", "", "failed", 0, 1, START_NS - 2 * S, problem)
    (found,) = incidents(held_for_long(node(deliveries=(view,))), START_NS + 10 * S)
    assert (found.what, found.why) == (
        "n1 could not serve a reader of Trade in the default partition", problem
    )  # fmt: skip
    assert found.next.startswith(advice)


def test_a_node_that_does_not_start_for_long_is_left_alone_within_a_minute() -> None:
    check_signs([node(state="FETCH_INITIAL", started_ns=START_NS - 50 * S)], [])


def test_what_a_silent_node_said_before_is_last_known() -> None:
    said = "n1 store: no space left on device (last known at 01:03:20 UTC)"
    silent = ("DUL-NODE-SILENT", "n1", "n1 is silent")
    check_signs([CASES["store full"][0]], [("DUL-STORE-FULL", "n1", said), silent], after_s=3)


def test_a_lost_domain_takes_in_the_lost_nodes() -> None:
    notices = (
        FeedNotice(NoticeKind.NODE_LOST, START_NS, "", node_id(1)),
        FeedNotice(NoticeKind.DOMAIN_LOST, START_NS - S, ""),
    )
    check_signs(
        [node()], [("DUL-DOMAIN-LOST", "domain", "this watch hears no node any more")], notices=notices
    )


def test_persistence_services_that_stopped_in_order_are_no_lost_domain() -> None:
    model = SystemModel()
    view = fake.replica("p1", ending=True)
    lost = FeedNotice(NoticeKind.REPLICA_LOST, START_NS, "", view.id)
    model.apply(Update(replicas=(HeardReplica(view, START_NS),)), START_NS)
    model.apply(Update(notices=(lost, FeedNotice(NoticeKind.DOMAIN_LOST, START_NS, ""))), START_NS)
    assert [one.code.id for one in incidents(model, START_NS + 10 * S)] == []


def held_for_long(*snapshots: NodeSnapshot, seconds: int = 10) -> SystemModel:
    model = SystemModel()
    for moment in (0, seconds * S):
        shown = (msgspec.structs.replace(one, update_period_ns=S) for one in snapshots)
        heard = tuple(ReceivedSnapshot(one, START_NS + moment) for one in shown)
        model.apply(Update(snapshots=heard), START_NS + moment)
    return model


def test_what_only_a_non_aligner_holds_is_named_with_what_to_do() -> None:
    model = held_for_long(space(1), space(2, digest="else", aligner=False, count=5))
    (found,) = incidents(model, START_NS + 10 * S)
    assert found.code.id == "DUL-SET-DIFFERS"
    assert found.what == "Orders on n2 differs from its master n1 (5 samples, n1 has 1,000)"
    assert found.why == "n2 is not an aligner, so samples that only it holds stay there"
    assert found.next == "make n2 an aligner to give its samples to all"


@pytest.mark.parametrize(
    ("filtering", "held", "text"),
    [((1,), (2,), "1 copy, 1 on disk, 1 filtered"), ((1, 2), (1, 2), "2 copies, 2 on disk")],
)
def test_a_set_that_a_filter_makes_smaller_is_no_copy_beside_a_whole_one(
    filtering: tuple[int, ...], held: tuple[int, ...], text: str
) -> None:
    shown = [
        space(number, master_node=2, digest=f"{number}" * 32, count=5 * number, filtered=number in filtering)
        for number in (1, 2)
    ]
    model = held_for_long(*shown)
    assert not incidents(model, START_NS + 10 * S)
    (of_orders,) = looked(model, START_NS + 10 * S).redundancies
    assert of_orders.held == tuple(map(node_id, held))
    assert of_orders.text == text


def test_a_burst_that_many_disks_are_behind_with_is_one_incident() -> None:
    def burdened(number: int, queued: int) -> NodeSnapshot:
        return msgspec.structs.replace(space(number), counters={"queued": queued})

    model = SystemModel()
    health = Health(model)
    told = []
    for second in range(40):
        now_ns = START_NS + second * S
        queued = (5_000 if 2 < second < 20 else 0, 5_000 if 4 < second < 15 else 0)
        heard = [msgspec.structs.replace(burdened(n, queued[n - 1]), time_ns=now_ns) for n in (1, 2)]
        model.apply(Update(tuple(ReceivedSnapshot(one, now_ns) for one in heard)), now_ns)
        health.update(now_ns)
        told += [one.what for one in health.open]
    assert [(one.code.id, one.who) for one in health.every] == [("DUL-STORE-BEHIND", "n1")]
    both = "5,000 changes wait for the disk of n1; 5,000 changes wait for the disk of n2"
    assert f"changes wait for the disks of n1 and n2: {both}" in told


def test_the_effect_of_a_full_disk_names_the_samples_in_memory_only() -> None:
    full = StoreStatus("sqlite", "/x", problem="/x: no space left on device")
    groups = tuple(msgspec.structs.replace(GROUP, topic=f"T{n}", samples=100, stored=70 + n) for n in (1, 2))
    (found,) = incidents(
        held_for_long(msgspec.structs.replace(space(1), store=full, groups=groups, fellows=())), START_NS
    )
    said = "Orders: 1 copy, 0 on disk, the last copy, n1 is master, 57 samples in memory only on n1"
    assert found.effect == said


def test_the_effect_of_a_full_disk_leaves_several_masters_to_their_own_incident() -> None:
    full = StoreStatus("sqlite", "/x", problem="/x: no space left on device")
    groups = (msgspec.structs.replace(GROUP, topic="T", samples=8_000, stored=0),)
    alone = (fake.fellow(2, communication="incompatible", problem="other name-spaces"),)
    burdened = msgspec.structs.replace(space(1), store=full, groups=groups, fellows=alone)
    other = fake.snapshot(
        2, fake.name_space("Orders", 2), fellows=(fake.fellow(1, communication="incompatible"),)
    )
    model = held_for_long(burdened)
    model.apply(Update((ReceivedSnapshot(other, START_NS),)), START_NS)
    effects = {one.code.id: one.effect for one in incidents(model, START_NS)}
    said = "Orders: 8,000 samples in memory only on n1; copies as in DUL-INCOMPATIBLE n1 and n2"
    assert effects["DUL-STORE-FULL"] == said
    assert "n1 and n2 are masters" in effects["DUL-INCOMPATIBLE"]
    assert "1 copy, 0 on disk, the last copy" in effects["DUL-INCOMPATIBLE"]


def test_what_an_incompatible_node_holds_is_no_copy() -> None:
    def held(number: int, *fellows: FellowView) -> NodeSnapshot:
        return msgspec.structs.replace(space(number), fellows=fellows)

    refuses = [fake.fellow(n, communication="incompatible", problem="Orders: {a} and {b}") for n in (1, 2, 3)]
    shown = [
        held(1, fake.fellow(2), refuses[2]),
        held(2, fake.fellow(1), refuses[2]),
        held(3, *refuses[:2]),
    ]
    (of_orders,) = looked(held_for_long(*shown), START_NS + 10 * S).redundancies
    assert (of_orders.held, of_orders.left) == ((node_id(1), node_id(2)), 1)
    expected = Expectation(("n3",))
    pair = held_for_long(held(1, refuses[2]), held(3, refuses[0]))
    (of_orders,) = looked(pair, START_NS + 10 * S, expected).redundancies
    assert of_orders.held == (node_id(3),)


def test_a_node_that_does_not_fit_hides_no_other_node_that_is_defined_differently() -> None:
    """It is incompatible with every node, but what they define differently among them is another matter."""

    def defined(number: int, **changes: Any) -> NodeSnapshot:
        fellows = [fake.fellow(n) for n in (1, 2, 3, 5) if n != number]
        strange = fake.fellow(4, communication="incompatible", problem="Orders: {a} and {b}")
        view = fake.name_space("Orders", 1, **changes)
        return fake.snapshot(number, view, fellows=(*fellows, strange))

    refused = [
        fake.fellow(n, communication="incompatible", problem="Orders: {b} and {a}") for n in (1, 2, 3, 5)
    ]
    strange = fake.snapshot(4, fake.name_space("Orders", 4, elements=("a", "b")), fellows=tuple(refused))
    shown = [*map(defined, (1, 2, 3)), strange, defined(5, durability="Transient")]
    found = incidents(held_for_long(*shown), START_NS + 10 * S)
    assert [(one.code.id, one.who) for one in found] == [
        ("DUL-INCOMPATIBLE", "n4"),
        ("DUL-CONFIG-DIFFERS", "Orders"),
    ]
    assert found[0].why.startswith("the configuration of n4 defines")


def test_the_copy_on_disk_that_a_node_defined_as_transient_lacks_is_part_of_its_incident() -> None:
    memory = StoreStatus("memory", "")
    shown = [space(1), space(2), msgspec.structs.replace(space(3, durability="Transient"), store=memory)]
    meshed = [
        msgspec.structs.replace(one, fellows=tuple(fake.fellow(n) for n in (1, 2, 3) if n != number))
        for number, one in enumerate(shown, 1)
    ]
    wanted = Expectation(
        ("n1", "n2", "n3"), (ExpectedSpace("Orders", copies=3, on_disk=3),), file="my ships.toml"
    )
    (found,) = incidents(held_for_long(*meshed), START_NS + 10 * S, wanted)
    assert (found.code.id, found.who) == ("DUL-CONFIG-DIFFERS", "Orders")
    assert "2 of 3 on disk" in found.effect
    assert "`ospltool check 'my ships.toml'`" in found.next


def test_a_set_that_stays_different_is_named_with_its_master_and_since_when() -> None:
    (found,) = incidents(held_for_long(space(1), space(2, digest="else")), START_NS + 10 * S)
    assert (found.code.id, found.who, found.since_ns) == ("DUL-SET-DIFFERS", "Orders", START_NS)
    check_signs(
        [msgspec.structs.replace(s, update_period_ns=100 * S) for s in (space(1), space(2, digest="x"))], []
    )


def test_an_alignment_that_stands_still_is_named() -> None:
    alignment = AlignmentView("from", node_id(1), 5, 10, 0, START_NS)
    waiting = msgspec.structs.replace(
        space(2, complete=False, alignments=(alignment,)), update_period_ns=100 * S
    )
    master = msgspec.structs.replace(space(1), update_period_ns=100 * S)
    check_signs([master, waiting], [], after_s=5)
    what = "Orders on n2: the alignment from n1 has stalled"
    check_signs([master, waiting], [("DUL-ALIGN-STALLED", "n2", what)], after_s=6)


def test_a_node_that_takes_a_name_space_on_request_only_need_not_have_a_master() -> None:
    check_signs([space(1, master="", confirmed=False, why="", alignee="On_Request", complete=False)], [])


def test_two_confirmed_masters_contradict_each_other() -> None:
    what = "Orders, role DefaultRole: 2 masters: n1 (says n1), n2 (says n2)"
    check_signs([space(1), space(2, master_node=2)], [("DUL-TWO-MASTERS", "Orders", what)])


def test_masters_of_different_roles_do_not() -> None:
    other = msgspec.structs.replace(space(2, master_node=2), role="Other")
    check_signs([space(1), other], [])


def test_nodes_that_do_not_hear_each_other_are_named_by_what_they_have_in_common() -> None:
    def meets(number: int, *others: int) -> NodeSnapshot:
        return node(number, fellows=tuple(fake.fellow(n) for n in others))

    check_signs(
        [meets(1, 3), meets(2, 3), meets(3, 1, 2)],
        [("DUL-PARTIAL-MESH", "n1 and n2", "n1 and n2 do not hear each other")],
    )
    check_signs(
        [meets(1), meets(2, 1)],
        [("DUL-PARTIAL-MESH", "n1 and n2", "n1 does not hear n2, which hears it")],
    )
    what = "n3 is not connected with n1, n2 and n4"
    check_signs(
        [meets(1, 2, 4), meets(2, 1, 4), meets(3), meets(4, 1, 2)], [("DUL-PARTIAL-MESH", "n3", what)]
    )


def test_one_wrong_clock_is_one_incident_about_its_node() -> None:
    def sees(number: int, **skews: int) -> NodeSnapshot:
        fellows = (fake.fellow(n, skew_ns=skews.get(f"n{n}", 0) * S) for n in (1, 2, 3) if n != number)
        return node(number, fellows=tuple(fellows))

    what = "n3 has another time than n1 and n2: that of n3 is +5.0 s off, as n1 sees it"
    check_signs([sees(1, n3=5), sees(2, n3=5), sees(3, n1=-5, n2=-5)], [("DUL-CLOCK-SKEW", "n3", what)])


def test_what_was_dropped_is_said() -> None:
    what = "1,200 messages not shown: no room, or unreadable"
    check_signs([node()], [("DUL-MESSAGES-LOST", "watcher", what)], dropped=1200)


def test_errors_come_first_and_the_oldest_before_the_newer() -> None:
    model = SystemModel()
    model.apply(
        Update(snapshots=tuple(ReceivedSnapshot(node(n), START_NS + n * S) for n in (2, 3, 1))), START_NS
    )
    model.apply(
        Update(notices=(FeedNotice(NoticeKind.NODE_LOST, START_NS + 9 * S, "", node_id(3)),)), START_NS
    )
    model.apply(Update(snapshots=(ReceivedSnapshot(node(4), START_NS + 60 * S),)), START_NS + 60 * S)
    found = looked(model, START_NS + 62 * S).open
    assert [one.what for one in found] == ["n3 is gone", "n1 is silent", "n2 is silent"]


def test_a_part_is_no_complete_node_and_where_nobody_has_more_that_is_an_error() -> None:
    lazy = fake.name_space("Orders", 1, phase="part", complete=False, alignee="Lazy", count=3)
    what = "Orders: no node has the whole set; n1 may have parts of it"
    check_signs([fake.snapshot(1, lazy)], [("DUL-ONLY-PARTS", "Orders", what)])
    model = SystemModel()
    model.apply(Update(snapshots=(ReceivedSnapshot(fake.snapshot(1, lazy), START_NS),)), START_NS)
    verdict = looked(model, START_NS + S).verdict
    assert verdict.text == "ERROR · 1 error · 0 of 1 node complete, 1 with less than a whole set"


def test_a_set_that_comes_from_parts_is_no_complete_node() -> None:
    made = fake.name_space("Orders", 1, from_parts=True)
    what = "Orders: the set of n1 comes from parts that Lazy nodes had kept"
    check_signs([fake.snapshot(1, made)], [("DUL-SET-FROM-PARTS", "Orders", what)])
    model = SystemModel()
    model.apply(Update(snapshots=(ReceivedSnapshot(fake.snapshot(1, made), START_NS),)), START_NS)
    assert "0 of 1 node complete, 1 with less" in looked(model, START_NS + S).verdict.text


def test_a_cut_history_is_a_notice_once_for_all_nodes_and_topics_with_the_line_to_write() -> None:
    groups = tuple(
        msgspec.structs.replace(GROUP, topic=f"T{number}", asked=2, depth=0) for number in range(2)
    )
    groups += tuple(
        msgspec.structs.replace(GROUP, topic=f"U{number}", asked=2 + number) for number in range(5)
    )
    model, now_ns = SystemModel(), START_NS + S
    heard = [msgspec.structs.replace(node(number, groups=groups), time_ns=now_ns) for number in (1, 2, 3)]
    model.apply(Update(tuple(ReceivedSnapshot(one, now_ns) for one in heard)), now_ns)
    (found,) = (one for one in incidents(model, now_ns) if one.code.id == "DUL-HISTORY-CUT")
    assert found.severity is Severity.NOTICE
    assert "Orders.U0 (asked KEEP_LAST 2, kept KEEP_LAST 1); Orders.U1" in found.what
    assert found.what.endswith("; 2 more topics")
    assert found.next.endswith(
        "topic U0 and all of its writers: Policy.DurabilityService(0, Policy.History.KeepLast(2), -1, -1, -1)"
    )


def test_samples_that_the_same_limits_reject_on_all_nodes_are_one_incident() -> None:
    group = msgspec.structs.replace(GROUP, rejected=(("max_samples", 3),))
    model, now_ns = SystemModel(), START_NS + S
    heard = [msgspec.structs.replace(node(number, groups=(group,)), time_ns=now_ns) for number in (1, 2, 3)]
    model.apply(Update(tuple(ReceivedSnapshot(one, now_ns) for one in heard)), now_ns)
    (found,) = (one for one in incidents(model, now_ns) if one.code.id == "DUL-REJECTED")
    assert found.who == "n1"
    assert found.what.startswith("n1, n2 and n3 rejected samples by the same limits: n1 rejected samples of")


MISSING, OTHER, UNASKED = (
    "without a proof",
    "with another secret",
    "with a proof, while there is no secret here",
)
FOREIGN = "in the name of a node that it is not"
ELEMENT = "//OpenSplice/Domain/DomainSecret"
GIVEN = "`OSPLTOOL_DOMAIN_SECRET=FILE`, or the configuration of a node"
CLIENT = "client store, process 7 on h"


def refusing(number: int, **why: str) -> NodeSnapshot:
    """A node that refuses these, each for a reason: nodes by name, and `client`."""
    unproved = tuple(
        UnprovedView("0f" * 16, CLIENT, {reason: 4})
        if name == "client"
        else UnprovedView(name * 16, name, {reason: 4}, node_id(int(name[1:])))
        for name, reason in why.items()
    )
    has_secret = UNASKED not in why.values()
    return node(number, unproved=unproved, secret=f"/s{number}" if has_secret else "")


REFUSALS: dict[str, tuple[list[NodeSnapshot], str, str, str, str]] = {
    "a node without the secret": (
        [refusing(1, n4=MISSING), refusing(2, n4=MISSING)],
        "n4",
        "n1 and n2 refuse messages of n4 (8 without a proof)",
        f"n4 has no secret: {ELEMENT} is missing in its configuration; or somebody imitates it",
        f"Set {ELEMENT} of n4 to a file with the first secret in /s1 of n1, and restart n4.",
    ),
    "a node with another one": (
        [refusing(1, n4=OTHER)],
        "n4",
        "n1 refuses messages of n4 (4 with another secret)",
        f"the first secret in the file of n4 ({ELEMENT}) is not in /s1 of n1",
        "Put the secrets of /s1 of n1 into the file of n4; it reads it within a second.",
    ),
    "what lacks the secret of all others": (
        [refusing(1, n2=OTHER, n3=OTHER)],
        "n1",
        "n1 refuses messages of n2 and n3 (8 with another secret)",
        f"/s1 of n1 ({ELEMENT}) lacks the first secret of the others",
        "Put the secret of the others into /s1; n1 reads it within a second.",
    ),
    "seen from the node without it": (
        [refusing(4, n1=UNASKED, n2=UNASKED)],
        "n4",
        f"n4 refuses messages of n1 and n2 (8 {UNASKED})",
        f"n4 has no secret, and others have one: {ELEMENT} is missing in file:///etc/ospl/n4.xml",
        f"Set {ELEMENT} in file:///etc/ospl/n4.xml to a file with the secret of the others, and restart n4.",
    ),
    "a client": (
        [refusing(1, client=MISSING), refusing(2, client=MISSING), refusing(3, client=MISSING)],
        CLIENT,
        f"n1, n2 and n3 refuse messages of {CLIENT} (12 without a proof)",
        f"{CLIENT} has no secret of the domain, and the nodes have one",
        f"Give it the first secret in /s1 of n1: {GIVEN}. If nobody knows it, find out who runs it.",
    ),
    "who is no node, with and without a secret": (
        [refusing(1, client=FOREIGN), msgspec.structs.replace(refusing(2, client=FOREIGN), secret="")],
        CLIENT,
        f"n1 and n2 refuse messages of {CLIENT} (8 {FOREIGN})",
        f"{CLIENT} is not the node that its messages name: a program at fault, or somebody who attacks",
        (
            "Find out who runs it, and stop it. "
            "Let a firewall keep strangers out of the domain (docs/security.md)."
        ),
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_messages_without_a_proof_are_one_finding_with_what_differs(case: str) -> None:
    shown, who, what, why, advice = REFUSALS[case]
    model = SystemModel()
    model.apply(Update(snapshots=tuple(ReceivedSnapshot(each, START_NS) for each in shown)), START_NS)
    (found,) = [one for one in incidents(model, START_NS + S) if one.code.id != "DUL-PARTIAL-MESH"]
    assert (found.code.id, found.who, found.what) == ("DUL-UNPROVED", who, what)
    assert (found.why, found.next) == (why, advice)


def test_a_node_that_is_refused_is_absent_for_a_reason_that_is_known() -> None:
    model = SystemModel()
    fellows = {1: (fake.fellow(2),), 2: (fake.fellow(1),)}
    heard = [msgspec.structs.replace(refusing(n, n4=MISSING), fellows=fellows[n]) for n in (1, 2)]
    model.apply(
        Update(snapshots=tuple(ReceivedSnapshot(each, START_NS) for each in heard)), START_NS - 30 * S
    )
    (found,) = incidents(model, START_NS + S, Expectation(("n1", "n2", "n4")))
    assert (found.code.id, found.who, found.severity) == ("DUL-UNPROVED", "n4", Severity.ERROR)
    assert found.signs[1:] == ("n4 is expected and was not heard since this watch began",)
    model = SystemModel()
    model.apply(Update(snapshots=(ReceivedSnapshot(refusing(1, n4=OTHER), START_NS),)), START_NS)
    (copies,) = looked(model, START_NS + S, Expectation(("n1", "n4"))).redundancies
    assert copies.warning == "the last copy in reach", "n4 is there, and holds something"


@pytest.mark.parametrize("expected", [("n1", "n2", "n4"), ("n3", "n4")])
def test_a_watch_that_refuses_nodes_says_why_it_does_not_hear_them(expected: tuple[str, ...]) -> None:
    model = SystemModel()
    text = f"this watch refuses messages of n3, n4 (9 {UNASKED}): it has no secret of the domain"
    notice = FeedNotice(NoticeKind.UNPROVED, START_NS, text, names=("n3", "n4"))
    heard = [node(n, fellows=(fake.fellow(3 - n),)) for n in (1, 2)] if "n1" in expected else []
    model.apply(
        Update(snapshots=tuple(ReceivedSnapshot(each, START_NS) for each in heard)), START_NS - 30 * S
    )
    model.apply(Update(notices=(notice,)), START_NS)
    (found,) = incidents(model, START_NS + S, Expectation(expected))
    assert found.code.id == ("DUL-UNPROVED" if heard else "DUL-DOMAIN-LOST")
    assert "it has no secret of the domain" in found.why
    assert "OSPLTOOL_DOMAIN_SECRET=FILE" in found.next


def test_a_secret_that_cannot_be_read_again_is_shown() -> None:
    what = "n1 keeps the secret that it had: /s has mode 0644"
    shown = [node(1, secret="/s", secret_problem="/s has mode 0644")]
    check_signs(shown, [("DUL-SECRET-KEPT", "n1", what)])
