"""Nothing is given up within a lineage: cores under any sequence of writes and restarts, against a model.

The slow model of a domain whose nodes never lose each other is one set: all that some node has, in memory
while it runs and on its disk while it does not. It never shrinks, unless a disk is destroyed that alone had
something. In the end every node has all of it, whatever the merge policies are, whoever starts first, and
although somebody writes all the time.
"""

from __future__ import annotations

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.messages import NO_EPOCH, Epoch
from engine.core.name_spaces import MergeType
from tests.unit.core.cluster import Cluster, Member

NODES = "abc"
BUSY_FROM = 1_000_000
QUIET_S = 40.0

steps = st.one_of(
    st.tuples(st.just("write"), st.sets(st.sampled_from(NODES), min_size=1)),
    st.tuples(st.just("stop"), st.sampled_from(NODES)),
    st.tuples(st.just("start"), st.sampled_from(NODES)),
    st.tuples(st.just("destroy"), st.sampled_from(NODES)),
    st.tuples(st.just("wait"), st.sampled_from([0.02, 0.3, 1.5, 6.0])),
)


@dataclasses.dataclass
class Disk:
    """What is left of a node that is down."""

    held: set[int] = dataclasses.field(default_factory=set)
    lineage: Epoch = NO_EPOCH
    line: tuple[Epoch, ...] = (NO_EPOCH,)


class Domain:
    """Three nodes and the model."""

    def __init__(self, policies: list[MergeType], priorities: list[int]) -> None:
        self.cluster = Cluster()
        self.policies = dict(zip(NODES, policies, strict=True))
        self.priorities = dict(zip(NODES, priorities, strict=True))
        self.disks = {node: Disk() for node in NODES}
        self.runs = dict.fromkeys(NODES, 0)
        self.written = 0
        self.model: set[int] = set()

    def start(self, node: str) -> None:
        if node in self.cluster.members:
            return
        self.runs[node] += 1
        disk = self.disks[node]
        self.cluster.start(
            node,
            priority=self.priorities[node],
            merge=self.policies[node],
            stored=disk.held,
            quality=max(disk.held, default=0),
            lineage=disk.lineage,
            line=disk.line,
            incarnation=self.runs[node],
        )

    def stop(self, node: str) -> None:
        member = self.cluster.members.get(node)
        if member is None:
            return
        state = member.core.name_spaces[0]
        if state.holder:
            self.disks[node] = Disk(set(member.working), state.lineage, state.line)
        else:
            self.model -= member.working - self.elsewhere(node)  # it was in memory only
        self.cluster.kill(node)

    def destroy(self, node: str) -> None:
        """The disk of a node that is down is replaced by an empty one."""
        if node not in self.cluster.members:
            self.disks[node] = Disk()
            self.model &= self.elsewhere("")

    def elsewhere(self, but: str) -> set[int]:
        held: set[int] = set()
        for node in NODES:
            member = self.cluster.members.get(node)
            if node != but:
                held |= self.disks[node].held if member is None else all_of(member)
            elif member is not None:
                held |= member.stored
        return held

    def write(self, nodes: set[str]) -> None:
        up = sorted(nodes & self.cluster.members.keys())
        if up:
            self.written += 1
            self.model.add(self.written)
            self.cluster.write(self.written, *up)

    def check_nothing_is_lost(self) -> None:
        lost = self.model - self.elsewhere("")
        assert not lost, (lost, self.cluster.describe())

    def run_busily(self, seconds: float) -> None:
        """Time passes while an application writes to all nodes."""
        for tick in range(int(seconds / 0.2)):
            self.cluster.run(0.2)
            if tick % 3 == 0 and self.cluster.members:
                self.cluster.write(BUSY_FROM + self.written)
                self.written += 1


def all_of(member: Member) -> set[int]:
    return member.working | member.loading | member.stored


@settings(max_examples=2 * settings().max_examples)
@given(
    policies=st.lists(st.sampled_from(MergeType), min_size=3, max_size=3),
    priorities=st.permutations([10, 20, 30]),
    script=st.lists(steps, max_size=14),
)
def test_nothing_is_given_up_within_a_lineage(
    policies: list[MergeType], priorities: list[int], script: list[tuple[str, object]]
) -> None:
    domain = Domain(policies, priorities)
    for node in NODES:
        domain.start(node)
    domain.cluster.run(2.0)
    for action, argument in script:
        if action == "wait":
            assert isinstance(argument, float)
            domain.cluster.run(argument)
        else:
            getattr(domain, action)(argument)
        domain.check_nothing_is_lost()
    for node in NODES:
        domain.start(node)
    domain.run_busily(QUIET_S)
    domain.check_nothing_is_lost()
    sets = [domain.cluster.members[node].working for node in NODES]
    assert sets[0] == sets[1] == sets[2], domain.cluster.describe()
    assert domain.model <= sets[0]
