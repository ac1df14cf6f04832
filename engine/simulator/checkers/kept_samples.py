"""The rules about samples in sets: none is invented (I0), none is lost (I1), none is alive again (I2)."""

from __future__ import annotations

from typing import Any, Final

from engine.core.name_spaces import Group, MergeType
from engine.core.states import Phase
from engine.dataset.dataset import DataSet
from engine.dataset.groups import GroupDescription
from engine.dataset.sample import DATA, DISPOSE, KEY_HEADER, LOST_HEADER, UNREGISTER, Sample
from engine.runtime.startup import StoredContent
from engine.simulator.quiet_check import Held, deletes, describe, held, is_ours, missing, samples_of
from engine.simulator.simulated_node import Committed, SimulatedNode
from engine.simulator.simulated_system import Checker, SimulatedSystem, Standing

# Chosen: a run has fewer faults than that.
MOST_STEPS: Final = 100
"""Limit for the ends and returns of a writer after one sample; each takes seconds."""


class Invented(Checker):
    """Compares every sample of every set with the written ones."""

    invariant = "I0"
    meaning = "every sample is one that an application wrote, unchanged"

    def __init__(self, cluster: SimulatedSystem) -> None:
        super().__init__(cluster)
        self._written: set[tuple[object, ...]] = set()
        self._times: dict[tuple[Group, bytes, bytes], set[int]] = {}
        self._payloads: dict[tuple[Group, bytes, bytes], set[bytes]] = {}

    def written(self, description: GroupDescription, record: Sample) -> None:
        """Remember a sample that an application wrote."""
        time_ns, writer, _, _, status, key, payload = record
        self._written.add((description.group, time_ns, writer, status, key, payload))
        instance = description.group, writer, key
        self._times.setdefault(instance, set()).add(time_ns)
        if status & DATA:
            self._payloads.setdefault(instance, set()).add(payload)

    def looked(self) -> None:
        """Check all sets."""
        for node in self.cluster.up():
            for name, data in node.live.spaces.items():
                for group, sample in samples_of(data.working):
                    time_ns, writer, _, _, status, key, payload = sample
                    known = (group, time_ns, writer, status, key, payload) in self._written
                    if not known and not self._is_made(group, sample):
                        self.fail(f"{node.name} has in {name} {group} what nobody wrote: {sample}")

    def _is_made(self, group: Group, sample: Sample) -> bool:
        """Tell whether nodes made a sample of the end, or of the return, of an autodispose writer.

        The end of a lost writer follows its last sample of the instance, its return follows that end, and so
        on, each one nanosecond later. An end that it said has its time, or follows its last sample.
        """
        writer = self.cluster.by_guid.get(sample.writer)
        instance = group, sample.writer, sample.key
        times = self._times.get(instance, set())
        if writer is None or not writer.autodispose or not times:
            return False
        steps = [step for step in range(1, MOST_STEPS) if sample.source_time_ns - step in times]
        is_after = any(step % 2 for step in steps)
        if sample.status == DATA:
            is_after_end = any(not step % 2 for step in steps)
            return is_after_end and sample.payload in self._payloads.get(instance, ())
        if sample.status != DISPOSE | UNREGISTER:
            return False
        if sample.payload == LOST_HEADER + sample.key:
            return is_after
        is_said = writer.ended_ns and sample.payload == KEY_HEADER + sample.key
        return bool(is_said) and (sample.source_time_ns == writer.ended_ns or is_after)


class Ended(Checker):
    """Looks for instances whose newest write is of an autodispose writer that has ended.

    Under an infinite service_cleanup_delay, and without a master, the end of a writer that was lost stays
    each node's own view. An end that a flipped bit took may have been the last copy; its writer is forgotten.
    """

    invariant = "I13"
    meaning = "no instance whose writers have all ended under autodispose is alive, or without writers"

    def __init__(self, cluster: SimulatedSystem) -> None:
        super().__init__(cluster)
        self._rotten: set[tuple[Group, bytes, bytes]] = set()
        """Group, key and writer of damaged ends."""

    def rotted(self, node: SimulatedNode, name_space: str, digest: bytes) -> None:
        """Note a damaged end."""
        for version in node.medium.versions.values():
            for group, row in version.groups.items():
                sample = row.rows.get(digest)
                if sample is not None and sample.status & DISPOSE:
                    self._rotten.add((group, sample.key, sample.writer))

    def settled(self) -> None:
        """Check all complete sets."""
        for node in self.cluster.up():
            for name, data in node.live.spaces.items():
                if not data.state.complete or data.state.following is None:
                    continue
                for group, group_set in data.working.groups.items():
                    if node.live.descriptions[group].qos.cleanup_delay_ns >= 0:
                        for key in group_set.keys():  # noqa: SIM118  # it is not a mapping
                            self._check_instance(node, name, group, group_set.instance(key))

    def _check_instance(
        self, node: SimulatedNode, name: str, group: Group, history: tuple[Sample, ...]
    ) -> None:
        last = _last(history)
        writer = self.cluster.by_guid.get(last.writer) if last is not None else None
        if last is None or writer is None or last.status & DISPOSE:
            return
        is_rotten = (group, last.key, last.writer) in self._rotten
        if writer.autodispose and not writer.participant.is_alive and not is_rotten:
            self.fail(
                f"{node.name} has in {name} {group} key {last.key.hex()} alive, but {writer.name} ended"
            )


Place = tuple[SimulatedNode, str]
"""A node and a name-space."""

DISCARDING = frozenset({MergeType.REPLACE, MergeType.CATCHUP, MergeType.DELETE})


class KeptSetsChecker(Checker):
    """Compares the present sets of nodes, on disk and in memory, with their former ones.

    A node *acknowledges* a sample when a transaction with it is on the node's disk: from then on the stored
    watermark counts it. It must stay there, through crashes and restarts, until one of these happens:

    - Newer samples of its instance take its place, by the history depth; or its group is deleted up to its
      time; or its instance is disposed and purged (see I2).
    - *Set aside*: the node was started again and aligned from a master, instead of injecting its stored set.
      There is a single source of injection, and its set counts for all nodes that align from it, even if
      theirs has newer data: the injecting node was the best of those present, or was there first (deployment
      guide 5.4.3, 5.4.4). Only by that rule, data of a node that was down may be lost.
    - *Merged away*: the policy of the node is Replace, Catchup or Delete, and its set was merged. Replace and
      Catchup keep samples that were written after the merge had begun.
    - One of its bits has flipped on the disk, or the disk is lost.

    The same applies, within one run, to all samples of a complete set in memory, acknowledged or not.
    """

    invariant = "I1"
    meaning = "no acknowledged sample is lost, and complete sets lose nothing"

    def __init__(self, cluster: SimulatedSystem) -> None:
        super().__init__(cluster)
        self._stored: dict[Place, Held] = {}
        self._held: dict[Place, Held] = {}
        self._excused: dict[Place, int] = {}
        self._merge_began: dict[Place, tuple[int, Held]] = {}
        self._rotten: dict[Place, set[bytes]] = {}

    # On disk.

    def opened(self, node: SimulatedNode, found: StoredContent) -> None:
        """Check that acknowledged samples are there after a restart."""
        for place, stored in self._stored.items():
            if place[0] is node:
                data, _ = found.sets.get(place[1], (DataSet(), []))
                lost = missing(stored, data)
                if lost:
                    self.fail(f"{node.name} lost acknowledged samples of {place[1]}: {describe(lost)}")

    def ended(self, node: SimulatedNode) -> None:
        """Forget a node's memory; its disk, if it has one, stays."""
        _forget(node, self._held, self._excused)
        if not node.plan.has_disk:
            _forget(node, self._stored)

    def destroyed(self, node: SimulatedNode) -> None:
        """Forget the content of a lost disk."""
        _forget(node, self._stored)

    def rotted(self, node: SimulatedNode, name_space: str, digest: bytes) -> None:
        """Forget a damaged sample, which no node can keep."""
        self._rotten.setdefault((node, name_space), set()).add(digest)
        stored = self._stored.get((node, name_space), {})
        for key in [key for key in stored if key[1] == digest]:
            del stored[key]

    def committed(self, node: SimulatedNode, transaction: Committed) -> None:
        """Take in a transaction, which changes or replaces a stored set."""
        place = (node, transaction.name_space)
        added = {(group, sample.digest): sample for group, sample in transaction.added}
        if not transaction.whole:
            stored = self._stored.setdefault(place, {})
            stored.update(added)
            self._rotten.get(place, set()).difference_update(digest for _, digest in added)
            for group, sample in transaction.evicted:
                stored.pop((group, sample.digest), None)
            return
        before, self._stored[place] = self._stored.get(place, {}), added
        self._rotten.pop(place, None)
        lost = [one for one in missing(before, _data(node, transaction)) if is_ours(node, one[0])]
        if lost and self._excused.get(place):
            self._excused[place] -= 1
        elif lost and not _deletes_part(node, place[1]):
            what = "replaced its stored set by one without acknowledged samples"
            self.fail(f"{node.name} {what} of {place[1]}: {describe(lost)}")

    # In memory.

    def stepped(self, node: SimulatedNode, name_space: str, before: Standing | None, now: Standing) -> None:
        """Check each change of lineage, to distinguish the effect of a merge from a loss."""
        place = (node, name_space)
        if before is None:
            return
        if now.holder and not before.holder:
            if now.is_aligned:
                self._excuse(place)
            if now.lineage != now.following and deletes(node, name_space):
                self._excuse(place)  # the received set was deleted at once
            self._held[place] = held(node.live.spaces[name_space].working)
        elif now.lineage != before.lineage:
            rules = node.live.spaces[name_space].state.policy.merges
            types = {rule.type for rule in rules} & DISCARDING
            self._check_place(place, types)
            if types:  # a node may decide several times in one turn
                self._excuse(place, max(1, now.lineage.counter - before.lineage.counter))
        if now.phase is Phase.MERGE and now.requests and now.requests != before.requests:
            self._check_place(place, set())
            self._merge_began[place] = node.clock.wall_ns(), self._held[place]

    def _excuse(self, place: Place, times: int = 1) -> None:
        self._excused[place] = self._excused.get(place, 0) + times

    def looked(self) -> None:
        """Check all complete sets."""
        for place in list(self._held):
            self._check_place(place, set())
        for place in list(self._excused):
            runtime = place[0].runtime
            if runtime is not None and runtime.store_queue.is_idle:
                del self._excused[place]  # the change that it excused is complete

    def _check_place(self, place: Place, discarding: set[MergeType]) -> None:
        node, name_space = place
        working = node.live.spaces[name_space].working
        before = self._held.get(place, {})
        lost = [one for one in missing(before, working) if not self.cluster.ledger.is_purged(working, *one)]
        if discarding and MergeType.DELETE not in discarding:
            began_ns, had = self._merge_began.get(place, (0, {}))
            lost = [
                (group, sample)
                for group, sample in lost
                if sample.source_time_ns > began_ns and (group, sample.digest) not in had
            ]
        elif discarding:
            lost = []
        if lost and not _deletes_part(node, name_space):
            self.fail(f"{node.name} does not have any more of {name_space}: {describe(lost)}")
        self._held[place] = held(working)

    def settled(self) -> None:
        """Check that disk and memory have the same samples."""
        for node in self.cluster.up():
            for name, data in node.live.spaces.items():
                if not data.is_switched:
                    continue
                stored = self._stored.get((node, name), {}).keys()
                groups = data.persistent_groups(node.live.descriptions.values())
                wanted = {(each.group, sample.digest) for each, samples in groups for sample in samples}
                wanted = {key for key in wanted if key[1] not in self._rotten.get((node, name), ())}
                if stored != wanted:
                    counts = f"{len(wanted - stored)} are not stored, {len(stored - wanted)} too many are"
                    self.fail(f"{node.name}: disk and memory differ in {name}: {counts}")


def _forget(node: SimulatedNode, *tables: dict[Place, Any]) -> None:
    """Remove the entries of a node from tables."""
    for table in tables:
        for place in [place for place in table if place[0] is node]:
            del table[place]


def _deletes_part(node: SimulatedNode, name_space: str) -> bool:
    """Tell whether a Lazy node may delete its part in one turn without a new lineage."""
    return node.live.spaces[name_space].state.is_lazy and deletes(node, name_space)


def _data(node: SimulatedNode, transaction: Committed) -> DataSet:
    """Return the set of a whole transaction."""
    data = DataSet()
    for group, sample in transaction.added:
        description = node.live.descriptions.get(group)
        group_set = data.open_described(description) if description else data.open_group(group, 0)
        group_set.apply(sample)
    return data


Tombstones = dict[tuple[Group, bytes], Sample]


class Resurrection(Checker):
    """Remembers disposes.

    The checker remembers a dispose of a complete set while the node runs, also after the node has purged it.
    It forgets the dispose if the node's set was set aside or merged away (see I1), and when two nodes meet
    for the first time: a node keeps its tombstones for known fellows, and cannot wait for unknown ones.
    """

    invariant = "I2"
    meaning = "no disposed instance is alive again"

    def __init__(self, cluster: SimulatedSystem) -> None:
        super().__init__(cluster)
        self._tombstones: dict[Place, Tombstones] = {}
        self._replaced: dict[Place, int] = {}

    def met(self, node: SimulatedNode, fellow: SimulatedNode) -> None:
        """Forget purged disposes at the first meeting of two nodes, which may bring older data."""
        if self.cluster.ledger.strangers_met_s == self.cluster.schedule.now:
            for place, tombstones in self._tombstones.items():
                self._tombstones[place] = self._kept(place, tombstones)

    @staticmethod
    def _kept(place: Place, tombstones: Tombstones) -> Tombstones:
        """Return the tombstones that the node has not purged."""
        node, name_space = place
        if node.runtime is None:
            return {}
        groups = node.runtime.spaces[name_space].working.groups
        return {
            (group, key): tombstone
            for (group, key), tombstone in tombstones.items()
            if group in groups and key in groups[group].disposed
        }

    def _is_newer(self, group: Group, last: Sample, tombstone: Sample) -> bool:
        """Tell whether a sample was written after the dispose, by true time and not by its timestamp.

        A dispose with a future timestamp is also forgotten when its time has come on a clock that is ahead;
        a later write then makes a new instance, with any timestamp.
        """
        return self.cluster.written_s(group, last) > self.cluster.written_s(group, tombstone)

    def ended(self, node: SimulatedNode) -> None:
        """Forget the disposes of a node: after a restart it may have another set."""
        _forget(node, self._tombstones, self._replaced)

    def stepped(self, node: SimulatedNode, name_space: str, before: Standing | None, now: Standing) -> None:
        """Check each change; a merge that may discard samples makes the node's disposes forgotten."""
        place = (node, name_space)
        if not now.holder or before is None:
            return
        if now.lineage != before.lineage and self._may_discard(place):
            self._tombstones.pop(place, None)
        if now.phase is not Phase.MERGE:
            self._check_place(place)

    @staticmethod
    def _may_discard(place: Place) -> bool:
        """Tell whether a merge policy of the node may discard samples."""
        node, name_space = place
        rules = node.live.spaces[name_space].state.policy.merges
        return bool(DISCARDING.intersection(rule.type for rule in rules))

    def looked(self) -> None:
        """Check all complete sets."""
        for place in list(self._tombstones):
            self._check_place(place)

    def _check_place(self, place: Place) -> None:
        node, name_space = place
        data = node.live.spaces[name_space]
        if data.replaced != self._replaced.get(place, 0) and self._may_discard(place):
            self._tombstones.pop(place, None)
        self._replaced[place] = data.replaced
        tombstones = self._tombstones.setdefault(place, {})
        for group, group_set in data.working.groups.items():
            for (known_group, key), tombstone in tombstones.items():
                if known_group == group:
                    last = _last(group_set.instance(key))
                    if last is not None and last < tombstone and not self._is_newer(group, last, tombstone):
                        self._fail_alive(node, name_space, group, last, tombstone)
            for key in sorted(group_set.disposed):
                last = _last(group_set.instance(key))
                if last is not None:
                    tombstones[group, key] = last

    def _fail_alive(
        self, node: SimulatedNode, name_space: str, group: Group, last: Sample, tombstone: Sample
    ) -> None:
        state = "disposed" if last.status & DISPOSE else "alive"
        self.fail(
            f"{node.name}: {name_space} {group} key {last.key.hex()} was disposed at "
            f"{tombstone.source_time_ns} and is {state} with a sample of {last.source_time_ns}"
        )


def _last(history: tuple[Sample, ...]) -> Sample | None:
    """Return the sample that decides whether an instance is alive."""
    return next((sample for sample in reversed(history) if sample.status != UNREGISTER), None)
