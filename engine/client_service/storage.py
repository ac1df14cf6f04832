"""The samples of a writer that this node has, and how safely: the node's part of `wait_for_durable`.

The node looks for named samples in the sets. A sample is *stored* when it is in a complete set and, if the
node keeps the group on disk, there. The disk carries out changes in order, so everything that is in the set
at one moment is on disk once the changes handed over by then are carried out.

For a writer that cannot name its samples, the node counts the samples captured in this run. If it captured as
many as were written, it missed none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

from engine.core.expressions import intersection, matches
from engine.core.name_spaces import Group
from engine.core.states import Phase
from engine.core.untrusted import Newest
from engine.dataset.dataset import weight_of
from engine.dataset.groups import DurabilityKind
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, Sample, with_digest
from engine.dds.cdr import Malformed
from engine.dds.client_protocol.naming import ANSWERS, NAMES, SampleName, SampleVerdict, unpack_names
from engine.runtime.housekeeping import INFINITE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.core.name_space_state import NameSpaceState
    from engine.dataset.captured import CapturedRun
    from engine.dataset.group_set import GroupSet
    from engine.dds.client_protocol.extensions import StoredQuestion
    from engine.runtime.name_space_data import NameSpaceData
    from engine.runtime.runtime import Runtime

# Chosen: 65,536 counts are some megabytes. A forgotten count only makes the next question read the set
# again.
MAX_WRITERS: Final = 65_536
"""Limit for writers with counts; beyond it the oldest counts are forgotten."""
# Chosen: a client asks about what it has just written.
MAX_REFUSED: Final = 1_000
"""Limit for the memory of refused samples."""
# Chosen: the node's own thread reads them all, and answers nothing else meanwhile.
MAX_COMPARED: Final = 200_000
"""Limit for the samples of groups in which the node sums up those of one writer."""
# A transaction of changes for which somebody waits starts at once; half a second is several of them.
DISK_S: Final = 0.5
"""Time after the deadline in which the answer waits for the disk."""
# As long as the store gathers changes (`engine.node.disk.GATHER_S`); each look costs a comparison of names.
FIRST_RECHECK_S: Final = 0.02
# The client waits for this at most longer than it must; ten times the first, so that a long wait costs few
# looks.
MAX_RECHECK_S: Final = 0.2

_MASK: Final = (1 << 128) - 1
_WRITER_BYTES: Final = 16
_SAMPLE: Final = DATA | DISPOSE | UNREGISTER
_NOT_KEPT: Final = ("Volatile", "Transient_Local")


class StorageQuestion(Struct):
    """A client's question whether the node has samples, and how safely."""

    names: tuple[SampleName, ...] = ()
    """Names of the samples; without names the question is about `count` samples of `writer`."""
    writer: bytes = b""
    """GUID of a writer."""
    count: int = 0
    """Number of samples that the writer wrote."""
    verdicts: list[SampleVerdict] = []
    """The present verdict on each name."""
    barrier: int | None = None
    """Number of changes that the disk must have carried out for the samples that were found."""
    content: tuple[int, str] | None = None
    """Count and digest of the writer's samples at the barrier."""
    replaced: int = 0
    """Number of replaced sets at the last look."""
    recheck_s: float = 0.0
    """Time of the next look, monotonic."""
    interval_s: float = FIRST_RECHECK_S
    """Time from that look to the one after it."""

    @classmethod
    def parse(cls, asked: StoredQuestion, extensions: Mapping[str, bytes]) -> StorageQuestion | None:
        """Return the question of a state request; None for a client of another version.

        Raises:
            Malformed: the names are damaged, or there is neither a name nor a writer.
        """
        if asked.version != ANSWERS:
            return None
        if NAMES in extensions:
            return cls(unpack_names(extensions[NAMES]))
        if len(asked.writer) != _WRITER_BYTES:
            raise Malformed("our addition asks for no writer")
        return cls(writer=asked.writer, count=asked.count)


class _Place(NamedTuple):
    """A partition of a question, with the name-spaces that keep it and their groups of the topic."""

    partition: str
    keepers: tuple[NameSpaceState, ...]
    groups: tuple[tuple[Group, GroupSet, NameSpaceData], ...]


class _Tally(Struct):
    """Numbers of one writer's samples in this run: put into sets (with their oldest time), and refused."""

    count: int = 0
    refused: int = 0
    oldest_ns: int | None = None


class Storage:
    """Counts the captured samples of each writer, and finds samples in the sets and on the disk.

    Args:
        runtime: the node's; used on its thread only.
        has_disk: whether its store is on a disk.
    """

    def __init__(self, runtime: Runtime, *, has_disk: bool = True) -> None:
        self._runtime = runtime
        self._began_ns = runtime.shared.clock.wall_ns()
        self._has_disk = has_disk
        self._max_bytes = runtime.shared.settings.max_sample_bytes
        self._tallies: Newest[bytes, _Tally] = Newest(MAX_WRITERS)
        self._refused: Newest[bytes, None] = Newest(MAX_REFUSED)
        self._replaced: dict[str, int] = {}

    # Capturing.

    def captured(
        self,
        records: Sequence[Sample | CapturedRun],
        unrouted: Sequence[Sample],
        routes: Mapping[bytes, tuple[Group, ...]],
    ) -> None:
        """Count records from a tap; those of `unrouted` writers come again."""
        skipped = {record.writer for record in unrouted}
        kept: dict[bytes, bool] = {}
        for record in records:
            writer = record.writer
            if writer in skipped or (isinstance(record, Sample) and record.status > _SAMPLE):
                continue
            if writer not in kept:
                kept[writer] = self._is_kept(routes.get(writer, ()))
            tally = self._tallies.get(writer) or self._new_tally(writer)
            if isinstance(record, Sample) and len(record.payload) > self._max_bytes:
                self.refused([with_digest(record)])
                tally.refused += 1
            elif kept[writer]:
                times_ns = record[:1] if isinstance(record, Sample) else record.times_ns
                tally.count += len(times_ns)
                oldest_ns = min(times_ns)
                tally.oldest_ns = oldest_ns if tally.oldest_ns is None else min(tally.oldest_ns, oldest_ns)

    def refused(self, samples: Sequence[Sample]) -> None:
        """Remember samples that are too large to be kept."""
        self._refused |= {sample.digest: None for sample in samples if len(sample.payload) > self._max_bytes}

    def _is_kept(self, groups: tuple[Group, ...]) -> bool:
        """Tell whether captured samples go into a set; a Lazy alignee drops what nobody requested."""
        known = [(group, self._runtime.core.name_space_of(group)) for group in groups]
        states = [(group, state) for group, state in known if state is not None]
        return bool(states) and all(state.keeps(group) for group, state in states)

    def _new_tally(self, writer: bytes) -> _Tally:
        tally = self._tallies[writer] = _Tally()
        return tally

    # Answering.

    def places(self, states: Sequence[NameSpaceState], topic: str, partitions: Sequence[str]) -> list[_Place]:
        """Return the partitions in which this node must keep the topic.

        Args:
            states: the name-spaces that the question touches.
            topic: topic name.
            partitions: partition names, not expressions.
        """
        found = []
        for partition in partitions:
            keepers = [state for state in states if _must_keep(state, topic, partition)]
            if not keepers:
                continue
            groups = [
                (group, group_set, data)
                for state in keepers
                for data in (self._runtime.spaces[state.name],)
                for group, group_set in data.working.groups.items()
                if group.topic == topic and group.partition == partition
            ]
            found.append(_Place(partition, tuple(keepers), tuple(groups)))
        return found

    def incomplete(self, states: Sequence[NameSpaceState]) -> str:
        """Return a name-space whose set is not complete here; empty if there is none."""
        for state in states:
            data = self._runtime.spaces[state.name]
            if state.phase is not Phase.PASSIVE and not (state.complete and data.is_switched):
                return state.name
        return ""

    def why_not(self, states: Sequence[NameSpaceState], places: Sequence[_Place]) -> str:
        """Return the reason why no sample counts as kept now; empty for none."""
        name = self.incomplete(states)
        if name:
            return f"name-space '{name}' is not complete"
        store_queue = self._runtime.store_queue
        if not self.keeping(places)[1]:
            return ""
        if store_queue.problem:
            return f"the disk refuses: {store_queue.problem}"
        return "the disk is behind" if store_queue.is_overflowed else ""

    def is_answered(
        self,
        question: StorageQuestion,
        states: Sequence[NameSpaceState],
        places: Sequence[_Place],
        now: float,
        deadline_s: float,
    ) -> bool:
        """Look for the samples of a question, and tell whether to answer now.

        Args:
            question: the question, which is updated.
            states: the name-spaces that it touches.
            places: its partitions.
            now: monotonic time.
            deadline_s: monotonic time of the answer at the latest, but for the disk's `DISK_S`.
        """
        if now >= question.recheck_s:
            question.recheck_s = now + question.interval_s
            question.interval_s = min(MAX_RECHECK_S, 2 * question.interval_s)
            self._examine(question, places)
        is_late = now >= deadline_s
        if self.why_not(states, places):
            return is_late
        if question.names:
            if is_late or SampleVerdict.MISSING not in question.verdicts:
                return (
                    question.barrier is None or self._is_past(question.barrier) or now > deadline_s + DISK_S
                )
            return False
        if question.barrier is None and (is_late or self.tally(question.writer)[0] >= question.count):
            question.content = self._content(question.writer, places)
            question.barrier = self._runtime.hurry()
        return self._is_past(question.barrier) or now > deadline_s + DISK_S

    def _examine(self, question: StorageQuestion, places: Sequence[_Place]) -> None:
        replaced = self._replaced_sets()
        if question.replaced != replaced or not question.verdicts:
            question.verdicts = [SampleVerdict.MISSING] * len(question.names)
            question.replaced, question.barrier = replaced, None
        has_found = False
        for at, verdict in enumerate(question.verdicts):
            if verdict is SampleVerdict.MISSING:
                found = min((self._in_place(question.names[at], place) for place in places), default=verdict)
                question.verdicts[at] = found
                has_found = has_found or found is not SampleVerdict.MISSING
        if has_found:
            question.barrier = self._runtime.hurry()

    def verdicts(
        self, question: StorageQuestion, states: Sequence[NameSpaceState], places: Sequence[_Place]
    ) -> list[SampleVerdict]:
        """Return the verdict on each name at this moment. `places` are the partitions of the question."""
        if self.why_not(states, places):  # the set may still change
            settled = {SampleVerdict.MISSING, SampleVerdict.DELETED}
        elif self._is_past(question.barrier):
            settled = set(SampleVerdict)
        else:
            settled = {*SampleVerdict} - {SampleVerdict.SUPERSEDED, SampleVerdict.STORED}
        return [one if one in settled else SampleVerdict.IN_MEMORY for one in question.verdicts]

    def tally(self, writer: bytes) -> tuple[int, int]:
        """Return the numbers of a writer's samples in this run: captured and kept, and refused."""
        self._replaced_sets()
        tally = self._tallies.get(writer, _Tally())
        return tally.count, tally.refused

    def is_deleted(self, writer: bytes, places: Sequence[_Place]) -> bool:
        """Tell whether a deletion from a group covers captured samples of a writer."""
        oldest_ns = self._tallies.get(writer, _Tally()).oldest_ns
        groups = (group_set for place in places for _, group_set, _ in place.groups)
        return oldest_ns is not None and any(oldest_ns <= group_set.floor_ns for group_set in groups)

    def limits(self, places: Sequence[_Place]) -> str:
        """Return the limits of these groups in words; empty without limits."""
        found = {
            f"{name} {value:,}"
            for place in places
            for _, group_set, _ in place.groups
            for name, value in group_set.limits._asdict().items()
            if value > 0
        }
        return ", ".join(sorted(found))

    def has_kept_out(self, places: Sequence[_Place]) -> bool:
        """Tell whether a limit has kept samples of any writer out of these groups."""
        return any(group_set.has_kept_out for place in places for _, group_set, _ in place.groups)

    def is_past(self, question: StorageQuestion) -> bool:
        """Tell whether the samples that were found are on disk."""
        return self._is_past(question.barrier)

    def _content(self, writer: bytes, places: Sequence[_Place]) -> tuple[int, str] | None:
        """Return count and digest of a writer's samples in these groups; None for more than `MAX_COMPARED`.

        Two nodes with equal results have the same samples of the writer.
        """
        groups = [each for place in places for each in place.groups]
        if sum(group_set.count for _, group_set, _ in groups) > MAX_COMPARED:
            return None
        count = digest = 0
        for group, group_set, _ in groups:
            found = [one.digest for one in group_set.samples() if one.writer == writer]
            count += len(found)
            digest += sum(map(int.from_bytes, found)) * weight_of(group)
        return count, f"{digest & _MASK:032x}"

    def keeping(self, places: Sequence[_Place]) -> tuple[bool, bool]:
        """Tell whether these groups are persistent, and whether this node keeps them on disk."""
        described = [
            (description, data)
            for place in places
            for group, _, data in place.groups
            if (description := self._runtime.descriptions.get(group)) is not None
        ]
        is_persistent = any(one.qos.durability is DurabilityKind.PERSISTENT for one, _ in described)
        is_on_disk = bool(described) and all(data.is_on_disk(one) for one, data in described)
        return is_persistent, is_on_disk and self._has_disk

    def why_not_shared(self, places: Sequence[_Place]) -> str:
        """Return the reason why samples here do not reach other nodes; empty if they do."""
        for place in places:
            for state in [data.state for _, _, data in place.groups] or place.keepers:
                if not state.policy.aligner:
                    return f"it is no aligner of name-space '{state.name}'"
                if state.apart:
                    return (
                        f"a merge policy left its set of name-space '{state.name}' different from the others"
                    )
        return ""

    def forgotten_ns(self, places: Sequence[_Place]) -> int:
        """Return the source time up to which samples of these groups may have been here and been purged.

        That is the latest one of a purged instance, and the start of this run, of whose time before the node
        knows nothing; 0 if instances of the groups are never purged.
        """
        known = self._runtime.housekeeping.forgotten_ns
        descriptions = self._runtime.descriptions
        times = [
            max(known.get(group, 0), self._began_ns)
            for place in places
            for group, _, _ in place.groups
            if group in descriptions and descriptions[group].qos.cleanup_delay_ns != INFINITE
        ]
        return max(times, default=0)

    # The parts.

    def _is_past(self, barrier: int | None) -> bool:
        return barrier is not None and self._runtime.store_queue.carried_out >= barrier

    def _replaced_sets(self) -> int:
        """Return the number of replaced sets; forget the counts after a new one, which may lack samples."""
        now = {name: data.replaced for name, data in self._runtime.spaces.items()}
        if any(count != self._replaced.get(name, 0) for name, count in now.items()):
            self._tallies.clear()
        self._replaced = now
        return sum(now.values())

    def _in_place(self, name: SampleName, place: _Place) -> SampleVerdict:
        """Return the best verdict of the topic's types in a place: one type has the sample."""
        found = (self._in_group(name, *each) for each in place.groups)
        return max(found, default=SampleVerdict.MISSING)

    def _in_group(
        self, name: SampleName, group: Group, group_set: GroupSet, data: NameSpaceData
    ) -> SampleVerdict:
        description = self._runtime.descriptions.get(group)
        if description is None or not data.is_kept(description):
            return SampleVerdict.MISSING
        is_on_disk = self._has_disk and data.is_on_disk(description)
        here = SampleVerdict.STORED if is_on_disk else SampleVerdict.HELD
        if group_set.holds(name.key, name.source_time_ns, name.digest):
            return here
        if name.source_time_ns <= group_set.floor_ns:
            return SampleVerdict.DELETED
        asked = Sample(name.source_time_ns, name.writer, 0, name.digest, name.status, name.key, b"")
        if name.key in group_set and group_set.is_superseded(asked):
            return SampleVerdict.SUPERSEDED
        if group_set.limits.are_set and group_set.has_no_place(asked):
            return SampleVerdict.REFUSED
        return SampleVerdict.REFUSED if name.digest in self._refused else SampleVerdict.MISSING


def _must_keep(state: NameSpaceState, topic: str, partition: str) -> bool:
    return (
        state.keeps(Group(partition, topic))
        and state.policy.durability.value not in _NOT_KEPT
        and not state.policy.filtered  # a name does not show whether the sample passes the filter
        and any(
            matches(element.topic, topic) and intersection(element.partition, partition) is not None
            for element in state.name_space.elements
        )
    )
