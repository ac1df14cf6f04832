"""Incidents of systems whose nodes tell of themselves every second for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest

from engine.runtime.monitor import GroupView, NodeSnapshot, StoreStatus
from ospltool.health.health import Health
from ospltool.live.expectation import NOTHING, Expectation, ExpectedSpace
from ospltool.live.feed import ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from ospltool.live.supervision import SupervisorReport
from tests import fake
from tests.fake import SECOND_NS as S
from tests.fake import START_NS, node_id
from tests.health.looking import node

TWO_ON_DISK = Expectation(("n1", "n2"), (ExpectedSpace("Orders", copies=2, on_disk=2),))


def watched(
    seconds: int, told: Callable[[int], Iterable[NodeSnapshot]], expected: Expectation = NOTHING
) -> Health:
    """The health after so many seconds, in each of which the nodes say what `told` returns."""
    model = SystemModel()
    health = Health(model, expected)
    for second in range(seconds):
        now_ns = START_NS + second * S
        model.apply(Update(tuple(ReceivedSnapshot(one, now_ns) for one in told(second))), now_ns)
        health.update(now_ns)
    return health


def codes(health: Health) -> list[str]:
    return [one.code.id for one in health.every]


def keeping(number: int, second: int, **changes: Any) -> NodeSnapshot:
    """A node with one persistent group."""
    group: dict[str, Any] = {"samples": 100, "stored": 100, "digest": "0" * 32, **changes}
    view = GroupView(
        "Orders", "Orders", "Trade", "T", "PERSISTENT", instances=10, bytes=1, newest_ns=1, lost=0, **group
    )
    fellows = tuple(fake.fellow(other) for other in (1, 2) if other != number)
    space = fake.name_space("Orders", 1)
    return fake.snapshot(number, space, groups=(view,), time_ns=START_NS + second * S, fellows=fellows)


@pytest.mark.parametrize(
    "on_disk",
    [
        lambda second: {"samples": 100 + 80 * second, "stored": 98 + 80 * second},
        lambda second: {"samples": 100, "stored": 99, "digest": f"{second:032x}"},
    ],
    ids=["new instances", "the same instances"],
)
def test_samples_on_their_way_to_a_healthy_disk_are_no_lack_of_copies(
    on_disk: Callable[[int], dict[str, Any]],
) -> None:
    health = watched(30, lambda second: [keeping(n, second, **on_disk(second)) for n in (1, 2)], TWO_ON_DISK)
    assert codes(health) == []


@pytest.mark.parametrize(
    "on_disk",
    [
        lambda second: {"samples": 5_000 + 80 * second, "stored": 3_900 + 80 * second},
        lambda second: {"samples": 100, "stored": 60},
        lambda second: {"samples": 100 + second, "stored": 60, "digest": f"{second:032x}"},
    ],
    ids=["far behind", "nothing comes or goes", "nothing is written"],
)
def test_a_disk_that_is_far_behind_or_takes_nothing_has_no_copy(
    on_disk: Callable[[int], dict[str, Any]],
) -> None:
    health = watched(
        30, lambda second: [keeping(1, second), keeping(2, second, **on_disk(second))], TWO_ON_DISK
    )
    assert codes(health) == ["DUL-DISK-COPIES-LOW"]
    (one,) = health.open
    assert one.what == "Orders: 2 of 2 copies, 1 of 2 on disk; not on the disk of n2"


@pytest.mark.parametrize(
    ("report", "told"),
    [
        (
            SupervisorReport("seen on its host: has died, its supervisor was killed", is_trouble=True),
            ["DUL-NODE-ABSENT"],
        ),
        (SupervisorReport("its supervisor says: is not running", in_order=True), []),
        (SupervisorReport("", is_starting=True), []),
    ],
    ids=["dead", "stopped", "starting"],
)
def test_a_node_that_died_before_anybody_watched_is_told_without_a_fleet_file(
    report: SupervisorReport, told: list[str]
) -> None:
    """What the run directories of this machine know of dead, hanging and restarted nodes counts."""
    model = SystemModel()
    health = Health(model, reports=lambda: {"n2": report})
    for second in range(8):
        heard = ReceivedSnapshot(fake.snapshot(1, time_ns=START_NS + second * S), START_NS + second * S)
        model.apply(Update((heard,)), START_NS + second * S)
        health.update(START_NS + second * S)
    assert [one.code.id for one in health.open] == told
    assert [(one.who, one.why) for one in health.open] == [("n2", report.text)] * len(told)
    assert [one.what for one in health.open] == ["n2 was started on this machine and is not heard"] * len(
        told
    )


def test_an_incident_of_the_disk_begins_when_the_node_told_so() -> None:
    """The node remembers it, and tells watchers that come late."""
    model = SystemModel()
    health = Health(model)
    full = StoreStatus("sqlite", "/x", problem="/x: no space left on device")
    told = ((900, "degraded"), (800, "recovered"), (300, "degraded"), (200, "degraded"))
    events = tuple(
        fake.event(number, 1, START_NS - ago * S, what, event=f"store.{what}", level="SEVERE")
        for number, (ago, what) in enumerate(told)
    )
    heard = fake.snapshot(1, store=full, started_ns=START_NS - 1000 * S)
    model.apply(Update((ReceivedSnapshot(heard, START_NS),), events), START_NS)
    health.update(START_NS)
    (found,) = health.open
    assert (found.code.id, found.since_ns, found.began_before) == (
        "DUL-STORE-FULL",
        START_NS - 300 * S,
        False,
    )


def full(seconds: range) -> Callable[[int], Iterable[NodeSnapshot]]:
    """A node whose disk is full for so long, which it tells in no event."""
    problem = StoreStatus("sqlite", "/x", problem="/x: no space left on device")
    return lambda second: [
        fake.snapshot(1, time_ns=START_NS + second * S, **({"store": problem} if second in seconds else {}))
    ]


@pytest.mark.parametrize(
    ("seconds", "began_before", "lasts"),
    [(range(20), True, "> 19 s"), (range(10, 20), False, "9 s")],
    ids=["when the watch began", "later"],
)
def test_what_was_there_when_the_watch_began_has_a_beginning_that_nobody_tells(
    seconds: range, began_before: bool, lasts: str
) -> None:
    health = watched(20, full(seconds))
    (found,) = health.open
    now_ns = START_NS + 19 * S
    assert (found.began_before, found.since_ns) == (began_before, START_NS + seconds.start * S)
    assert (found.lasts(now_ns), found.since) == (lasts, "since before" if began_before else "since")


def test_a_return_of_what_was_there_at_first_has_a_known_beginning() -> None:
    told = watched(20, lambda second: [*full(range(20) if second not in range(1, 3) else range(0))(second)])
    assert [(one.code.id, one.began_before) for one in told.every] == [
        ("DUL-STORE-FULL", False),
        ("DUL-STORE-FULL", True),
    ]


@pytest.mark.parametrize("is_told", [True, False])
def test_an_incompatibility_begins_when_a_node_found_it_else_with_the_later_start(is_told: bool) -> None:
    """Nodes cannot change what they define while they run, and tell of it when they meet."""
    model = SystemModel()
    health = Health(model)
    text = (
        f"Communication with fellow {node_id(2)[:8]} NOT approved, because data model is not compatible: "
        "my nameSpace 'A' [A.*] overlaps with its nameSpace 'B' [A.*]"
    )
    told = fake.event(1, 1, START_NS - 100 * S, text, event="compatibility.conflict", level="WARNING")
    refused = fake.fellow(2, communication="incompatible", problem="name-space A")
    heard = (
        fake.snapshot(1, fellows=(refused,), started_ns=START_NS - 900 * S),
        fake.snapshot(2, fellows=(fake.fellow(1),), started_ns=START_NS - 300 * S),
    )
    update = Update(tuple(ReceivedSnapshot(one, START_NS) for one in heard), (told,) if is_told else ())
    model.apply(update, START_NS)
    health.update(START_NS)
    began_ns = START_NS - (100 if is_told else 300) * S
    assert [(one.code.id, one.since_ns) for one in health.open] == [("DUL-INCOMPATIBLE", began_ns)]


def test_different_definitions_begin_when_the_first_node_of_the_other_side_started() -> None:
    model = SystemModel()
    health = Health(model)
    heard = [
        fake.snapshot(
            number,
            fake.name_space("A", 1, durability="Transient" if number > 2 else "Persistent"),
            fellows=tuple(fake.fellow(other) for other in (1, 2, 3, 4) if other != number),
            started_ns=START_NS - ago * S,
        )
        for number, ago in ((1, 900), (2, 100), (3, 300), (4, 200))
    ]
    model.apply(Update(tuple(ReceivedSnapshot(one, START_NS) for one in heard)), START_NS)
    health.update(START_NS)
    found = [(one.code.id, one.since_ns) for one in health.open]
    assert found == [("DUL-CONFIG-DIFFERS", START_NS - 300 * S)]


@pytest.mark.parametrize(("state", "told_s"), [("COMPLETE", 3), ("FETCH_INITIAL", 10)])
def test_a_node_that_starts_has_more_time_to_meet_the_others(state: str, told_s: int) -> None:
    model = SystemModel()
    health = Health(model)
    told = []
    for second in range(told_s + 1):
        now_ns = START_NS + second * S
        nodes = (node(1, state=state), node(2))
        model.apply(Update(snapshots=tuple(ReceivedSnapshot(one, now_ns) for one in nodes)), now_ns)
        health.update(now_ns)
        told += [second for one in health.open if one.code.id == "DUL-PARTIAL-MESH"]
    assert told[0] == told_s


def test_nodes_that_restart_one_after_the_other_are_not_taken_for_nodes_that_do_not_hear_each_other() -> None:
    """Each meets the other within a second; the time of one restart does not count for the next one."""
    model = SystemModel()
    health = Health(model)
    for half in range(20):
        now_ns = START_NS + half * S // 2
        restarted, is_met = half // 2, half % 2 == 1
        nodes = [
            msgspec.structs.replace(
                node(number, fellows=(fake.fellow(3 - number),) if is_met else ()),
                started_ns=START_NS - S + (restarted + number) // 2 * S,
            )
            for number in (1, 2)
        ]
        model.apply(Update(snapshots=tuple(ReceivedSnapshot(one, now_ns) for one in nodes)), now_ns)
        health.update(now_ns)
        assert [one.what for one in health.open if one.code.id == "DUL-PARTIAL-MESH"] == []


@pytest.mark.parametrize("samples", [0, 100], ids=["empty", "with samples"])
def test_a_policy_that_keeps_nothing_on_disk_is_no_copy_there(samples: int) -> None:
    """Also while the set is empty: nothing that is written from now on comes to that disk."""

    def told(second: int) -> list[NodeSnapshot]:
        nodes = [keeping(number, second, samples=samples, stored=samples) for number in (1, 2)]
        spaces = (fake.name_space("Orders", 1, durability="Transient", count=samples),)
        group = msgspec.structs.replace(nodes[1].groups[0], stored=0)
        groups = (group,) if samples else ()
        return [nodes[0], msgspec.structs.replace(nodes[1], name_spaces=spaces, groups=groups, role="other")]

    health = watched(30, told, TWO_ON_DISK)
    assert codes(health) == ["DUL-DISK-COPIES-LOW"]
    (one,) = health.open
    assert one.what == "Orders: 2 of 2 copies, 1 of 2 on disk; not on the disk of n2"
    assert one.why == "n2: the durability Transient of its policy keeps nothing on disk"
