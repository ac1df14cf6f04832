"""The loss of all nodes at once, and what is missing while a system starts or comes back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

import pytest

from ospltool.health.health import Health
from ospltool.live.expectation import NOTHING, Expectation, ExpectedSpace
from ospltool.live.feed import ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from ospltool.live.supervision import SupervisorReport
from tests import fake
from tests.fake import SECOND_NS as S
from tests.fake import START_NS

COPIES: Final = Expectation(("n1", "n2", "n3"), (ExpectedSpace("Orders", copies=3, on_disk=3),))
LOOKS_S: Final = 0.25


@dataclasses.dataclass(frozen=True)
class Run:
    """A run of a node: its process, when it is heard, and from when it is complete; in seconds."""

    node: int
    starts_s: float
    heard_s: float
    complete_s: float = 0.0
    until_s: float = 1e9

    def is_heard(self, at_s: float) -> bool:
        """Each second from its first snapshot on, none after its end."""
        return self.heard_s <= at_s < self.until_s and (at_s - self.heard_s) % 1 == 0


def seen(
    runs: Sequence[Run],
    lasts_s: float,
    expected: Expectation = NOTHING,
    starting: Mapping[str, tuple[float, float]] | None = None,
    failed: Mapping[str, float] | None = None,
) -> list[tuple[float, str, str]]:
    """What is told of these runs: (second, code, subject) of each incident that is new.

    `starting` has the seconds in which supervisors of this machine start nodes, `failed` the second in which
    they saw a node fail and started it again.
    """
    model = SystemModel()
    reports: dict[str, SupervisorReport] = {}
    health = Health(model, expected, reports=lambda: reports)
    told: dict[tuple[str, str], float] = {}
    found = []
    for step in range(round(lasts_s / LOOKS_S)):
        at_s = step * LOOKS_S
        now_ns = START_NS + round(at_s * S)
        reports.clear()
        for name, (from_s, until_s) in (starting or {}).items():
            if from_s <= at_s < until_s:
                reports[name] = SupervisorReport(
                    "", is_starting=True, pid=1, started_ns=START_NS + round(from_s * S)
                )
        last_s = {one.node: min(at_s, one.until_s) for one in runs if one.heard_s <= at_s < one.until_s + 5}
        there = sorted(last_s)
        for name, failed_s in (failed or {}).items():
            if at_s >= failed_s:
                failed_ns = START_NS + round(failed_s * S)
                reports[name] = SupervisorReport("", pid=round(failed_s + 0.1) + 1000, failed_ns=failed_ns)
        heard = [
            fake.snapshot(
                one.node,
                fake.name_space("Orders", min(there), complete=at_s >= one.complete_s),
                name=f"n{one.node}",
                state="COMPLETE" if at_s >= one.complete_s else "FETCH_NAME_SPACES",
                pid=round(one.starts_s) + 1000,
                time_ns=now_ns,
                started_ns=START_NS + round(one.starts_s * S),
                fellows=tuple(
                    fake.fellow(n, START_NS + round(last_s[n] * S)) for n in there if n != one.node
                ),
            )
            for one in runs
            if one.is_heard(at_s)
        ]
        model.apply(Update(tuple(ReceivedSnapshot(one, now_ns) for one in heard)), now_ns)
        health.update(now_ns)
        now = {(one.code.id, one.who) for one in health.open if one.severity.name != "NOTICE"}
        found += [(at_s, code, who) for code, who in sorted(now - told.keys())]
        told = dict.fromkeys(now, at_s)
    return found


BEFORE: Final = -600.0
THREE: Final = tuple(Run(n, BEFORE, part) for n, part in ((1, 0.0), (2, 0.25), (3, 0.75)))


def killed(at_s: float, *nodes: int) -> list[Run]:
    return [dataclasses.replace(one, until_s=at_s) if one.node in nodes else one for one in THREE]


@pytest.mark.parametrize("part_s", [0.0, 0.25, 0.5, 0.75])
@pytest.mark.parametrize("expected", [NOTHING, COPIES], ids=["without a fleet file", "with one"])
def test_the_loss_of_all_is_one_error_and_nothing_before_it(part_s: float, expected: Expectation) -> None:
    ((told_s, code, _),) = seen(killed(20 + part_s, 1, 2, 3), 40, expected)
    assert code == "DUL-DOMAIN-LOST"
    assert told_s - 20 - part_s <= 3.5


@pytest.mark.parametrize("part_s", [0.0, 0.25, 0.5, 0.75])
@pytest.mark.parametrize("dead", [(1, 2), (1, 3), (2, 3), (2,)])
def test_some_nodes_of_a_system_are_told_as_soon_as_another_one_is_heard(
    part_s: float, dead: tuple[int, ...]
) -> None:
    found = seen(killed(20 + part_s, *dead), 26, COPIES)
    assert {who for _, _, who in found} == {f"n{number}" for number in dead}
    assert all(told_s - 20 - part_s <= 2.5 for told_s, code, _ in found if code == "DUL-NODE-SILENT")


def test_a_short_silence_of_all_is_no_news_and_a_longer_one_only_that_of_the_domain() -> None:
    for silent_s, codes in ((2.5, []), (4, ["DUL-DOMAIN-LOST"]), (9, ["DUL-DOMAIN-LOST"])):
        runs = [
            *killed(20, 1, 2, 3),
            *(dataclasses.replace(one, heard_s=one.heard_s + 20 + silent_s) for one in THREE),
        ]
        assert [code for _, code, _ in seen(runs, 40)] == codes


RETURNS: Final = [Run(1, 30, 31, 33), Run(2, 30, 32, 34)]


@pytest.mark.parametrize("expected", [NOTHING, COPIES], ids=["without a fleet file", "with one"])
def test_a_node_that_stays_away_after_the_loss_of_all_is_told_soon_after_the_others_are_back(
    expected: Expectation,
) -> None:
    _, (told_s, code, who) = seen([*killed(20, 1, 2, 3), *RETURNS], 80, expected)
    assert (code, who) == ("DUL-NODE-GONE", "n3") or (code, who) == ("DUL-NODE-SILENT", "n3")
    assert 34 < told_s <= 34 + 5


def test_a_node_that_comes_back_a_moment_after_the_others_is_no_news() -> None:
    found = seen([*killed(20, 1, 2, 3), *RETURNS, Run(3, 30, 37, 38)], 80, COPIES)
    assert [code for _, code, _ in found] == ["DUL-DOMAIN-LOST"]


def test_another_restart_does_not_excuse_a_node_that_stayed_away() -> None:
    runs = [*killed(20, 1, 2, 3), Run(1, 30, 31, 33, 50), Run(2, 30, 32, 34), Run(1, 52, 52.5, 54)]
    found = seen(runs, 80, COPIES)
    assert [who for _, code, who in found if code in ("DUL-NODE-GONE", "DUL-NODE-SILENT")].count("n3") == 1


SLOW: Final = [Run(1, 0, 8, 15), Run(2, 2, 14, 19), Run(3, 4, 22, 25)]


@pytest.mark.parametrize("is_local", [True, False], ids=["on this machine", "elsewhere"])
def test_copies_that_come_late_in_a_first_start_are_no_fault(is_local: bool) -> None:
    starting = {f"n{one.node}": (one.starts_s, one.complete_s) for one in SLOW} if is_local else {}
    found = seen(SLOW, 60, COPIES, starting)
    assert [one for one in found if one[0] > 8] == []
    assert {code for _, code, _ in found} <= ({"DUL-DOMAIN-LOST"} if not is_local else set())


@pytest.mark.parametrize("is_local", [True, False], ids=["on this machine", "elsewhere"])
def test_a_node_that_never_comes_is_told_after_a_slow_first_start(is_local: bool) -> None:
    starting = {f"n{one.node}": (one.starts_s, one.complete_s) for one in SLOW[:2]} if is_local else {}
    found = [one for one in seen(SLOW[:2], 60, COPIES, starting) if one[0] > 8]
    assert [(code, who) for _, code, who in found] == [("DUL-NODE-ABSENT", "n3")]
    assert 19 <= found[0][0] <= 19 + 5


def test_a_node_that_is_started_for_more_than_a_minute_is_missing() -> None:
    starting = {"n3": (4.0, 200.0)}
    found = [one for one in seen(SLOW[:2], 90, COPIES, starting) if one[0] > 8]
    assert {code for _, code, _ in found} == {"DUL-COPIES-LOW", "DUL-DISK-COPIES-LOW"}
    assert all(told_s >= 60 for told_s, _, _ in found)


@pytest.mark.parametrize("part_s", [0.0, 0.5])
def test_restarts_by_supervisors_after_the_loss_of_all_are_part_of_it(part_s: float) -> None:
    """Their supervisors know of each failure, but it is one loss."""
    at_s = 20 + part_s
    again = [Run(n, at_s + 0.1, at_s + 3.75, at_s + 4) for n in (1, 2, 3)]
    failed = {f"n{n}": at_s for n in (1, 2, 3)}
    found = seen([*killed(at_s, 1, 2, 3), *again], 50, COPIES, failed=failed)
    assert [code for _, code, _ in found] == ["DUL-DOMAIN-LOST"]
    found = seen([*killed(at_s, 2), again[1]], 50, COPIES, failed={"n2": at_s})
    assert {(code, who) for _, code, who in found} == {
        ("DUL-NODE-SILENT", "n2"),
        ("DUL-NODE-RESTARTED", "n2"),
    }
