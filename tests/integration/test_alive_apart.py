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
        view = hosts.start_seen("n1", "n2")
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


def test_a_process_is_shown_an_instance_again_once_whatever_partitions_its_readers_name(
    tmp_path: Path,
) -> None:
    readers = [
        {"name": partition, "topic": "Tagain", "partition": partition, "by_source": True, "depth": 0}
        for partition in ("stock", "st*")
    ]
    with hosts_lab(tmp_path, "abc", multicast="true") as hosts:
        lab = hosts.lab
        for name in ("n1", "n2"):
            lab.configure(name, Settings())
        view = hosts.start_seen("n1", "n2")
        reader = lab.program("timelines", prefix=lab.prefixes["n1"], readers=readers)
        reader.answer("ready")
        steps = [{"count": 1, "time": 1_000}]
        writer = hosts.writer("n3", readers=4, topic="Tagain", depth=0, steps=steps)
        view.wait_for("both nodes have it", lambda: view.samples("n1") == view.samples("n2") == 1)
        wait(reader, "it is alive", state("0", "A"))
        hosts.network.part("a", "c")
        wait(reader, "it has lost its writer", state("0", "NW"))
        hosts.network.reunite("a", "c")
        wait(reader, "it has its writer again", state("0", "A"))
        writer.tell(steps=[{"count": 1, "time": 5_000}])
        writer.answer("done")
        wait(reader, "it goes on", lambda one: one["0"]["words"][-1] == "S5000")
        reader.tell(look=True)
        for name, found in reader.answer("timelines").items():
            assert found["0"]["words"].count("S1000") == 2, (name, found)


def test_a_dispose_is_told_by_the_node_where_its_writer_is_not_heard(tmp_path: Path) -> None:
    """As where the node's message overtakes that of the writer."""
    cases = [case | {"depth": 1} for case in CASES]
    with hosts_lab(tmp_path, "abc", multicast="true", lease_s=30.0) as hosts:
        lab = hosts.lab
        lab.configure("n1", Settings())
        view = hosts.start_seen("n1")
        writers = [
            hosts.writer("n3", readers=1, steps=[{"count": 2, "time": 1_000}], **case) for case in cases
        ]
        view.wait_for("all is kept", lambda: view.samples("n1") == 2 * len(cases))
        reader = lab.program("timelines", prefix=lab.prefixes["n2"], readers=cases)
        reader.answer("ready")
        wait(reader, "both are alive", lambda one: state("0", "A")(one) and state("1", "A")(one))
        hosts.network.part("b", "c")
        for writer in writers:
            writer.tell(steps=[{"op": "unregister", "count": 1, "time": 2_000}])
        wait(reader, "0 has ended", state("0", "D NW"))
        hosts.network.reunite("b", "c")
        for writer in writers:
            writer.answer("done")  # the reader has acknowledged it
            writer.tell(steps=[{"first": 1, "count": 1, "time": 3_000}])
        wait(reader, "the writer is heard", lambda one: one["1"]["words"][-1] == "S3000")
        reader.tell(look=True)
        found = reader.answer("timelines")
        for case in cases:
            wanted = ["S1000", "D" if case["autodispose"] else "NW"]
            assert found[case["topic"]]["0"]["words"] == wanted, case
