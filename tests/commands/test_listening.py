"""How long commands that look once listen to a domain, what they tell then, and what they say meanwhile."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import signal
import types
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
import pytest

from engine.runtime.monitor import NodeEvent, NodeSnapshot
from ospltool.cli import domains
from ospltool.health.health import Health
from ospltool.health.system import System
from ospltool.live.expectation import NOTHING, Expectation, ExpectedSpace
from ospltool.live.feed import ReceivedSnapshot, Update
from ospltool.live.supervision import SupervisorReport
from ospltool.output import streams
from ospltool.output.text import plural
from tests import fake
from tests.fake import SECOND_NS

NAMES: Final = ("n1", "n2", "n3")
EXPECTED: Final = Expectation(NAMES, (ExpectedSpace("A", 3, 0),), file="fleet.toml")
BEGAN_NS: Final = fake.START_NS + 3600 * SECOND_NS

Shows = Callable[[float], Iterable[NodeSnapshot]]


class Domain:
    """A domain in simulated time: its feed, and the clock of the command that listens to it."""

    title, mode = "domain 7", "live"

    def __init__(self, shows: Shows, events: tuple[NodeEvent, ...] = ()) -> None:
        self._shows = shows
        self._events = events
        self.elapsed_s = 0.0
        self._second = -1

    def monotonic(self) -> float:
        return self.elapsed_s

    def sleep(self, seconds: float) -> None:
        self.elapsed_s += seconds

    def now_ns(self) -> int:
        return BEGAN_NS + round(self.elapsed_s * SECOND_NS)

    def poll(self) -> Update:
        """Every node is heard half a second after each full one."""
        second = int(self.elapsed_s + 0.5)
        if second == self._second or second < 1:
            return Update()
        self._second, now_ns = second, self.now_ns()
        events, self._events = self._events, ()
        shown = (msgspec.structs.replace(one, time_ns=now_ns) for one in self._shows(self.elapsed_s))
        return Update(tuple(ReceivedSnapshot(one, now_ns) for one in shown), events)

    def close(self) -> None: ...


class OneByOne(Domain):
    """A domain whose nodes are heard one after another, a look apart."""

    def poll(self) -> Update:
        heard = list(self._shows(self.elapsed_s))[: 1 + round(self.elapsed_s / domains.LOOK_S)]
        return Update(tuple(ReceivedSnapshot(one, self.now_ns()) for one in heard))


@pytest.fixture
def listened(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[System, float]]:
    """What is known of a domain after listening to it, and for how long that was."""

    def listen(
        shows: Shows,
        events: tuple[NodeEvent, ...] = (),
        *,
        expected: Expectation = EXPECTED,
        reports: dict[str, SupervisorReport] | None = None,
        is_brief: bool = False,
    ) -> tuple[System, float]:
        feed = (OneByOne if is_brief else Domain)(shows, events)
        monkeypatch.setattr(
            domains, "time", types.SimpleNamespace(monotonic=feed.monotonic, sleep=feed.sleep)
        )
        system = System((feed, lambda model: Health(model, expected, reports=lambda: reports or {})))
        if is_brief:
            domains.listen_briefly(system)
        else:
            domains.listen([system])
        return system, feed.elapsed_s

    return listen


def nodes(*numbers: int, run_s: int = 3600) -> list[NodeSnapshot]:
    """These nodes know each other, and have run for a while when somebody begins to listen."""
    started_ns = BEGAN_NS - run_s * SECOND_NS
    return [
        fake.snapshot(
            one,
            fake.name_space("A", numbers[0]),
            fellows=tuple(fake.fellow(other) for other in numbers if other != one),
            started_ns=started_ns,
        )
        for one in numbers
    ]


def farewell(teller: int, name: str) -> NodeEvent:
    text = f"Removing confirmed fellow {name}. Reason: its endpoints are gone."
    return fake.event(1, teller, BEGAN_NS - 90 * SECOND_NS, text, event="fellow.disconnected")


Listened = Callable[..., tuple[System, float]]


def told(system: System) -> list[str]:
    return [f"{one.code.id} {one.who}" for one in system.health.open]


def test_all_expected_nodes_take_three_seconds(listened: Listened) -> None:
    system, seconds = listened(lambda _: nodes(1, 2, 3))
    assert (system.health.verdict.word, seconds) == ("OK", 3.0)


@pytest.mark.parametrize("number", [1, 3, 60])
def test_the_verdict_of_a_brief_look_counts_every_node_heard(listened: Listened, number: int) -> None:
    """Of 60 nodes the last ones are not heard within its two seconds."""
    stopped = {"vm": SupervisorReport("it ended in order", in_order=True)}
    shown = nodes(*range(1, number + 1))
    system, _ = listened(lambda _: shown, expected=NOTHING, reports=stopped, is_brief=True)
    heard, verdict = len(system.model.nodes), system.health.verdict
    assert (f"{heard} of {plural(number, 'node')} complete" in verdict.text, verdict.why) == (True, "")
    assert (heard < number) == (number == 60)


@pytest.mark.parametrize("events", [(), (farewell(1, "n3"), farewell(2, "n3"))], ids=["never there", "lost"])
def test_a_dead_node_takes_as_long_as_it_would_need_to_be_heard(
    listened: Listened, events: tuple[NodeEvent, ...]
) -> None:
    """That it also lowers the copies lasts longer, but belongs to it, and is told with it."""
    system, seconds = listened(lambda _: nodes(1, 2), events)
    assert told(system) == [f"DUL-NODE-{'GONE' if events else 'ABSENT'} n3"]
    assert "2 of 3 copies" in system.health.open[0].effect
    assert seconds <= 4.5


def test_a_fleet_of_which_nobody_is_there_is_not_waited_for_longer(listened: Listened) -> None:
    system, seconds = listened(lambda _: ())
    assert (told(system), seconds <= 4.5) == (["DUL-DOMAIN-LOST domain"], True)


def test_what_ended_in_order_is_not_awaited(listened: Listened) -> None:
    stopped = SupervisorReport("it ended in order", in_order=True)
    system, seconds = listened(lambda _: nodes(1, 2), reports={"n3": stopped})
    assert (told(system), seconds <= 3.5) == ([], True)


@pytest.mark.parametrize("report", [None, SupervisorReport("", is_starting=True)])
def test_what_may_come_is_awaited(listened: Listened, report: SupervisorReport | None) -> None:
    """A system starts, or the supervisor of a node begins."""
    reports = {} if report is None else {"n3": report}
    run_s = 3600 if report else 3
    system, seconds = listened(
        lambda now_s: nodes(1, 2, *([3] if now_s > 4 else []), run_s=run_s), reports=reports
    )
    assert (told(system), system.health.verdict.word) == ([], "OK")
    assert seconds > 4
    system, seconds = listened(lambda _: nodes(1, 2, run_s=run_s), reports=reports)
    assert system.health.verdict.word != "OK"
    assert seconds > 4.5


def test_what_would_be_an_incident_of_its_own_if_it_lasts_is_awaited(listened: Listened) -> None:
    system, seconds = listened(
        lambda _: nodes(1, 2), expected=dataclasses.replace(EXPECTED, nodes=("n1", "n2"))
    )
    assert told(system) == ["DUL-COPIES-LOW A"]
    assert 5 < seconds < 7


def test_what_is_told_is_of_one_moment_if_a_node_comes_back_meanwhile(listened: Listened) -> None:
    """All nodes complete in the first line, of which one is gone in the second, are of two moments."""
    starts = {"n4": SupervisorReport("", is_starting=True)}
    events = farewell(1, "n3"), farewell(2, "n3")
    system, seconds = listened(
        lambda now_s: nodes(1, 2, *(number for number, at_s in ((3, 4.4), (4, 5.4)) if now_s > at_s)),
        events,
        expected=dataclasses.replace(EXPECTED, nodes=(*NAMES, "n4")),
        reports=starts,
    )
    assert "4 of 4 nodes complete" in system.health.verdict.text
    assert (told(system), system.health.verdict.word) == ([], "OK")
    assert [one.who for one in system.health.closed] == ["n3"]
    assert 6 < seconds < 8


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("kind", [Terminal, io.StringIO])
def test_a_terminal_says_what_is_awaited_and_nothing_is_left_of_that(
    listened: Listened, monkeypatch: pytest.MonkeyPatch, kind: type[io.StringIO]
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    shown = kind()
    monkeypatch.setattr("sys.stderr", shown)
    listened(lambda _: nodes(1, 2))
    streams.wait_for("once more")
    streams.notify("done")
    *said, last = shown.getvalue().split("\r\x1b[2K")
    if kind is Terminal:
        assert said[1:] == [
            "domain 7: waiting for n1, n2 and n3",
            "domain 7: waiting for n3",
            "domain 7: 2 nodes heard, listening for others",
            "",
            "once more",
        ]
        assert last == "done\n"
    else:
        assert (said, last) == ([], "done\n")


def test_a_line_that_does_not_fit_or_is_no_text_cannot_spoil_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "20")
    shown = Terminal()
    monkeypatch.setattr("sys.stderr", shown)
    streams.wait_for("\x1b[31mn1\n" * 20)
    streams.wait_for("")
    line = shown.getvalue().split("\r\x1b[2K")[1]
    assert (len(line), "\x1b" in line, "\n" in line) == (19, False, False)


def test_an_interrupt_that_comes_within_a_call_is_not_lost(
    listened: Callable[..., tuple[System, float]],
) -> None:
    """An exception of a signal handler does not leave a call into Cyclone DDS, whose callbacks it ends."""

    looks: list[float] = []

    def interrupted(elapsed_s: float) -> Iterable[NodeSnapshot]:
        looks.append(elapsed_s)
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return nodes(1, 2, 3)

    with pytest.raises(KeyboardInterrupt):
        listened(interrupted)
    assert len(looks) == 1
