"""When troubles began, as one tells who comes late: exactly if others know it, else "since before"."""

from __future__ import annotations

from typing import Any

import pytest

from engine.runtime.monitor import GroupView
from ospltool.health.health import Health
from ospltool.health.incidents import Incident
from ospltool.health.presence import IN_ORDER
from ospltool.health.prometheus import families
from ospltool.live.expectation import NOTHING, Expectation
from ospltool.live.feed import ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from ospltool.live.supervision import SupervisorReport
from ospltool.views.cells import UNICODE
from ospltool.views.node import nodes
from ospltool.views.view import View
from tests import fake
from tests.fake import SECOND_NS as S
from tests.fake import START_NS

LOST = GroupView("Orders", "Orders", "Own", "T", "VOLATILE", 10, 10, 1, "d", 1, 10, lost=3)


def parting(node: int, fellow: int, second: int, reason: str = "its heartbeat is overdue") -> Any:
    text = f"Removing confirmed fellow n{fellow}. Reason: {reason}."
    return fake.event(second, node, START_NS + second * S, text, event="fellow.disconnected")


ALL = Expectation(("n1", "n2", "n3"))


class Watcher:
    """One who watches n1, n2 and n3 from a second on, heard once a second; they were there long before."""

    def __init__(self, began: int, expected: Expectation = ALL) -> None:
        self.model = SystemModel()
        self.health = Health(self.model, expected)
        self.began = began

    def hear(
        self, second: int, fellows: dict[int, dict[int, int]], *events: Any, other: str = "9f3c", **of_3: Any
    ) -> None:
        """Hear the nodes of `fellows`, each with its fellows and when it heard them last.

        `other` is the digest of n3.
        """
        if second < self.began:
            return
        now_ns = START_NS + second * S
        told = [
            fake.snapshot(
                node, fake.name_space("Orders", 1, digest=other if node == 3 else "9f3c"), time_ns=now_ns,
                fellows=tuple(fake.fellow(one, START_NS + last * S) for one, last in theirs.items()),
                **(of_3 if node == 3 else {}),
            )
            for node, theirs in fellows.items()
        ]  # fmt: skip
        past = events if second == self.began else tuple(one for one in events if one.time_ns == now_ns)
        received = tuple(ReceivedSnapshot(one, now_ns) for one in told)
        self.model.apply(Update(received, tuple(one for one in past if one.time_ns <= now_ns)), now_ns)
        self.health.update(now_ns)

    @property
    def found(self) -> Incident:
        (found,) = self.health.open
        return found


def all_hear(second: int, *nodes: int) -> dict[int, dict[int, int]]:
    return {one: {other: second for other in nodes if other != one} for one in nodes}


KILLED = 20


@pytest.mark.parametrize("expected", [ALL, NOTHING])
@pytest.mark.parametrize(
    ("began", "since", "is_before"), [(1, KILLED, False), (21, KILLED, False), (23, 22, True)]
)
def test_a_node_is_gone_since_its_fellows_heard_it_last(
    began: int, since: int, expected: Expectation, *, is_before: bool
) -> None:
    """Two seconds later they remove it; who comes then knows it from them, with and without a fleet file."""
    watcher = Watcher(began, expected)
    events = (parting(1, 3, KILLED + 2), parting(2, 3, KILLED + 2))
    for second in range(1, 40):
        heard = all_hear(second, 1, 2, 3)
        if second > KILLED:
            del heard[3]
            for one in heard.values():
                one[3] = KILLED
                if second >= KILLED + 2:
                    del one[3]
        watcher.hear(second, heard, *events)
    found = watcher.found
    assert (found.code.id, found.who) == ("DUL-NODE-GONE", "n3")
    assert (found.since_ns, found.began_before) == (START_NS + since * S, is_before)
    if began > KILLED:
        told = ", at the latest since 01:03:42" if is_before else " since 01:03:40"
        assert found.what == f"n3 is gone{told} UTC according to n1 and n2"
        assert found.next.startswith("Look at the host of n3 first, and at the link to it. If it answers, ")


def test_fellows_are_not_said_to_tell_a_beginning_that_a_supervisor_told() -> None:
    watcher = Watcher(24)
    ended = SupervisorReport("killed", is_trouble=True, is_dead=True, ended_ns=START_NS + KILLED * S)
    watcher.health = Health(watcher.model, watcher.health.expected, reports=lambda: {"n3": ended})
    for second in range(24, 34):
        watcher.hear(second, all_hear(second, 1, 2), parting(1, 3, KILLED + 2), parting(2, 3, KILLED + 2))
    found = watcher.found
    assert (found.since_ns, found.began_before) == (START_NS + KILLED * S, False)
    assert found.what == "n3 is gone, and was not heard since this watch began"


LATER = 23
"""When a watch without a fleet file begins; before it, n3 was killed or stopped."""

UNTOLD = [
    ("it is silent", {3: KILLED}, (), 1, "WARNING · 1 warning · 2 of 3 nodes complete", "silent", KILLED),
    ("one knows it", {}, (), 2, "WARNING · 1 warning · 2 of 3 nodes complete", "silent", KILLED),
    ("lost", {}, (parting(2, 3, 22),), 0, "ERROR · 1 error · 2 of 3 nodes complete", "gone", 22),
    ("it ended", {}, (parting(2, 3, 22, IN_ORDER),), 0, "OK · 2 of 2 nodes complete", "", 0),
    ("lost in an earlier run", {}, (parting(2, 3, -601),), 0, "OK · 2 of 2 nodes complete", "", 0),
    (
        "it is heard by its fellows only",
        {3: LATER + 2},
        (),
        2,
        "STARTING · 2 of 3 nodes complete",
        "not heard yet",
        25,
    ),
]


@pytest.mark.parametrize(("name", "third", "events", "knowing", "verdict", "state", "since"), UNTOLD)
def test_the_verdict_is_never_better_than_what_heard_nodes_tell_of_others(
    name: str,
    third: dict[int, int],
    events: tuple[Any, ...],
    knowing: int,
    verdict: str,
    state: str,
    since: int,
) -> None:
    watcher = Watcher(LATER, NOTHING)
    for second in (LATER, LATER + 1, LATER + 2):
        heard = all_hear(second, 1, 2)
        for one in list(heard)[:knowing]:
            heard[one][3] = third.get(3, KILLED)
        watcher.hear(second, heard, *events)
    assert watcher.health.verdict.text.startswith(verdict)
    view = View(watcher.health, START_NS + (LATER + 2) * S, UNICODE)
    rows = nodes(view, 200)
    facts = {str(told["node"]): told for told in map(rows.facts, range(len(rows.keys)))}
    assert facts.get("n3", {}).get("state", "") == state, name
    up = (one for each in families([("7", watcher.health, view.now_ns)]) for one in each.samples)
    told = {one.labels["node"]: one.value for one in up if one.name == "ospltool_node_up"}
    assert told.get("n3") == (0 if state else None)
    assert [one.since_ns for one in watcher.health.open] == [START_NS + since * S] * len(watcher.health.open)


def test_a_node_that_its_fellows_heard_a_moment_ago_is_not_said_to_be_heard_now() -> None:
    watcher = Watcher(20)
    for second in range(20, 27):
        watcher.hear(second, {1: {2: second, 3: 21}, 2: {1: second, 3: 21}})
    assert watcher.found.code.id == "DUL-NODE-SILENT"
    assert watcher.found.why.endswith("n1 and n2 heard it last at 01:03:41 UTC")


PARTED = 20


@pytest.mark.parametrize("began", [1, 23])
@pytest.mark.parametrize("is_told", [True, False])
def test_two_nodes_do_not_hear_each_other_since_one_lost_the_other(began: int, *, is_told: bool) -> None:
    watcher = Watcher(began)
    events = (parting(3, 2, PARTED), parting(2, 3, PARTED)) if is_told else ()
    for second in range(1, 40):
        heard = all_hear(second, 1, 2, 3)
        if second > PARTED:
            del heard[2][3], heard[3][2]
        watcher.hear(second, heard, *events)
    found = watcher.found
    assert (found.code.id, found.who) == ("DUL-PARTIAL-MESH", "n2 and n3")
    known = PARTED if is_told else max(began, PARTED + 1)
    assert (found.since_ns, found.began_before) == (START_NS + known * S, not is_told and began > PARTED)


@pytest.mark.parametrize(
    ("began", "is_told", "since", "is_before"),
    [(1, True, 20, False), (30, True, 20, True), (30, False, 30, True)],
)
def test_samples_were_lost_at_the_latest_when_the_node_told_so(
    began: int, since: int, *, is_told: bool, is_before: bool
) -> None:
    watcher = Watcher(began)
    event = fake.event(
        1, 3, START_NS + 20 * S, "3 samples of group Orders.Own arrived too old", event="capture.lost"
    )
    for second in range(1, 40):
        groups: dict[str, Any] = {"groups": (LOST,)} if second >= 20 else {}
        watcher.hear(second, all_hear(second, 1, 2, 3), *((event,) if is_told else ()), **groups)
    found = watcher.found
    assert found.code.id == "DUL-CAPTURE-LOSS"
    assert (found.since_ns, found.began_before) == (START_NS + since * S, is_before)


@pytest.mark.parametrize("begins", [1, 20])
def test_sets_that_differ_when_the_watch_begins_differed_before(begins: int) -> None:
    watcher = Watcher(1)
    for second in range(1, 60):
        watcher.hear(second, all_hear(second, 1, 2, 3), other="theirs" if second >= begins else "9f3c")
    found = watcher.found
    assert found.code.id == "DUL-SET-DIFFERS"
    assert (found.since_ns, found.began_before) == (START_NS + begins * S, begins == 1)


def test_two_nodes_that_do_not_hear_each_other_are_told_by_one_who_never_heard_the_other() -> None:
    watcher = Watcher(30)
    for second in range(30, 40):
        watcher.hear(second, {1: {2: second, 3: second}, 3: {1: second}}, parting(3, 2, PARTED))
    found = {one.who: one for one in watcher.health.open}
    assert {who: one.code.id for who, one in found.items()} == {
        "n2": "DUL-NODE-ABSENT",
        "n2 and n3": "DUL-PARTIAL-MESH",
    }
    mesh = found["n2 and n3"]
    assert (mesh.what, mesh.since_ns) == ("n3 does not hear n2, which n1 hears", START_NS + PARTED * S)


def test_a_node_stood_still_since_the_beginning_of_that() -> None:
    watcher = Watcher(30)
    text = (
        "This node stood still for 6.000000000 seconds; "
        "the silence of its fellows in that time does not count."
    )
    stalled = fake.event(1, 3, START_NS + 29 * S, text, event="watch.stalled", level="WARNING")
    for second in range(30, 33):
        watcher.hear(second, all_hear(second, 1, 2, 3), stalled)
    found = watcher.found
    assert (found.code.id, found.since_ns, found.began_before) == (
        "DUL-NODE-STALLED",
        START_NS + 23 * S,
        False,
    )
