"""A watch whose own link is cut says so, and blames no node; what it can know all the same stays true."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import msgspec
import pytest

from engine.runtime.monitor import FellowView
from ospltool.health.health import Health
from ospltool.health.incidents import Incident
from ospltool.live.expectation import NOTHING, Expectation, ExpectedSpace
from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from ospltool.live.remarks import clock
from ospltool.live.supervision import SupervisorReport
from tests import fake
from tests.fake import SECOND_NS as S
from tests.fake import START_NS, node_id

LINK = "interface e0 has no carrier on the host of this watch, since "
LOST_S = 0.5
"""When the link is lost; the nodes were heard last at 0 s."""


class OwnLink:
    """Three nodes that are heard until 0 s; `heard` go on. This watch is on the host of `here`."""

    def __init__(
        self, *heard: int, here: int = 0, is_known: bool = True, expected: Expectation = NOTHING
    ) -> None:
        self.model = SystemModel()
        self.words: list[str] = []
        self.spread_s = 0.0
        self.reports: dict[str, SupervisorReport] = {}
        own = (f"10.0.0.{here}",) if here else ()
        self.health = Health(self.model, expected, reports=lambda: self.reports, here=own)
        self.heard, self.is_known = heard, is_known
        self.found_s = 1e9
        self.again: dict[int, float] = {}
        self.started_s: dict[int, float] = {}
        self.died_s: dict[int, float] = {}
        self.told: dict[str, Incident] = {}
        self.moment_s = -5.0

    def tell(self, kind: NoticeKind, text: str = "", node: str = "") -> None:
        now_ns = START_NS + round(self.moment_s * S)
        self.model.apply(Update(notices=(FeedNotice(kind, now_ns, text, node),)), now_ns)

    def fellows_of(self, number: int) -> Iterator[FellowView]:
        """Yield the fellows of a node; the dead ones are removed after two seconds."""
        for other in sorted({1, 2, 3} - {number}):
            last_s = min(self.moment_s, self.died_s.get(other, self.moment_s))
            if self.moment_s < last_s + 2.0:
                yield fake.fellow(other, START_NS + round(last_s * S))

    def run(self, until_s: float) -> None:
        while self.moment_s < until_s:
            self.moment_s += 0.25
            now_ns = START_NS + round(self.moment_s * S)
            if self.moment_s == LOST_S and self.is_known:
                self.tell(NoticeKind.LINK_LOST, "interface e0 has no carrier")
            if self.moment_s == self.found_s and self.is_known:
                self.tell(NoticeKind.LINK_FOUND)
            last = tuple(n for n in (1, 2, 3) if self.moment_s <= -n * self.spread_s)
            heard = last if self.moment_s <= 0 else self.heard
            heard += tuple(n for n, begin_s in self.again.items() if self.moment_s >= begin_s)
            shown = tuple(
                msgspec.structs.replace(
                    fake.snapshot(
                        n,
                        fake.name_space("ns1", 1),
                        fellows=tuple(self.fellows_of(n)),
                    ),
                    time_ns=now_ns,
                    started_ns=START_NS + round(self.started_s.get(n, -600.0) * S),
                    pid=n if n in self.started_s else 1_000 + n,
                )
                for n in heard
            )
            self.model.apply(Update(tuple(ReceivedSnapshot(one, now_ns) for one in shown)), now_ns)
            self.health.update(now_ns)
            self.told |= {one.key: one for one in self.health.every}
            self.words.append(self.health.verdict.word)

    def open(self) -> list[tuple[str, str]]:
        return [(one.code.id, one.who) for one in self.health.open]


THREE_COPIES = Expectation(("n1", "n2", "n3"), (ExpectedSpace("ns1", copies=3),))
DOMAIN = [("DUL-DOMAIN-LOST", "domain")]


def test_a_link_without_carrier_is_the_cause_as_soon_as_nobody_is_heard() -> None:
    case = OwnLink()
    case.run(3.0)
    assert case.open() == DOMAIN
    case.moment_s += 0.25
    for n in (1, 2, 3):
        case.tell(NoticeKind.NODE_LOST, node=node_id(n))
    case.tell(NoticeKind.DOMAIN_LOST)
    case.run(20.0)
    case.tell(NoticeKind.LINK_FOUND)
    case.run(30.0)
    (found,) = case.told.values()
    assert (found.what, found.is_cause_known) == ("this watch hears no node any more", True)
    assert found.why.startswith(LINK)
    assert not [node for node in case.model.nodes.values() if case.health.is_heard(node)]


def test_nodes_out_of_reach_by_one_link_are_one_trouble() -> None:
    """A node of the host of this watch is heard all the time; the others come back one after the other."""
    case = OwnLink(1, here=1, expected=THREE_COPIES)
    case.found_s, case.again = 9.0, {2: 10.5, 3: 9.5}
    case.run(9.25)
    (found,) = case.health.open
    assert found.what == "n2 and n3 are out of reach of this watch"
    assert found.why.startswith(LINK)
    assert found.effect.startswith("ns1: 1 of 3 copies, 1 on disk, the last copy in reach")
    assert found.next.startswith("Bring the network of this watch back")
    case.run(20.0)
    assert (len(case.told), case.open()) == (1, [])


def test_a_system_out_of_reach_is_not_told_as_one_that_starts() -> None:
    case = OwnLink(expected=THREE_COPIES)
    case.spread_s = 0.5  # each node shows itself at its own moments
    case.run(4.0)
    words = [word for word, _ in itertools.groupby(case.words)]
    assert words[-3:] == ["OK", "UNKNOWN", "ERROR"]


def test_nodes_that_ended_in_order_did_so_whatever_the_link_does() -> None:
    model = SystemModel()
    model.apply(Update((ReceivedSnapshot(fake.snapshot(1), START_NS),)), START_NS)
    ended = FeedNotice(NoticeKind.NODE_LOST, START_NS + S, "", node_id(1), in_order=True)
    lost = FeedNotice(NoticeKind.LINK_LOST, START_NS + 2 * S, "interface e0 has no carrier")
    model.apply(Update(notices=(ended, lost)), START_NS + 2 * S)
    health = Health(model)
    health.update(START_NS + 3 * S)
    assert health.verdict.word == "UNKNOWN"
    assert health.verdict.why == "n1 ended in order, at 01:03:21 UTC"


def test_without_a_sign_of_the_link_both_causes_are_told() -> None:
    case = OwnLink(is_known=False)
    case.run(6.0)
    (found,) = case.health.open
    assert [(found.code.id, found.who)] == DOMAIN
    assert found.why == (
        "cause unknown: the network of this watch is cut or changed, or every node was killed at once"
    )


def test_nodes_that_were_lost_long_before_the_link_are_not_out_of_reach() -> None:
    case = OwnLink(1, 2)
    case.is_known = False
    case.run(10.0)
    case.tell(NoticeKind.NODE_LOST, node=node_id(3))
    case.tell(NoticeKind.LINK_LOST, "interface e0 has no carrier")
    case.run(11.0)
    (found,) = case.health.open
    assert (found.who, LINK in found.why) == ("n3", False)


@pytest.mark.parametrize("is_dead", [True, False], ids=["killed", "of the same host as one that is heard"])
def test_a_node_that_dies_while_the_link_is_cut_is_no_matter_of_the_link(*, is_dead: bool) -> None:
    case = OwnLink(1, here=1)
    if is_dead:
        case.reports["n2"] = SupervisorReport("its supervisor says: killed", is_trouble=True, is_dead=True)
    else:
        old = case.model.apply

        def apply(update: Update, now_ns: int) -> None:
            old(on_one_host(update), now_ns)

        case.model.apply = apply  # type: ignore[method-assign]  # what is heard passes here first
    case.run(5.0)
    found = {one.who: one for one in case.health.open}
    assert found["n3"].why.startswith(LINK)
    assert found["n3"].code.id == "DUL-NODE-SILENT"
    assert LINK not in found["n2"].why


RETURNS = {
    "before it was the loss of all": (1.5, 1.5),
    "before it is known that the link is back": (3.0, 2.75),
    "after that": (3.0, 3.5),
    "after long": (9.0, 9.5),
}


@pytest.mark.parametrize(
    ("found_s", "first_s", "is_known"),
    [*((*one, True) for one in RETURNS.values()), (9.0, 9.5, False)],
    ids=[*RETURNS, "after long, and nobody sees why"],
)
def test_nodes_have_time_to_be_heard_again_when_the_link_is_back(
    found_s: float, first_s: float, *, is_known: bool
) -> None:
    case = OwnLink(is_known=is_known)
    case.found_s, case.again = found_s, {1: first_s, 2: first_s + 1.0, 3: first_s + 2.5}
    case.run(first_s - 0.25)
    before = set(case.told)
    case.run(20.0)
    assert {one.code.id for key, one in case.told.items() if key not in before} <= {"DUL-DOMAIN-LOST"}
    assert case.open() == []


@pytest.mark.parametrize(("found_s", "first_s"), RETURNS.values(), ids=RETURNS)
def test_a_node_that_died_while_the_link_was_cut_is_told_in_time(found_s: float, first_s: float) -> None:
    case = OwnLink()
    case.found_s, case.again = found_s, {1: first_s, 2: first_s + 1.0}
    case.run(found_s + 5.0)
    assert ("DUL-NODE-SILENT", "n3") in case.open()
    (found,) = [one for one in case.health.open if one.who == "n3"]
    assert found.since_ns == START_NS


@pytest.mark.parametrize("is_known", [True, False], ids=["known link", "unknown link"])
@pytest.mark.parametrize(
    ("found_s", "since_s", "is_before"), [(6.0, 5.0, False), (9.0, 7.0, True)], ids=["heard", "remembered"]
)
def test_a_node_that_died_while_the_link_was_cut_is_lost_since_its_fellows_heard_it(
    found_s: float, since_s: float, *, is_before: bool, is_known: bool
) -> None:
    case = OwnLink(is_known=is_known)
    case.found_s, case.again, case.died_s = found_s, {1: found_s + 0.5, 2: found_s + 0.75}, {3: 5.0}
    case.run(found_s + 0.5)
    text = "Removing confirmed fellow n3. Reason: its heartbeat is overdue."
    past = [fake.event(n, n, START_NS + 7 * S, text, event="fellow.disconnected") for n in (1, 2)]
    if found_s > 7.0:
        case.model.apply(Update(events=tuple(past)), START_NS + round(case.moment_s * S))
    case.run(found_s + 9.0)
    (found,) = case.health.open
    assert (found.who, found.since_ns) == ("n3", START_NS + round(since_s * S))
    assert found.began_before is is_before


def test_a_node_that_its_supervisor_started_again_while_the_link_was_cut_is_told() -> None:
    """Its failure is not part of a loss of all: the others ran, out of reach of this watch."""
    case = OwnLink()
    case.found_s, case.again = 9.0, {1: 9.5, 3: 9.75}
    case.run(9.25)
    case.again[2], case.started_s[2] = 10.0, 8.0
    failed_ns = START_NS + 7 * S
    case.reports["n2"] = SupervisorReport("", pid=2, failed_ns=failed_ns, failure="killed by signal 9")
    case.run(11.0)
    assert ("DUL-NODE-RESTARTED", "n2") in case.open()


@pytest.mark.parametrize(
    ("first_s", "codes"),
    [(9.5, {"DUL-NODE-RESTARTED"}), (20.0, {"DUL-NODE-SILENT", "DUL-NODE-RESTARTED"})],
    ids=["before the link was back", "long after that"],
)
def test_a_node_that_died_while_the_link_was_cut_ends_as_started_again(
    first_s: float, codes: set[str]
) -> None:
    """No supervisor on this machine tells of it: another process speaks for the node."""
    case = OwnLink()
    case.found_s, case.again = 9.0, {1: 9.5, 3: 9.75}
    case.run(9.25)
    case.again[2], case.started_s[2] = first_s, first_s - 1.0
    seen = set()
    while case.moment_s < 30.0:
        case.run(case.moment_s + 0.25)
        seen |= {one.code.id for one in case.told.values() if one.who == "n2"}
    assert (seen, case.open()) == (codes, [])
    (found,) = [one for one in case.told.values() if one.who == "n2"]
    assert found.code.id == "DUL-NODE-RESTARTED"


def test_a_node_that_was_dead_before_stays_so_when_the_link_is_back() -> None:
    case = OwnLink(1, 2)
    case.is_known = False
    case.run(10.0)
    dead = case.open()
    case.tell(NoticeKind.LINK_LOST, "interface e0 has no carrier")
    case.run(11.0)
    case.tell(NoticeKind.LINK_FOUND)
    case.run(18.0)
    assert case.open() == dead == [("DUL-NODE-SILENT", "n3")]
    assert len(case.told) == 1


def on_one_host(update: Update) -> Update:
    return dataclasses.replace(
        update,
        snapshots=tuple(
            dataclasses.replace(one, snapshot=msgspec.structs.replace(one.snapshot, addresses=("10.0.0.1",)))
            if one.snapshot.name == "n2"
            else one
            for one in update.snapshots
        ),
    )


@pytest.mark.parametrize(
    ("here", "lost", "known"),
    [
        ("10.0.0.1", (2, 3), {"n1"}),
        ("10.0.0.1", (2,), {"n1 and n2"}),
        ("10.0.0.9", (2, 3), set()),
    ],
)
def test_nodes_that_do_not_hear_one_of_the_host_of_the_watch_do_so_because_of_its_routes(
    here: str, lost: tuple[int, ...], known: set[str]
) -> None:
    """Multicast still comes to that host, and nothing leaves it to those."""
    model = SystemModel()
    health = Health(model, here=(here,))
    text = " ".join(f"10.0.0.{n}" for n in lost)
    model.apply(Update(notices=(FeedNotice(NoticeKind.ROUTE_LOST, START_NS, text),)), START_NS)
    for second in range(12):
        now_ns = START_NS + second * S
        met = {1: {2, 3}, 2: {1, 3} if 2 not in lost else {3}, 3: {1, 2} if 3 not in lost else {2}}
        shown = tuple(
            fake.snapshot(
                n, fake.name_space("ns1", 1), fellows=tuple(map(fake.fellow, met[n])), time_ns=now_ns
            )
            for n in met
        )
        model.apply(Update(tuple(ReceivedSnapshot(one, now_ns) for one in shown)), now_ns)
        health.update(now_ns)
    gaps = [one for one in health.open if one.code.id == "DUL-PARTIAL-MESH"]
    assert {one.who for one in gaps if "no route leads to 10.0.0.2 on the host" in one.why} == known


def test_a_node_to_which_no_route_leads_is_out_of_reach() -> None:
    """Others are heard, on the same host as the watch, and have lost it, too."""
    case = OwnLink(1, here=1, is_known=False, expected=THREE_COPIES)
    case.moment_s = 0.0
    case.tell(NoticeKind.ROUTE_LOST, "10.0.0.2 10.0.0.3")
    case.moment_s = -5.0
    case.run(9.0)
    assert {one.who: one.severity.label for one in case.health.open} == {"n2": "warning", "n3": "warning"}
    assert all(one.why.startswith("no route leads to 10.0.0.") for one in case.health.open)
    assert "the last copy in reach" in case.health.open[0].effect
    case.tell(NoticeKind.ROUTE_FOUND)
    assert case.model.route_lost is None


@pytest.mark.parametrize("first_s", [0, 6], ids=["watched", "watched since it was cut"])
@pytest.mark.parametrize(("here", "others"), [(1, []), (9, [("DUL-PARTIAL-MESH", "n1 and n3")])])
def test_a_link_cut_for_the_watch_and_the_node_of_its_host_is_one_trouble(
    here: int, others: list[tuple[str, str]], first_s: int
) -> None:
    """The nodes 1 and 2 are heard, and n3 only by n2. In the end the watch hears n3 sooner than n1 does."""
    model = SystemModel()
    health = Health(model, THREE_COPIES, here=(f"10.0.0.{here}",))
    for second in range(first_s, 26):
        now_ns, is_cut = START_NS + second * S, 5 <= second < 20
        met: dict[int, tuple[int, ...]] = {1: (2, 3), 2: (1, 3), 3: (1, 2)}
        if is_cut:
            met = {1: (2,), 2: (1, 3)}
        if second == 20:
            met[1] = (2,)
        shown = tuple(
            fake.snapshot(
                n,
                fake.name_space("ns1", 1),
                fellows=tuple(fake.fellow(o, now_ns) for o in met[n]),
                time_ns=now_ns,
            )
            for n in met
        )
        left = (FeedNotice(NoticeKind.NODE_LOST, now_ns, "", node_id(3)),) if second == 7 else ()
        model.apply(Update(tuple(ReceivedSnapshot(one, now_ns) for one in shown), notices=left), now_ns)
        health.update(now_ns)
        if second == 19:
            (silent,) = [one for one in health.open if one.who == "n3"]
            rest = [(one.code.id, one.who) for one in health.open if one is not silent]
    assert silent.code.id == ("DUL-NODE-ABSENT" if first_s else "DUL-NODE-SILENT")
    assert ("n1 does not hear n3, which n2 hears" in silent.signs) is not bool(others)
    assert rest == others
    assert (len(health.every), health.open) == (1 + len(others), [])


def test_one_who_looks_late_names_the_own_link_as_the_cause_of_what_is_absent() -> None:
    """A node of the host is heard, and no node of another one."""
    model = SystemModel()
    health = Health(model, THREE_COPIES, here=("10.0.0.1",))
    lost = FeedNotice(NoticeKind.LINK_LOST, START_NS, "interface e0 is down")
    for second in range(6):
        now_ns = START_NS + second * S
        shown = (ReceivedSnapshot(fake.snapshot(1, fake.name_space("ns1", 1), time_ns=now_ns), now_ns),)
        model.apply(Update(shown, notices=() if second else (lost,)), now_ns)
        health.update(now_ns)
    found = {one.who: one for one in health.open}
    assert found.keys() == {"n2", "n3"}
    for one in found.values():
        assert (
            one.why == f"interface e0 is down on the host of this watch, since before {clock(START_NS)} UTC"
        )
        assert one.next.startswith("Bring the network of this watch back")


@pytest.mark.parametrize("heard", [(), (1,)], ids=["all", "some"])
def test_a_link_that_was_broken_while_nodes_were_heard_is_no_cause_of_their_loss(
    heard: tuple[int, ...],
) -> None:
    """Nodes of this host are heard by loopback."""
    case = OwnLink(*heard, is_known=False)
    case.run(-4.0)
    case.tell(NoticeKind.LINK_LOST, "interface e0 has no carrier")
    case.run(9.0)
    assert case.health.open
    assert not any(LINK in one.why for one in case.health.open)
