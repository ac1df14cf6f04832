from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.dataset.groups import KEEP_ALL
from engine.dds.uri import cyclone_uri
from tests.client.places import ClientLab
from tests.integration.configurations import Settings
from tests.integration.conftest import own_domain
from tests.integration.lab import LEASE_S
from tests.integration.network import Network, network_of
from tests.integration.programs import Program
from tests.integration.watching import ProgramSource, Watch
from tests.timelines import HEALED

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


@pytest.mark.parametrize("autodispose", [True, False])
def test_a_writer_that_was_cut_off_and_is_back_is_alive_again_for_readers_of_the_library(
    lab: ClientLab, network: Network, autodispose: bool
) -> None:
    near, far = start_both(lab)
    early = lab.client_program("client_reader", prefix=lab.prefixes["n1"])
    writer = lab.program("writer", prefix=lab.prefixes["n2"], readers=3, autodispose=autodispose)
    writer.tell(steps=[{"count": 2, "time": 1_000}])
    writer.answer("done")
    wait_states(early, "ALIVE", "ALIVE")
    near.wait_for("n1 has it", lambda: near.samples("n1") == 2)
    assert words(early, 0) == "S1000"

    part(network, near, far)
    lost = "NOT_ALIVE_DISPOSED" if autodispose else "NOT_ALIVE_NO_WRITERS"
    wait_states(early, lost, lost)
    writer.tell(steps=[{"first": 1, "count": 1, "time": 5_000}])
    writer.answer("done")
    late = lab.client_program("client_reader", prefix=lab.prefixes["n1"])
    late.tell(history=20)
    late.answer("history")
    late.answer("tally")
    assert "ALIVE" not in [each["state"] for each in look(late).values()]

    network.heal("b")
    mark = "D" if autodispose else "NW"
    for reader in (early, late):
        wait_states(reader, "ALIVE", "ALIVE")
        until(reader, 1, lambda seen: seen["words"][-1] == "S5000")
    far.wait_for("both are complete", lambda: far.are_complete(*HOSTS))
    generations = [1, 0] if autodispose else [0, 1]
    assert words(early, 0) == HEALED[autodispose].words(KEEP_ALL, {1: 1_000})
    assert look(early)["0"]["generations"] == generations
    assert words(late, 0) == "S1000 S1000", "that it was without writers first its state told"
    meanwhile = r"( S1001)?( S5000)?( D| NW)? S5000"
    assert re.fullmatch(f"S1001 {mark}{meanwhile}", words(early, 1)), words(early, 1)
    assert re.fullmatch(f"S1001{meanwhile}", words(late, 1)), words(late, 1)
    assert writer.end() == 0
    ended = "NOT_ALIVE_DISPOSED" if autodispose else "NOT_ALIVE_NO_WRITERS"
    for reader in (early, late):
        wait_states(reader, ended, ended)


def look(reader: Program) -> dict[str, Any]:
    """What a reader has shown of each instance."""
    reader.tell(seen=True)
    found: dict[str, Any] = reader.answer("seen")
    return dict(sorted(found.items()))


def words(reader: Program, number: int) -> str:
    return " ".join(look(reader)[str(number)]["words"])


def until(reader: Program, number: int, condition: Callable[[dict[str, Any]], bool]) -> None:
    """Until what a reader has shown of an instance fulfils a condition."""
    deadline = time.monotonic() + 30
    while not condition(look(reader).get(str(number), {"words": [""], "state": None})):
        assert time.monotonic() < deadline, look(reader)
        time.sleep(0.05)


def is_in(state: str, seen: dict[str, Any]) -> bool:
    return bool(seen["state"] == state)


def wait_states(reader: Program, *wanted: str) -> None:
    """Until the instances are in these states."""
    for number, state in enumerate(wanted):
        until(reader, number, functools.partial(is_in, state))


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
