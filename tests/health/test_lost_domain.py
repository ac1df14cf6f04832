"""What is said of a lost domain: which copies are lost, on which disks they are, what to do."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest

from engine.runtime.monitor import GroupView, NodeSnapshot, StoreStatus
from ospltool.health.codes import codes
from ospltool.health.incidents import Incident
from ospltool.live.expectation import Expectation
from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from ospltool.live.supervision import SupervisorReport
from tests import fake
from tests.fake import SECOND_NS, START_NS, node_id
from tests.health.looking import looked

CODE = codes()["DUL-DOMAIN-LOST"]
DIED = SupervisorReport("seen on its host: has died", is_trouble=True, is_dead=True)
COMES = SupervisorReport("its supervisor says: killed", is_trouble=True, is_dead=True, is_coming=True)
HANGS = SupervisorReport("seen on its host: does not respond", is_trouble=True, pid=7)
TRANSIENT = GroupView("ns1", "P", "T", "T", "TRANSIENT", 30, 1, 1, "d", START_NS, 0, 0)
STORED = GroupView("ns1", "P", "S", "T", "PERSISTENT", 70, 1, 1, "d", START_NS, 70, 0)


def snapshot(number: int, *, on_disk: bool = True) -> NodeSnapshot:
    store = StoreStatus("sqlite", f"/var/n{number}") if on_disk else StoreStatus("memory", "")
    others = tuple(fake.fellow(other) for other in (1, 2, 3) if other != number)
    view = fake.name_space("ns1", 1, count=100, durability="Persistent")
    return fake.snapshot(number, view, fellows=others, store=store, groups=(STORED, TRANSIENT))


def lost(
    *nodes: NodeSnapshot, reports: Mapping[str, SupervisorReport] | None = None, stopped: int = 0
) -> Incident:
    """The incident of a domain whose nodes were heard and are all lost, one perhaps stopped in order."""
    model = SystemModel()
    model.apply(Update(tuple(ReceivedSnapshot(one, START_NS) for one in nodes)), START_NS)
    if stopped:
        gone = FeedNotice(NoticeKind.NODE_LOST, START_NS, "", node_id(stopped), in_order=True)
        model.apply(Update(notices=(gone,)), START_NS)
    model.apply(Update(notices=(FeedNotice(NoticeKind.DOMAIN_LOST, START_NS, ""),)), START_NS)
    (found,) = looked(model, START_NS + 30 * SECOND_NS, reports=reports).open
    assert found.code is CODE
    return found


ALL_DEAD = (
    "all copies in memory are lost; ns1: 30 of 100 samples lost, the rest on the disks of n1, n2 and n3; "
    "stores: n1 /var/n1, n2 /var/n2, n3 /var/n3"
)
NO_DISK = "all copies in memory are lost; ns1: 100 samples are lost, on no disk"
SILENT = (
    "nothing is known of any node; those that run keep their data; "
    "ns1: 100 samples on n1, n2 and n3, on the disk of n2; stores: n2 /var/n2"
)
ONE_DEAD = (
    "what only n1 had in memory is lost; nothing is known of n2 and n3: they keep their data if they run; "
    "ns1: 100 samples on n1, n2 and n3, on the disk of n1; stores: n1 /var/n1"
)
HOW = "`ospltool status` tells how each of them ended."
START = f"Start n1, n2 and n3 again with `ospltool start`. {HOW}"
WAIT = "Wait for n1 and n3: the supervisors start them again. Start n2 again with `ospltool start`. "


@pytest.mark.parametrize(
    ("disks", "reports", "effect", "advice"),
    [
        ((1, 2, 3), {"n1": DIED, "n2": DIED, "n3": DIED}, ALL_DEAD, START),
        ((), {"n1": COMES, "n2": DIED, "n3": COMES}, NO_DISK, WAIT + HOW),
        ((2,), {}, SILENT, CODE.next),
        ((1,), {"n1": DIED, "n2": HANGS}, ONE_DEAD, CODE.next),
    ],
)
def test_copies_of_a_lost_domain(
    disks: tuple[int, ...], reports: dict[str, SupervisorReport], effect: str, advice: str
) -> None:
    found = lost(*(snapshot(number, on_disk=number in disks) for number in (1, 2, 3)), reports=reports)
    assert (found.effect, found.next) == (effect, advice)


def test_a_node_that_was_stopped_before_has_an_older_state_on_its_disk() -> None:
    nodes = (snapshot(1, on_disk=False), snapshot(2))
    found = lost(*nodes, reports={"n1": DIED}, stopped=2)
    assert found.effect == (
        "all copies in memory are lost; ns1: 100 samples are lost, on no disk, an older state on disk at n2, "
        "stopped before"
    )


def test_nodes_that_died_before_the_watch_are_named_with_their_stores() -> None:
    """Nothing is known of what they held."""
    reports = {
        name: SupervisorReport(
            "seen on its host: has died", is_trouble=True, is_dead=True, store=f"/s/{name}"
        )
        for name in ("n1", "n2")
    }
    model = SystemModel()
    model.apply(Update(), START_NS)
    health = looked(model, START_NS + 30 * SECOND_NS, Expectation(("n1", "n2")), reports)
    (found,) = health.open
    assert found.effect == "all copies in memory are lost; stores: n1 /s/n1, n2 /s/n2"
    assert found.next.startswith("Start n1 and n2 again with `ospltool start`.")


@pytest.mark.parametrize(
    ("ends_s", "since_s"), [((40, 30), 30), ((40, 0), 0)], ids=["seen by supervisors", "unknown of one"]
)
def test_a_domain_lost_before_the_watch_dates_from_the_last_end_if_all_are_known(
    ends_s: tuple[int, int], since_s: int
) -> None:
    """`ends_s` and `since_s` are seconds before the watch began."""
    reports = {
        name: dataclasses.replace(DIED, ended_ns=START_NS - end_s * SECOND_NS if end_s else 0)
        for name, end_s in zip(("n1", "n2"), ends_s, strict=True)
    }
    model = SystemModel()
    model.apply(Update(), START_NS)
    health = looked(model, START_NS + 30 * SECOND_NS, Expectation(("n1", "n2")), reports)
    (found,) = health.open
    assert found.what == "none of 2 expected nodes was heard since this watch began: n1 and n2"
    assert found.since_ns == START_NS - since_s * SECOND_NS


@pytest.mark.parametrize("is_watched", [True, False], ids=["watched", "late caller"])
@pytest.mark.parametrize(
    ("stopped", "advice"),
    [
        (
            (1, 2, 3),
            "the processes of n1, n2 and n3. What is still stopped, continue: `kill -CONT 11 12 13`.",
        ),
        ((2,), "the process of n2. What is still stopped, continue: `kill -CONT 12`."),
    ],
)
def test_the_next_step_about_nodes_that_are_stopped_is_to_continue_all_of_them(
    stopped: tuple[int, ...], advice: str, *, is_watched: bool
) -> None:
    reports = {f"n{one}": dataclasses.replace(HANGS, stopped=(10 + one,)) for one in stopped}
    if is_watched:
        found = lost(*map(snapshot, (1, 2, 3)), reports=reports)
    else:
        (found,) = looked(SystemModel(), START_NS, Expectation(("n1", "n2", "n3")), reports).open
    assert (found.code, found.next) == (CODE, f"Find out who stopped {advice}")
