from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.hosts import lab_on
from tests.integration.lab import Reader
from tests.integration.network import Network, network_of
from tests.integration.programs import Program

pytestmark = [pytest.mark.dds, pytest.mark.netns]

HOSTS = {"n1": "a", "n2": "b", "n3": "c"}
EVERYWHERE = tuple(HOSTS)


class SplitLab:
    """Three nodes on three hosts, with eyes on two of them."""

    def __init__(self, directory: Path, network: Network, *, multicast: bool) -> None:
        self.network = network
        self.lab = lab_on(directory, network, multicast="spdp" if multicast else "false")
        self.lab.prefixes = {name: network.on(host) for name, host in HOSTS.items()}
        self.lab.configure_three()
        self.views = {name: self.lab.watch_from(name) for name in ("n1", "n3")}

    def writer(self, name: str) -> Program:
        """A writer on the host of a node that stays to write on both sides of a cut."""
        program = self.lab.program("writer", prefix=self.lab.prefixes[name], readers=3)
        program.answer("done")
        return program

    def reader(self, name: str) -> Reader:
        return self.lab.reader(prefix=self.lab.prefixes[name])

    def wait_complete(self, seen_from: str, *names: str) -> None:
        view = self.views[seen_from]
        view.wait_for(f"{names} are complete and equal", lambda: view.are_complete(*names))


@pytest.fixture(params=["multicast", "unicast"])
def split(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SplitLab]:
    network = network_of(tuple(HOSTS.values()))
    try:
        made = SplitLab(tmp_path, network, multicast=request.param == "multicast")
        try:
            yield made
        finally:
            made.lab.close()
    finally:
        network.close()


def steps(first: int, count: int, time_ns: int, **more: object) -> dict[str, object]:
    return {"first": first, "count": count, "time": time_ns, **more}


def test_what_both_sides_of_a_cut_link_wrote_is_merged_when_it_is_whole_again(split: SplitLab) -> None:
    lab, near, far = split.lab, split.views["n1"], split.views["n3"]
    lab.start(*EVERYWHERE)
    split.wait_complete("n3", *EVERYWHERE)
    alone, together = split.writer("n1"), split.writer("n3")
    alone.tell(steps=[steps(0, 50, 1_000)])
    alone.answer("done")
    together.tell(steps=[steps(50, 50, 1_100)])
    together.answer("done")
    far.wait_for("all have it", lambda: {far.samples(name) for name in EVERYWHERE} == {100})

    split.network.cut("a")
    near.wait_for("n1 is alone", lambda: not near.fellows("n1", "approved"))
    far.wait_for("n2 is master of the others", lambda: far.master("n3") == far.master("n2") == "n2")
    split.wait_complete("n3", "n2", "n3")
    alone.tell(steps=[steps(200, 30, 2_000), steps(0, 10, 3_000, value=1)])
    alone.answer("done")
    together.tell(steps=[steps(300, 40, 2_500), steps(10, 5, 3_500, op="dispose")])
    together.answer("done")
    near.wait_for("n1 has its side", lambda: near.samples("n1") == 130)
    far.wait_for("the others have theirs", lambda: {far.samples(name) for name in ("n2", "n3")} == {145})

    split.network.heal("a")
    split.wait_complete("n3", *EVERYWHERE)
    assert far.master("n2") == "n1"
    # 170 instances with one write each; 5 of them have their dispose, too.
    assert {far.samples(name) for name in EVERYWHERE} == {175}
    reader = split.reader("n2")
    reader.wait(170, disposed=5)
    tally = reader.tally(detailed=True)
    assert (tally["instances"], tally["repeated"]) == (170, 0)
    assert tally["samples"]["Reading 3"] == [[3_003, "Reading(number=3, value=1, text='reading 3')"]]
    assert {"Reading 10", "Reading 14"} <= {n for n, s in tally["state_of"].items() if s == "disposed"}
    moved = [int(found["samples"]) for found in lab.trace("n1", "merge.finished")]
    assert sum(moved) == 45, "only what n1 had missed is new to it"
