"""What ordinary readers see when a writer is cut off and comes back: docs/readers.md, and tests.timelines.

S and a source time is a sample, D says that the instance was disposed, NW that it has no writers, A that it
is alive again without a new sample.
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.dataset.groups import KEEP_ALL
from tests.integration.hosts import HostsLab, hosts_lab
from tests.integration.programs import Program
from tests.tables import table_rows
from tests.timelines import CUT, HEALED

pytestmark = [pytest.mark.dds, pytest.mark.netns]

TIMES = {1: 1_000}
WHAT = (
    "nothing was written meanwhile",
    "S5 was written meanwhile",
    "the same, if another host had S5 and came back first",
    "the generation counts of the last sample",
    "the writer unregistered it meanwhile",
)
TABLE = {row[""]: row for row in table_rows("readers.md", "When a writer is cut off and comes back")}
assert tuple(TABLE) == WHAT


def cell(what: str, *, autodispose: bool) -> str:
    """What the page says of a writer, by its autodispose."""
    return TABLE[what]["autodispose" if autodispose else "not autodispose"]


def words_of(what: str, *, autodispose: bool) -> str:
    """A regular expression for the words of instance 1, whose S1 has time 1,001."""
    words = cell(what, autodispose=autodispose).replace("S1", "S1001").replace("S5", "S5000")
    return re.sub(r"\((\S+)\) ", r"(\1 )?", words)


CASES: tuple[tuple[bool, bool, bool], ...] = tuple(
    (autodispose, by_source, is_written)
    for autodispose in (True, False)
    for by_source in (True, False)
    for is_written in (True, False)
)
"""(autodispose, by source time, written during the cut)."""


def topic_of(case: tuple[bool, bool, bool]) -> str:
    return "T" + "".join("ny"[flag] for flag in case)


def options_of(case: tuple[bool, bool, bool]) -> dict[str, Any]:
    return {"topic": topic_of(case), "autodispose": case[0], "by_source": case[1]}


@dataclasses.dataclass
class Seen:
    """What a program with a reader of each topic has seen."""

    program: Program

    def now(self) -> dict[str, dict[str, dict[str, Any]]]:
        self.program.tell(look=True)
        found: dict[str, dict[str, dict[str, Any]]] = self.program.answer("timelines")
        return found

    def words(self, case: tuple[bool, bool, bool], number: int) -> str:
        return " ".join(self.now()[topic_of(case)].get(str(number), {"words": []})["words"])

    def wait_state(self, case: tuple[bool, bool, bool], number: int, wanted: str) -> None:
        """Until an instance is in a state."""
        deadline = time.monotonic() + 30.0
        while self.now()[topic_of(case)][str(number)]["state"] != wanted:
            assert time.monotonic() < deadline, (case, self.now()[topic_of(case)])
            time.sleep(0.1)

    def wait_merged(self) -> None:
        """Until the newest sample of instance 1 is the last that was written."""
        deadline = time.monotonic() + 30.0
        for case in CASES:
            while not re.search("S5000" if case[2] else "S1001", self.words(case, 1).split(" D ")[-1]):
                assert time.monotonic() < deadline, self.now()
                time.sleep(0.1)

    def wait(self, what: str, condition: Callable[[dict[str, Any]], bool], timeout_s: float = 30.0) -> None:
        """Until the timeline of every topic's instance 1 fulfils the condition."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = self.now()
            if all("1" in each and condition(each["1"]) for each in found.values()):
                return
            assert time.monotonic() < deadline, f"{what}: {found}"
            time.sleep(0.1)


@pytest.fixture(params=["ab", "abc"], ids=["two hosts", "three hosts"])
def hosts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HostsLab]:
    with hosts_lab(tmp_path, request.param, multicast="true") as made:
        yield made


def start(hosts: HostsLab, name: str, **options: Any) -> Seen:
    program = hosts.lab.program(
        "timelines", prefix=hosts.lab.prefixes[name], readers=[options_of(case) for case in CASES], **options
    )
    program.answer("ready")
    return Seen(program)


def is_alive(seen: dict[str, Any]) -> bool:
    return bool(seen["state"] == "A")


def test_a_writer_that_was_cut_off_and_is_back_is_alive_for_every_reader(hosts: HostsLab) -> None:
    lab = hosts.lab
    lab.configure_three()
    hosts.start()
    near, early = start(hosts, "n1"), start(hosts, "n2")
    taking = start(hosts, "n2", takes=True)
    hosts.views[hosts.names[-1]].wait_for_tails(3 * len(CASES), *hosts.names)
    writers = {
        case: hosts.writer(
            "n1", readers=len(hosts.names) + 3, steps=[{"count": 3, "time": 1_000}], **options_of(case)
        )
        for case in CASES
    }
    for seen in (near, early, taking):
        seen.wait("it was written", is_alive)
    view = hosts.views[hosts.names[-1]]
    held = 3 * len(CASES)
    view.wait_for("it is stored", lambda: all(view.stored(name) == held for name in hosts.names))

    hosts.network.cut("b")
    early.wait("the writers are lost", lambda seen: not is_alive(seen))
    for case, writer in writers.items():
        if case[2]:
            writer.tell(steps=[{"first": 1, "count": 1, "time": 5_000}])
            writer.answer("done")
        writer.tell(steps=[{"op": "unregister", "first": 2, "count": 1, "time": 6_000}])
        writer.answer("done")
    late = start(hosts, "n2")
    late.wait("history during the cut", lambda seen: not is_alive(seen))
    for case in CASES:
        assert early.words(case, 0) == CUT[case[0]].words(KEEP_ALL, TIMES), case
        assert late.words(case, 0) == CUT[case[0]].words(KEEP_ALL, TIMES), case
    # Nodes lose fellows later than writers, and n2 loses writers when readers on its host do.
    seen_by_n1 = hosts.views["n1"]
    seen_by_n1.wait_for("n2 is lost", lambda: "n2" not in seen_by_n1.fellows("n1", "approved"))
    hosts.network.heal("b")

    for seen in (early, late, taking):
        seen.wait_merged()
        seen.wait("the writers are back", is_alive)
    hosts.wait_complete(hosts.names[-1], *hosts.names)
    for case in CASES:
        autodispose, by_source, is_written = case
        generation = [int(number) for number in re.findall(r"\d", cell(WHAT[3], autodispose=autodispose))]
        for seen in (early, late):
            assert seen.words(case, 0) == HEALED[autodispose].words(KEEP_ALL, TIMES), case
            timeline = seen.now()[topic_of(case)]
            assert (timeline["0"]["state"], timeline["0"]["generations"]) == ("A", generation), case
            assert timeline["1"]["state"] == "A", case
            wanted = "|".join(
                words_of(what, autodispose=autodispose) for what in (WHAT[1:3] if is_written else WHAT[:1])
            )
            again = "" if by_source else "( S5000)*"
            assert re.fullmatch(f"({wanted}){again}", seen.words(case, 1)), (case, seen.words(case, 1))
            seen.wait_state(case, 2, cell(WHAT[4], autodispose=autodispose).removeprefix("ends "))
        assert taking.words(case, 0) == HEALED[autodispose].words(KEEP_ALL, TIMES), case
        taken = taking.now()[topic_of(case)]["0"]["generations"]
        assert taken == [0, 0], (
            case,
            "an instance of which all was taken is forgotten, and new when it is back",
        )
        assert near.words(case, 0) == "S1000", case

    for writer in writers.values():
        assert writer.end() == 0
    for seen in (near, early, late, taking):
        seen.wait("the writers have ended", lambda timeline: not is_alive(timeline))
    for case in CASES:
        for seen in (near, early, late, taking):
            assert seen.now()[topic_of(case)]["0"]["state"] == ("D" if case[0] else "NW"), case


@pytest.mark.parametrize("hosts", ["abc"], ids=["three hosts"], indirect=True)
def test_a_writer_cut_from_one_host_only_is_alive_there_again_with_the_newest_last(hosts: HostsLab) -> None:
    """The link between two hosts is cut; the node of the third one hears both all the time."""
    lab = hosts.lab
    lab.configure_three()
    hosts.start()
    reader, elsewhere = start(hosts, "n2"), start(hosts, "n3")
    writers = {
        case: hosts.writer("n1", readers=5, steps=[{"count": 3, "time": 1_000}], **options_of(case))
        for case in CASES
    }
    for seen in (reader, elsewhere):
        seen.wait("it was written", is_alive)
    view = hosts.views["n3"]
    view.wait_for("it is stored", lambda: all(view.stored(name) == 3 * len(CASES) for name in hosts.names))

    hosts.network.part("a", "b")
    reader.wait("the writers are lost", lambda seen: not is_alive(seen))
    for case, writer in writers.items():
        if case[2]:
            writer.tell(
                steps=[{"first": 1, "count": 1, "time": 4_000}, {"first": 1, "count": 1, "time": 5_000}]
            )
            writer.answer("done")
    view.wait_for("n3 has it", lambda: view.stored("n3") >= 3 * len(CASES))
    hosts.network.reunite("a", "b")

    for seen in (reader, elsewhere):
        seen.wait_merged()
        seen.wait("the writers are heard everywhere", is_alive)
    hosts.wait_complete("n3", *hosts.names)
    for seen in (reader, elsewhere):
        for case in CASES:
            samples = [word for word in seen.words(case, 1).split() if word.startswith("S")]
            assert samples[-1] == ("S5000" if case[2] else "S1001"), (case, samples)
