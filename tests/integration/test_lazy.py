"""A Lazy node keeps what readers on its host want, partition by partition and topic by topic (5.2.3.1)."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import pytest

from tests.integration.configurations import Settings
from tests.integration.hosts import HostsLab, hosts_lab

pytestmark = [pytest.mark.dds, pytest.mark.netns]
COUNT = 40
WANTED, OTHER = ["stock wanted"], ["stock other"]


def settings(alignee: str) -> Settings:
    return Settings(spaces=tuple(dataclasses.replace(space, alignee=alignee) for space in Settings().spaces))


def has(hosts: HostsLab, name: str, partitions: list[str]) -> int:
    """How many samples a node shows of a partition."""
    node = hosts.views["n1"].node(name)
    groups = node.groups if node is not None else ()
    return sum(group.samples for group in groups if [group.partition] == partitions)


def phase(hosts: HostsLab, name: str) -> str:
    space = hosts.views["n1"].space(name)
    assert space is None or name != "n2" or not space.complete, "a part is never called complete"
    return space.phase if space is not None else ""


def test_lazy_node_keeps_the_groups_that_readers_on_its_host_want(tmp_path: Path) -> None:
    with hosts_lab(tmp_path, "ab", multicast="false") as hosts:
        lab = hosts.lab
        lab.configure("n1", settings("Initial"))
        lab.configure("n2", settings("Lazy"))
        hosts.views = {"n1": lab.watch_from("n1")}
        view = hosts.views["n1"]
        lab.start("n1", "n2")
        hosts.wait_complete("n1", "n1")
        view.wait_for("n2 keeps nothing", lambda: phase(hosts, "n2") == "passive")
        for partitions in (WANTED, OTHER):
            hosts.writer("n1", steps=[{"count": COUNT, "time": 1_000, "partitions": partitions}])
        view.wait_for("n1 has both", lambda: has(hosts, "n1", WANTED) == has(hosts, "n1", OTHER) == COUNT)

        reader = hosts.reader("n2", partitions=WANTED)
        reader.wait(COUNT)
        view.wait_for("n2 has what is wanted", lambda: has(hosts, "n2", WANTED) == COUNT)
        assert (phase(hosts, "n2"), has(hosts, "n2", OTHER)) == ("part", 0)
        for event in ("group.complete", "store.group"):
            told = {fields["group"] for fields in lab.trace("n2", event)}
            assert told <= {f"{WANTED[0]}.Reading"}, "it has nothing of the others"
        hosts.reader("n2", partitions=WANTED).wait(COUNT)
        view.wait_for("its own node served it", lambda: lab.trace("n2", "deliver.finished"))

        program = lab.program("kept", prefix=lab.prefixes["n1"], topic="Reading")
        for partitions, nodes in ((OTHER, 1), (WANTED, 2)):
            program.tell(partitions=partitions, nodes=nodes)
            assert program.answer("kept")
        program.tell(each=True)
        assert [len(nodes) for _, nodes in program.answer("each")] == [1, 2], "n2 matches what it keeps"
        assert program.end() == 0

        lab.kill("n1")
        late = hosts.reader("n2", partitions=WANTED)
        late.wait(COUNT)

        lab.kill("n2")
        before_ns = time.time_ns()
        lab.start("n2")
        lab.start("n1")

        def maintains() -> bool:
            node = view.node("n2")
            return node is not None and node.started_ns > before_ns and phase(hosts, "n2") == "part"

        view.wait_for("n2 maintains its part", maintains)
        assert (has(hosts, "n2", WANTED), has(hosts, "n2", OTHER)) == (COUNT, 0)
        hosts.reader("n2", partitions=OTHER).wait(COUNT)
        view.wait_for("n2 has that, too", lambda: has(hosts, "n2", OTHER) == COUNT)
        asked = [fields["elements"] for fields in lab.trace("n2", "align.extending")]
        assert asked == [f"{OTHER[0]}.Reading"], "nothing else travels for it"
