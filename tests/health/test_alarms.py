"""What is told, and rings, while a system starts, loses nodes one after the other, or is lost as a whole."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

import pytest

from ospltool.diagnostics.model import Severity
from ospltool.health.health import Health
from ospltool.health.incidents import Incident
from ospltool.live.expectation import Expectation, ExpectedSpace
from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from ospltool.live.supervision import SupervisorReport
from ospltool.views.cells import UNICODE
from ospltool.views.incidents import severe
from ospltool.views.view import View
from tests import fake
from tests.fake import SECOND_NS as S
from tests.fake import START_NS, node_id

THREE = Expectation(("n1", "n2", "n3"), (ExpectedSpace("Orders", copies=3, on_disk=2),))


class Watch:
    """A console on a system whose nodes are told every second; `rung` has the key of each new alarm."""

    def __init__(self, expected: Expectation, reports: Mapping[str, SupervisorReport] | None = None) -> None:
        self.model = SystemModel()
        self.reports = dict(reports or {})
        self.health = Health(self.model, expected, reports=lambda: self.reports)
        self.second = 0
        self.heard_ns: dict[int, int] = {}
        self.told: dict[str, Incident] = {}
        self.rung: dict[str, tuple[str, ...]] = {}

    @property
    def now_ns(self) -> int:
        return START_NS + self.second * S

    def run(
        self,
        seconds: int,
        *nodes: int,
        started_s: int = -600,
        lost: tuple[int, ...] = (),
        fellows: tuple[int, ...] = (),
        missed: tuple[int, ...] = (),
    ) -> None:
        """Hear these nodes, which started at a second of the watch; `lost` ones leave, others are missed."""
        for step in range(seconds):
            self.second += 1
            self.heard_ns.update(dict.fromkeys(fellows or nodes, self.now_ns))
            others = {
                one: [fake.fellow(n, self.heard_ns[n]) for n in (*(fellows or nodes), *missed) if n != one]
                for one in nodes
            }
            heard = [
                fake.snapshot(
                    one,
                    fake.name_space("Orders", nodes[0]),
                    time_ns=self.now_ns,
                    started_ns=START_NS + started_s * S,
                    fellows=tuple(others[one]),
                )
                for one in nodes
            ]
            notices = [
                FeedNotice(NoticeKind.NODE_LOST, self.now_ns, "", node_id(n)) for n in lost if not step
            ]
            if notices and not nodes:
                notices.append(FeedNotice(NoticeKind.DOMAIN_LOST, self.now_ns, ""))
            if heard and self.model.domain_lost_ns:
                notices.append(FeedNotice(NoticeKind.DOMAIN_FOUND, self.now_ns, ""))
            snapshots = tuple(ReceivedSnapshot(one, self.now_ns) for one in heard)
            self.model.apply(Update(snapshots, notices=tuple(notices)), self.now_ns)
            self.health.update(self.now_ns)
            self.told.update({one.key: one for one in self.health.every})
            self.rung.update(severe(View(self.health, self.now_ns, UNICODE)))

    @property
    def open(self) -> list[tuple[str, str]]:
        return [(one.code.id, one.who) for one in self.health.open]

    @property
    def calls(self) -> list[tuple[str, str]]:
        return [(code, who) for code, who, *_ in self.rung.values()]


def test_the_loss_of_all_is_news_and_begins_with_the_last_node_although_one_was_always_missing() -> None:
    watch = Watch(THREE)
    watch.run(60, 1, 2)
    assert watch.calls == [("DUL-NODE-ABSENT", "n3")]
    watch.run(2, 1)
    watch.run(3, lost=(1, 2))
    assert watch.open == [("DUL-DOMAIN-LOST", "domain")]
    assert watch.calls[1:] == [("DUL-DOMAIN-LOST", "domain")]
    assert watch.health.open[0].since_ns == START_NS + 62 * S


def test_the_loss_of_the_last_copy_is_news_after_others() -> None:
    watch = Watch(THREE)
    watch.run(20, 1, 2, 3)
    watch.run(14, 3, lost=(1, 2))
    assert sorted(watch.calls) == [("DUL-NODE-GONE", "n1"), ("DUL-NODE-GONE", "n2")]
    watch.run(3, lost=(3,))
    assert watch.open == [("DUL-DOMAIN-LOST", "domain")]
    assert watch.calls[2:] == [("DUL-DOMAIN-LOST", "domain")]


@pytest.mark.parametrize("leave", [(1, 2), ()], ids=["two leave first", "all are silent"])
def test_all_nodes_that_are_killed_at_once_ring_once_for_the_domain(leave: tuple[int, ...]) -> None:
    """Their leases end one after the other; until one is heard that has survived, no node is an error."""
    watch = Watch(THREE)
    watch.run(20, 1, 2, 3)
    watch.run(2)
    notices = tuple(FeedNotice(NoticeKind.NODE_LOST, watch.now_ns, "", node_id(one)) for one in leave)
    watch.model.apply(Update(notices=notices), watch.now_ns)
    watch.run(5)
    assert watch.open == [("DUL-DOMAIN-LOST", "domain")]
    assert watch.health.open[0].since_ns == START_NS + 20 * S
    assert watch.calls == [("DUL-DOMAIN-LOST", "domain")]
    assert [one.code.id for one in watch.health.closed] == []


def test_a_start_before_the_eyes_of_the_console_is_no_alarm() -> None:
    watch = Watch(THREE)
    watch.run(14)
    assert watch.open == [("DUL-DOMAIN-LOST", "domain")]
    watch.run(3, 1, started_s=14)
    assert watch.health.verdict.word == "STARTING"
    watch.run(3, 1, 2, started_s=14)
    watch.run(30, 1, 2, 3, started_s=14)
    assert (watch.health.verdict.word, watch.open) == ("OK", [])
    assert watch.calls == [("DUL-DOMAIN-LOST", "domain")]


def test_a_node_that_does_not_come_with_the_others_is_an_alarm_after_their_start() -> None:
    watch = Watch(THREE)
    watch.run(14)
    watch.run(12, 1, 2, started_s=14)
    assert watch.open == [("DUL-NODE-ABSENT", "n3")]
    assert "2 of 3 copies" in watch.health.open[0].effect


def test_absent_nodes_have_time_when_the_domain_comes_back() -> None:
    watch = Watch(THREE)
    watch.run(30, 1, 2)
    watch.run(20, lost=(1, 2))
    before = dict(watch.rung)
    watch.run(3, 1, started_s=50)
    watch.run(20, 1, 2, 3, started_s=50)
    assert watch.open == []
    assert watch.rung == before


DEAD = SupervisorReport("seen on its host: has died", is_trouble=True, is_dead=True)
HANGS = SupervisorReport("its supervisor says: does not respond", is_trouble=True)


@pytest.mark.parametrize(
    ("word", "code"),
    [(DEAD, "DUL-NODE-GONE"), (HANGS, "DUL-NODE-SILENT"), (None, "DUL-NODE-GONE")],
    ids=["died here", "stopped here", "removed by its fellows"],
)
def test_a_node_is_gone_as_soon_as_its_host_or_its_fellows_know(
    word: SupervisorReport | None, code: str
) -> None:
    watch = Watch(THREE)
    watch.run(20, 1, 2, 3)
    watch.reports = {"n3": word} if word else {}
    watch.run(3, 1, 2)
    assert watch.open == [(code, "n3")]


def test_a_node_that_stood_still_is_not_gone_between_its_return_and_its_first_word() -> None:
    """Its supervisor finds it well before anybody has heard it, and its fellows have removed it."""
    watch = Watch(THREE)
    watch.run(20, 1, 2, 3)
    watch.reports = {"n3": dataclasses.replace(HANGS, pid=7)}
    watch.run(4, 1, 2)
    assert watch.open == [("DUL-NODE-SILENT", "n3")]
    watch.reports = {"n3": SupervisorReport("", pid=7)}
    watch.run(1, 1, 2)
    assert watch.open == [("DUL-NODE-SILENT", "n3")]
    watch.reports = {"n3": SupervisorReport("", pid=8)}
    watch.run(1, 1, 2)
    assert watch.open == [("DUL-NODE-GONE", "n3")], "another process"


def test_a_silent_node_that_its_fellows_have_is_not_gone() -> None:
    watch = Watch(THREE)
    watch.run(20, 1, 2, 3)
    watch.run(3, 1, 2, fellows=(1, 2, 3))
    assert watch.open == [("DUL-NODE-SILENT", "n3")]


def test_no_node_and_no_copy_is_never_only_a_warning() -> None:
    watch = Watch(THREE)
    watch.run(20, 1, 2, 3)
    watch.run(5)
    assert watch.health.verdict.word == "ERROR"


def test_a_node_that_had_died_is_gone_for_a_late_caller_too() -> None:
    watch = Watch(THREE, {"n3": DEAD})
    watch.run(8, 1, 2)
    assert watch.open == [("DUL-NODE-GONE", "n3")]
    assert "2 of 3 copies" in watch.health.open[0].effect


@pytest.mark.parametrize(
    ("reason", "code", "began_s"),
    [("its heartbeat is overdue", "DUL-NODE-GONE", -100), ("it is terminating", "DUL-NODE-ABSENT", 1)],
)
def test_a_late_caller_is_told_as_gone_whom_the_fellows_remember_as_lost(
    reason: str, code: str, began_s: int
) -> None:
    watch = Watch(THREE)
    text = f"Removing confirmed fellow n3. Reason: {reason}."
    told = fake.event(1, 1, START_NS - 100 * S, text, event="fellow.disconnected")
    watch.run(1, 1, 2)
    watch.model.apply(Update(events=(told,)), watch.now_ns)
    watch.run(8, 1, 2)
    (found,) = watch.health.open
    assert found.code.id == code
    assert found.since_ns == START_NS + began_s * S


def lost_by(*told: tuple[int, int, str], fellows: tuple[int, ...] = ()) -> Incident:
    """What a caller that comes late says of n3, which (teller, seconds ago, reason) told of."""
    watch = Watch(THREE)
    events = tuple(
        fake.event(
            number, teller, START_NS - ago * S, f"Removing confirmed fellow n3. Reason: {reason}.",
            event="fellow.disconnected",
        )
        for number, (teller, ago, reason) in enumerate(told)
    )  # fmt: skip
    watch.run(1, 1, 2, fellows=fellows)
    watch.model.apply(Update(events=events), watch.now_ns)
    watch.run(8, 1, 2, fellows=fellows)
    (found,) = watch.health.open
    return found


OVERDUE = "its heartbeat is overdue"


@pytest.mark.parametrize(
    ("told", "what"),
    [
        (
            [(1, 100, OVERDUE), (2, 99, OVERDUE)],
            "n3 is gone, at the latest since 01:01:41 UTC according to n1 and n2",
        ),
        (
            [(1, 104, OVERDUE), (2, 100, OVERDUE)],
            "n3 is gone, at the latest since 01:01:40 UTC according to n2",
        ),
        (
            [(1, 500, OVERDUE), (2, 100, OVERDUE)],
            "n3 is gone, at the latest since 01:01:40 UTC according to n2",
        ),
        (
            [(2, 90, OVERDUE), (2, 500, "it is terminating")],
            "n3 is gone, at the latest since 01:01:50 UTC according to n2",
        ),
    ],
    ids=["both", "one was cut off from it before", "one missed the last end", "it came back after a stop"],
)
def test_fellows_that_lost_a_node_before_the_watch_are_named_with_the_time(
    told: list[tuple[int, int, str]], what: str
) -> None:
    found = lost_by(*told)
    assert (found.code.id, found.what) == ("DUL-NODE-GONE", what)
    assert found.why.endswith(f"UTC: {OVERDUE}")
    assert found.began_before, "they waited for its heartbeat before"


def test_a_node_that_its_fellows_lost_once_and_hear_now_is_not_gone() -> None:
    found = lost_by((1, 100, OVERDUE), (2, 100, OVERDUE), fellows=(1, 2, 3))
    assert (found.code.id, found.what) == ("DUL-NODE-ABSENT", f"{UNHEARD}, but n1 and n2 hear it")


UNHEARD = "n3 is expected and was not heard since this watch began"


def test_of_a_node_that_nobody_knows_only_this_watch_is_said_not_to_have_heard_it() -> None:
    watch = Watch(THREE)
    watch.run(9, 1, 2)
    assert [(one.code.id, one.what) for one in watch.health.open] == [("DUL-NODE-ABSENT", UNHEARD)]


def test_a_node_that_its_fellows_hear_and_this_watch_does_not_is_told_so() -> None:
    watch = Watch(THREE)
    watch.run(9, 1, 2, fellows=(1, 2, 3))
    (found,) = watch.health.open
    assert (found.code.id, found.what) == ("DUL-NODE-ABSENT", f"{UNHEARD}, but n1 and n2 hear it")
    assert found.severity is Severity.WARNING, "as if this watch had heard it once"
    assert found.why == "n1 and n2 heard it at 01:03:29 UTC, and this watch did not reach it"
    assert found.next.startswith(
        "Compare the interface and the CYCLONEDDS_URI of this watch with those of n3"
    )


def test_a_node_that_had_ended_in_order_before_the_watch_is_told_so() -> None:
    watch = Watch(THREE)
    text = "Removing confirmed fellow n3. Reason: it is terminating."
    told = fake.event(1, 1, START_NS - 100 * S, text, event="fellow.disconnected")
    watch.run(1, 1, 2)
    watch.model.apply(Update(events=(told,)), watch.now_ns)
    watch.run(8, 1, 2)
    (found,) = watch.health.open
    assert (found.code.id, found.what) == ("DUL-NODE-ABSENT", UNHEARD)
    assert re.fullmatch(r"it ended in order at \d\d:\d\d:\d\d UTC, as n1 says", found.why)
