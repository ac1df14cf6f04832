"""Nodes of the previous release and of this one in one domain: upgraded one by one under traffic."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.configurations import Settings
from tests.integration.lab import Lab
from tests.integration.programs import Program
from tests.integration.releases import PREVIOUS, release

pytestmark = pytest.mark.dds

NAMES = ("n1", "n2", "n3")
STEP = 10
"""Samples that the application writes before it waits for acknowledgements, and takes a breath."""
BREATH_S = 0.02
SETTLED_S = 60.0

long_way = pytest.mark.skipif("OSPLTOOL_VERSIONS" not in os.environ, reason="`make versions` runs it")


class Traffic:
    """An application that writes new instances until it is told to pause, and waits for acknowledgements."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._goes_on = threading.Event()
        self._is_idle = threading.Event()
        self._ends = threading.Event()
        self.written = 0
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._goes_on.set()
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._ends.wait(BREATH_S):
                if not self._goes_on.is_set():
                    self._is_idle.set()
                    self._goes_on.wait()
                    continue
                self._program.tell(
                    steps=[{"first": self.written, "count": STEP, "time": 1_000 + self.written}]
                )
                self._program.answer("done")
                self.written += STEP
        except BaseException as fault:
            self._fault = fault
            self._is_idle.set()

    def pause(self) -> int:
        """Stop writing; returns how many samples were written and acknowledged."""
        self._is_idle.clear()
        self._goes_on.clear()
        assert self._is_idle.wait(SETTLED_S)
        if self._fault is not None:
            raise self._fault
        return self.written

    def resume(self) -> None:
        self._goes_on.set()

    def close(self) -> None:
        self._ends.set()
        self._goes_on.set()
        self._thread.join(SETTLED_S)


class Fleet:
    """Three nodes, each of which runs the one release or the other."""

    def __init__(self, lab: Lab, previous: Path) -> None:
        self.lab = lab
        self._previous = previous

    def start(self, name: str, *, previous: bool) -> None:
        self.lab.code.pop(name, None)
        if previous:
            self.lab.code[name] = self._previous
        self.lab.start(name)

    def change(self, name: str, *, previous: bool) -> None:
        """Stop a node in order and start it with another release; returns once it is back."""
        self.lab.stop(name)
        self.start(name, previous=previous)
        self.lab.seen.wait_for(f"{name} is back", self._are_up, SETTLED_S)

    def _are_up(self) -> bool:
        """All are complete and name one master; under traffic their counts differ for moments."""
        seen = self.lab.seen
        shown = [seen.node(name) for name in NAMES]
        return (
            all(node is not None and node.state == "COMPLETE" for node in shown)
            and len({seen.master(name) for name in NAMES} - {""}) == 1
            and all(seen.fellows(name, "approved") >= {*NAMES} - {name} for name in NAMES)
        )

    def check(self, traffic: Traffic) -> None:
        """In a pause all three hold and have stored all that was acknowledged."""
        count = traffic.pause()
        seen = self.lab.seen

        def is_settled() -> bool:
            return seen.are_complete(*NAMES) and all(seen.stored(name) == count for name in NAMES)

        seen.wait_for(f"all three have {count} samples on disk", is_settled, SETTLED_S)
        for name in NAMES:
            shown = seen.node(name)
            assert shown is not None
            assert shown.counters["malformed"] == 0, f"{name} understood what it was sent"
            assert not self.lab.trace(name, "message.unsupported")
        traffic.resume()


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return release(PREVIOUS, tmp_path_factory.mktemp("previous"))


@pytest.fixture
def fleet(lab: Lab, previous: Path) -> Fleet:
    lab.configure_three(Settings())
    return Fleet(lab, previous)


@pytest.fixture
def traffic(fleet: Fleet) -> Iterator[Traffic]:
    """Starts with three nodes of the previous release, which are complete."""
    lab = fleet.lab
    for name in NAMES:
        fleet.start(name, previous=True)
    lab.seen.wait_for("all three are complete", lambda: lab.seen.are_complete(*NAMES))
    program = lab.program("writer", steps=[], readers=3)
    program.answer("done")
    made = Traffic(program)
    yield made
    made.close()


def test_nodes_are_upgraded_one_by_one_while_an_application_writes(fleet: Fleet, traffic: Traffic) -> None:
    fleet.check(traffic)
    for name in NAMES:
        fleet.change(name, previous=False)
        fleet.check(traffic)
    count = traffic.pause()
    lab = fleet.lab
    reader = lab.reader()
    reader.wait(count)
    lab.stop(*NAMES)
    disks = [lab.on_disk(name) for name in NAMES]
    assert [sum(map(len, disk.values())) for disk in disks] == [count] * 3
    assert [sorted(disk) for disk in disks] == [sorted(disks[0])] * 3
    assert "Traceback" not in "".join(map(lab.output, NAMES))


@long_way
def test_an_upgrade_can_be_taken_back(fleet: Fleet, traffic: Traffic) -> None:
    """The previous release reads what this one stored, and aligns from it."""
    fleet.change("n2", previous=False)
    fleet.check(traffic)
    fleet.change("n1", previous=True)
    fleet.change("n2", previous=True)
    fleet.check(traffic)
    assert not fleet.lab.trace("n2", "store.corrupt")


@long_way
def test_a_fellow_of_the_other_release_that_was_lost_is_merged(fleet: Fleet, traffic: Traffic) -> None:
    fleet.change("n1", previous=False)
    fleet.check(traffic)
    lab = fleet.lab
    os.kill(lab.pid("n2"), signal.SIGSTOP)
    try:
        lab.seen.wait_for("n2 is lost", lambda: "n2" not in lab.seen.fellows("n1", "approved"))
    finally:
        os.kill(lab.pid("n2"), signal.SIGCONT)
    fleet.check(traffic)
