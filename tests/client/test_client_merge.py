from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.dds.uri import cyclone_uri
from tests.client.places import ClientLab
from tests.integration.configurations import Settings
from tests.integration.conftest import own_domain
from tests.integration.lab import LEASE_S
from tests.integration.network import Network, network_of
from tests.integration.watching import ProgramSource, Watch

pytestmark = [pytest.mark.dds, pytest.mark.netns]

HOSTS = {"n1": "a", "n2": "b"}
MANY, KBIT_S = 20_000, 4_000
"""What n2 writes apart, and how fast it may send that: the merge takes a second or more. With a slower link
its heartbeats would be overdue, n1 alone again, and what it has complete."""


@pytest.fixture
def network() -> Iterator[Network]:
    made = network_of(tuple(HOSTS.values()))
    yield made
    made.close()


@pytest.fixture
def lab(tmp_path: Path, network: Network) -> Iterator[ClientLab]:
    """Two nodes on two hosts, not watched from here: this process is on neither."""
    domain, tag = own_domain()
    uri = cyclone_uri(
        interfaces=["e0"],
        peers=network.addresses.values(),
        max_auto_participant_index=12,
        lease_s=LEASE_S,
        tag=f"merge-{tag}",
        environment={},
    )
    made = ClientLab(tmp_path, domain, f"merge-{tag}", uri, watched=False)
    made.prefixes = {name: network.on(host) for name, host in HOSTS.items()}
    yield made
    made.close()


def test_a_merge_gives_a_reader_what_the_other_side_wrote_and_nothing_twice(
    lab: ClientLab, network: Network
) -> None:
    near, far = start_both(lab)
    reader = lab.client_program("client_reader", prefix=lab.prefixes["n1"])
    writer = lab.program("writer", prefix=lab.prefixes["n2"], readers=3)
    writer.tell(steps=[{"count": 10, "time": 1_000}])
    writer.answer("done")
    reader.tell(history=20, want=10)
    reader.answer("history")
    assert len(reader.answer("tally")) == 10

    part(network, near, far)
    writer.tell(steps=[{"first": 10, "count": 20, "time": 2_000}])
    writer.answer("done")
    reader.tell()
    assert len(reader.answer("tally")) == 10

    network.heal("b")
    reader.tell(want=30)
    got = reader.answer("tally")
    far.wait_for("both are complete", lambda: far.are_complete(*HOSTS))
    writer.tell(steps=[{"first": 30, "count": 1, "time": 3_000}])
    writer.answer("done")
    reader.tell(want=31)
    got = reader.answer("tally")
    assert sorted(number for _, number in got) == [*range(31)]


def test_history_that_is_asked_for_during_a_merge_comes_when_it_is_over_whole_and_once(
    lab: ClientLab, network: Network
) -> None:
    near, far = start_both(lab)
    reader = lab.client_program("client_reader", prefix=lab.prefixes["n1"], later=True)
    lab.write({"count": 10, "time": 1_000}, prefix=lab.prefixes["n1"], readers=2)
    far.wait_for("n2 has it", lambda: far.samples("n2") == 10)
    part(network, near, far)
    lab.write({"first": 10, "count": 5, "time": 2_000}, prefix=lab.prefixes["n1"])
    lab.write({"first": 100, "count": MANY, "time": 3_000}, prefix=lab.prefixes["n2"])
    far.wait_for("n2 has that", lambda: far.samples("n2") == 10 + MANY)
    network.slow_down("b", KBIT_S)

    network.heal("b")
    near.wait_for("n1 merges", lambda: is_merging(near))
    reader.tell(history=60)
    before = near.samples("n1")
    reader.answer("history", 90)
    got = reader.answer("tally")
    assert before == 15, "it was asked before the other side's was there"
    assert sorted(number for _, number in got) == [*range(15), *range(100, 100 + MANY)]
    near.wait_for("the merge is over", lambda: not is_merging(near) and near.samples("n1") == 15 + MANY)


def start_both(lab: ClientLab) -> tuple[Watch, Watch]:
    """Both nodes are complete; eyes on the host of each."""
    for name, priority in (("n1", 200), ("n2", 100)):
        lab.configure(name, Settings().with_priority(priority))
    lab.start(*HOSTS)
    near, far = (watch_from(lab, name) for name in HOSTS)
    far.wait_for("both are complete", lambda: far.are_complete(*HOSTS))
    return near, far


def part(network: Network, near: Watch, far: Watch) -> None:
    """Cut the link, until each node is alone."""
    network.cut("b")
    near.wait_for("n1 is alone", lambda: not near.fellows("n1", "approved"))
    far.wait_for("n2 is alone", lambda: not far.fellows("n2", "approved"))


def is_merging(seen: Watch) -> bool:
    """Whether n1 shows that it merges, and that its name-space is not complete for that."""
    space = seen.space("n1")
    return space is not None and space.phase == "merge"


def watch_from(lab: ClientLab, name: str) -> Watch:
    """Eyes on the host of a node."""
    program = lab.program("watch", prefix=lab.prefixes[name])
    program.answer("ready")
    watch = Watch(ProgramSource(program))
    watch.check = lab.check
    return watch
