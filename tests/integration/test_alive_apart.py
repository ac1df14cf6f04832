"""What a late reader sees of instances with several writers, of which one is cut off."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.configurations import Settings
from tests.integration.hosts import hosts_lab
from tests.integration.programs import Program

pytestmark = [pytest.mark.dds, pytest.mark.netns]

CASES = [
    {
        "topic": f"T{ends:d}{by_source:d}",
        "autodispose": ends,
        "by_source": by_source,
        "depth": 0,
    }
    for ends in (True, False)
    for by_source in (True, False)
]


def wait(reader: Program, what: str, condition: Callable[[dict[str, Any]], bool]) -> None:
    """Until the instances of each topic are as they should be."""
    deadline = time.monotonic() + 30.0
    while True:
        reader.tell(look=True)
        found = reader.answer("timelines")
        if all(condition(each) for each in found.values()):
            return
        assert time.monotonic() < deadline, f"{what}: {found}"
        time.sleep(0.1)


def state(instance: str, wanted: str) -> Callable[[dict[str, Any]], bool]:
    return lambda found: instance in found and bool(found[instance]["state"] in wanted.split())


def test_an_instance_is_alive_that_a_lost_writer_has_written_again(tmp_path: Path) -> None:
    """Its other writer lives on the reader's host, which was told of that by the node only."""
    with hosts_lab(tmp_path, "abc", multicast="true") as hosts:
        lab = hosts.lab
        for name in ("n1", "n2"):
            lab.configure(name, Settings())
        hosts.views = {"n1": lab.watch_from("n1")}
        view = hosts.views["n1"]
        lab.start("n1", "n2")
        view.wait_for("both are complete", lambda: view.are_complete("n1", "n2"))
        far: list[Program] = []
        for case in CASES:
            hosts.writer("n1", readers=2, steps=[{"count": 1, "time": 1_000}], **case)
            steps = [{"op": "dispose", "count": 1, "time": 2_000}, {"first": 1, "count": 1, "time": 3_000}]
            far.append(hosts.writer("n3", readers=2, steps=steps, **case))
        held = 3 * len(CASES)
        view.wait_for("all is kept", lambda: view.samples("n1") == view.samples("n2") == held)
        reader = lab.program("timelines", prefix=lab.prefixes["n1"], readers=CASES)
        reader.answer("ready")
        wait(reader, "0 is disposed, 1 is alive", lambda one: state("0", "D")(one) and state("1", "A")(one))

        hosts.network.part("a", "c")
        wait(reader, "1 has lost its writer", state("1", "D NW"))
        for writer in far:
            writer.tell(steps=[{"count": 1, "time": 5_000}])
            writer.answer("done")
        wait(reader, "it has what n1 has from n2", lambda one: "S5000" in one["0"]["words"])
        wait(reader, "0 has a writer that lives", state("0", "A"))
        hosts.network.reunite("a", "c")
        wait(reader, "1 has its writer again", state("1", "A"))
        wait(reader, "0 has both", state("0", "A"))
