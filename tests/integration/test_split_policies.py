"""Split brain of two and two nodes on real links: each merge policy, with ordinary readers on both sides."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.configurations import Settings, Space
from tests.integration.hosts import lab_on
from tests.integration.lab import Reader
from tests.integration.network import Network, network_of
from tests.integration.programs import Program
from tests.integration.watching import Watch

pytestmark = [pytest.mark.dds, pytest.mark.netns]

HOSTS = {"n1": "a", "n2": "b", "n3": "c", "n4": "d"}
PRIORITIES = {"n1": 200, "n2": 100, "n3": 50, "n4": 40}
NEAR, FAR = ("n1", "n2"), ("n3", "n4")
COMMON = 20


class Halves:
    """Two nodes, a writer and a reader on either side of a link."""

    def __init__(
        self, directory: Path, network: Network, policies: dict[str, str], roles: dict[str, str], more: str
    ) -> None:
        self.network = network
        self.lab = lab = lab_on(directory, network)
        lab.prefixes = {name: network.on(host) for name, host in HOSTS.items()}
        for name, priority in PRIORITIES.items():
            role = roles.get(name, "Depot")
            merge = tuple((policies[scope], scope) for scope in policies)
            space = Space(priority=priority, merge=merge, more=more)
            lab.configure(name, dataclasses.replace(Settings(spaces=(space,)), role=role))
        self.near, self.far = self.lab.watch_from("n1"), self.lab.watch_from("n4")
        lab.start(*HOSTS)
        for view in (self.near, self.far):
            view.wait_for("all are complete", functools.partial(are_complete, view))
        self.near_reader, self.far_reader = (lab.reader(prefix=lab.prefixes[name]) for name in ("n2", "n4"))
        self.near_writer, self.far_writer = self._writer("n1"), self._writer("n3")

    def _writer(self, name: str) -> Program:
        program = self.lab.program("writer", prefix=self.lab.prefixes[name], readers=6)
        program.answer("done")
        return program

    def split(self) -> None:
        self.network.split("c", "d")
        self.near.wait_for("n1 sees n2 only", lambda: self.near.fellows("n1", "approved") == {"n2"})
        self.far.wait_for("n3 leads the others", lambda: {self.far.master(name) for name in FAR} == {"n3"})

    def heal(self) -> None:
        self.network.join("c", "d")
        for view in (self.near, self.far):
            view.wait_for("all talk to each other again", functools.partial(are_complete, view, fellows=3))

    def counts(self) -> list[int]:
        """Samples in the sets of all nodes, in the order of their names."""
        return [self.far.samples(name) for name in HOSTS]


def are_complete(view: Watch, fellows: int = 0) -> bool:
    """Whether all nodes show themselves complete, with at least so many fellows each."""
    nodes = [view.node(name) for name in HOSTS]
    return all(
        node is not None
        and node.name_spaces
        and all(space.complete for space in node.name_spaces)
        and len(view.fellows(node.name, "approved")) >= fellows
        for node in nodes
    )


@pytest.fixture
def halves(tmp_path: Path) -> Iterator[Callable[..., Halves]]:
    made: list[Halves] = []
    networks: list[Network] = []

    def make(policies: dict[str, str], roles: dict[str, str] | None = None, more: str = "") -> Halves:
        networks.append(network_of(tuple(HOSTS.values())))
        made.append(Halves(tmp_path, networks[0], policies, roles or {}, more))
        return made[0]

    try:
        yield make
    finally:
        for one in made:
            one.lab.close()
        for network in networks:
            network.close()


def write(writer: Program, *steps: dict[str, object]) -> None:
    writer.tell(steps=list(steps))
    writer.answer("done")


def step(first: int, count: int, time_ns: int, **more: object) -> dict[str, object]:
    return {"first": first, "count": count, "time": time_ns, **more}


def write_on_both_sides(one: Halves) -> None:
    """20 instances known to all; then 5 new and 5 updates near, 7 new and 2 disposes far."""
    write(one.near_writer, step(0, COMMON - 5, 1_000))
    write(one.far_writer, step(COMMON - 5, 5, 1_500))  # both writers match everybody before the split
    one.far.wait_for("all have it", lambda: one.counts() == [COMMON] * 4)
    one.near_reader.wait(COMMON)
    one.far_reader.wait(COMMON)
    one.split()
    write(one.near_writer, step(100, 5, 2_000), step(0, 5, 3_000, value=1))
    write(one.far_writer, step(200, 7, 2_500), step(10, 2, 3_500, op="dispose"))
    one.near.wait_for("near is stored", lambda: {one.near.samples(name) for name in NEAR} == {25})
    one.far.wait_for("far is stored", lambda: {one.far.samples(name) for name in FAR} == {29})
    one.near_reader.wait(COMMON + 10)
    one.far_reader.wait(COMMON + 7)
    one.heal()


def alive(reader: Reader) -> set[int]:
    """The numbers of the instances that a reader does not see as disposed."""
    states = reader.tally(detailed=True)["state_of"]
    return {int(name.split()[1]) for name, state in states.items() if state != "disposed"}


def sees(reader: Reader, expected: set[int]) -> bool:
    return alive(reader) == expected


def check_ends(one: Halves, counts: list[int], near: set[int], far: set[int]) -> None:
    """The sets and what ordinary readers see come to what the policy says, and stay."""
    one.far.wait_for(f"the sets have {counts}", lambda: one.counts() == counts)
    for view, reader, expected in ((one.near, one.near_reader, near), (one.far, one.far_reader, far)):
        try:
            view.wait_for("the reader sees it", functools.partial(sees, reader, expected), 15.0)
        except AssertionError as error:
            raise AssertionError(f"{error}; sees {sorted(alive(reader))}") from None


BASE = set(range(COMMON))
NEAR_NEW, FAR_NEW = set(range(100, 105)), set(range(200, 207))
MERGED = (BASE | NEAR_NEW | FAR_NEW) - {10, 11}


@pytest.mark.parametrize(
    ("policy", "counts", "near", "far"),
    [
        ("Merge", [34, 34, 34, 34], MERGED, MERGED),
        # Far readers saw 10 and 11 disposed, and see them again.
        ("Catchup", [25, 25, 25, 25], BASE | NEAR_NEW, BASE | NEAR_NEW),
        ("Replace", [25, 25, 25, 25], BASE | NEAR_NEW, BASE | NEAR_NEW),
        ("Delete", [0, 0, 0, 0], set(), set()),
        ("Ignore", [25, 25, 29, 29], BASE | NEAR_NEW, (BASE | FAR_NEW) - {10, 11}),
    ],
)
def test_split_brain_ends_as_the_merge_policy_says_on_nodes_and_readers(
    halves: Callable[..., Halves], policy: str, counts: list[int], near: set[int], far: set[int]
) -> None:
    one = halves({"*": policy})
    write_on_both_sides(one)
    check_ends(one, counts, near, far)


def test_two_roles_apply_their_own_policies_to_each_other(halves: Callable[..., Halves]) -> None:
    roles = {"n1": "Near", "n2": "Near", "n3": "Far", "n4": "Far"}
    one = halves({"Far": "Ignore", "Near": "Merge", "*": "Merge"}, roles)
    write_on_both_sides(one)
    # Near ignores Far; Far merges what Near has. In their own roles both merge.
    check_ends(one, [25, 25, 34, 34], BASE | NEAR_NEW, MERGED)


@pytest.mark.parametrize("setting", ["", 'equalityCheck="false"'], ids=["not given", "false"])
def test_equal_sets_show_replace_only_with_equality_check_false(
    halves: Callable[..., Halves], setting: str
) -> None:
    one = halves({"*": "Replace"}, more=setting)
    write(one.near_writer, step(0, COMMON, 1_000))
    one.far.wait_for("all have it", lambda: one.counts() == [COMMON] * 4)
    one.near_reader.wait(COMMON)
    one.far_reader.wait(COMMON)
    one.split()
    one.heal()
    for name in FAR:
        one.far.wait_for(f"{name} has compared", functools.partial(one.lab.trace, name, "merge.equal"))
    shown = COMMON if setting else 0
    one.far_reader.wait(COMMON + shown)
    write(one.far_writer, step(COMMON, 1, 2_000))
    for reader, count in ((one.near_reader, COMMON + 1), (one.far_reader, COMMON + shown + 1)):
        reader.wait(count)
        assert alive(reader) == set(range(COMMON + 1))
    assert not any(one.lab.trace(name, "merge.started") for name in HOSTS), "nothing moves"
    assert [bool(one.lab.trace(name, "merge.equal-shown")) for name in FAR] == [bool(setting)] * 2
