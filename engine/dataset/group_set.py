"""The samples of one group, with an incremental digest.

A group may have a million instances, and an object for each sample would take several times the memory of
its bytes. So the samples of a group are in one of three places, and `Instances` is the only one that knows
which:

- As objects: the instances that were touched last. A sample that arrives, and one that a lookup changes, is
  always an object first. Beyond `MAX_OBJECTS` samples those that have rested longest are packed.
- In `Packed`: instances with a single write, which is what most instances have.
- In `Histories`: the older writes of instances that have several, so that a newer sample leaves these packed.

What is packed, and when, depends on counts alone, never on time or memory, so that a run can be repeated.
`GroupSet` decides which samples are kept, and adds up their digests.
"""

from __future__ import annotations

import bisect
import collections
import enum
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from engine.dataset.blocks import MAX_SAMPLES, Block, pack, pack_samples, pieces
from engine.dataset.groups import NO_LIMITS, GroupLimits, loosest
from engine.dataset.living import by_instance
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, UNTIMED, Sample, retained
from engine.dataset.sample_rows import (
    BLOCK_BYTES,
    Histories,
    MaskedBlock,
    ObjectRows,
    Packed,
    SampleRows,
)
from engine.dataset.settling import WIDTH_NS, Content, Recent, SettlingClock

if TYPE_CHECKING:
    pass
else:
    pass


MODULUS_MASK: Final = (1 << 128) - 1
TIMELESS: Final = SettlingClock()
"""Clock of sets that are not compared while they change."""

NO_FLOOR: Final = -(1 << 63)
"""Floor of a set of which nothing has been deleted."""


class ApplyOutcome(enum.Enum):
    """Result of applying a sample."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    OLDER = "older than what the history depth keeps"
    LIMITED = "beyond a resource limit"


class Summary(msgspec.Struct, frozen=True):
    """Count and digest of a set; two sets with equal count and digest are equal.

    The `digest` of a group is the sum of its samples' digests modulo 2**128; that of a name-space is the sum
    of its groups' digests, each multiplied by the weight of the group (`dataset.weight_of`). `newest_ns` is
    the newest source time that the set ever had, deleted samples included; 0 for none.
    """

    count: int
    digest: int
    newest_ns: int

    def same_content(self, other: Summary) -> bool:
        """Whether both sets hold the same samples."""
        return self.count == other.count and self.digest == other.digest


EMPTY: Final = Summary(0, 0, 0)
# The same for untimed ones: clearing costs as much as what was added since.
_MAX_GONE: Final = 1_000
"""Samples without source timestamp, beyond twice the number of samples, that are remembered when gone."""


def _identity(sample: Sample) -> tuple[bytes, bytes, int]:
    """Return what is the same for a sample without source timestamp, whichever node received it."""
    return sample.key, sample.writer, sample.sequence


# An object takes some hundred bytes more than its place in a block: 16,384 are a few megabytes for each
# group.
MAX_OBJECTS: Final = 16_384
"""Samples of a group kept as objects; of more, the longest untouched instances are packed."""
PACKED_FROM: Final = MAX_SAMPLES
"""Instances below which a group is not packed on arrival."""
# The head of a block, and its writers, cost what some tens of samples save. Chosen.
MIN_PACKED: Final = 256
"""Samples below which a block does not pay."""
MAX_PACKED_BYTES: Final = 4_096
"""Payload above which a sample stays an object, whose overhead is then small."""
_STEP: Final = MAX_SAMPLES
"""Objects examined for packing in one go: a few milliseconds."""


class Instances:
    """The samples of a group by instance.

    Packing saves memory and changes nothing else. Of an instance that lies in `_histories`, all samples in
    `_instances` are newer.

    Attributes:
        count: number of samples.
    """

    __slots__ = ("_histories", "_instances", "_pack_at", "_packed", "count")

    def __init__(self) -> None:
        self.count = 0
        self._instances: dict[bytes, list[Sample]] = {}
        """What is not packed, the longest untouched instances first."""
        self._packed: Packed | None = None
        """Instances with a single write."""
        self._histories: Histories | None = None
        """Older writes of the others."""
        self._pack_at = MAX_OBJECTS
        """Number of samples, packed or not, at which some are packed."""

    # Packing.

    def _pack_block(self, block: Block) -> bool:
        """Keep a block as it is; False unless its samples are the first of as many instances, and many."""
        if not block.is_plain or block.count < MIN_PACKED:
            return False
        if not self._packed and len(self._instances) + block.count < PACKED_FROM:
            return False
        known = [rows.keys() for rows in (self._instances, self._histories and self._histories.rows) if rows]
        if known and not all(map(frozenset(block.keys()).isdisjoint, known)):
            return False
        if not self._open_packed().add(block):
            return False
        self._pack_at += block.count
        return True

    def _pack_histories(self, block: Block, depth: int) -> bool:
        """Keep a block as it is; False unless it continues histories, with many samples."""
        if not block.is_plain or block.count < MIN_PACKED or self.count + block.count < PACKED_FROM:
            return False
        if block.has_sequences:  # one of them may be here with the time of another node
            return False
        histories = self._histories or Histories()
        places = histories.places_of(block, self._instances, depth)
        older = [sample for key in places for sample in self._instances.get(key, ())]
        if not places or not all(map(_is_packable, older)):
            return False
        if self._packed and any(self._packed.find(key) >= 0 for key in places):
            return False
        if histories.room < block.count + len(older):  # however few samples each block gets
            return False
        if 0 < len(older) < MIN_PACKED:
            histories.add(by_instance([*older, *block.samples()]))
        else:
            histories.add(older)
            histories.extend(block, places)
        for key in places if older else ():
            self._instances.pop(key, None)
        self._histories = histories
        self._pack_at += block.count + len(older)
        return True

    def _open_packed(self) -> Packed:
        if self._packed is None:
            self._packed = Packed()
        return self._packed

    def _pack_surplus(self) -> None:
        while self.count >= self._pack_at:
            self._pack_oldest()

    def _pack_oldest(self) -> None:
        """Pack the longest untouched objects; what cannot be packed goes to the end of the queue."""
        oldest: list[tuple[bytes, list[Sample]]] = []
        single: list[Sample] = []
        several: list[Sample] = []
        known = self._histories.rows if self._histories else {}
        for key, history in itertools.islice(self._instances.items(), _STEP):
            room = _STEP - len(single) - len(several)
            if not room:
                break
            oldest.append((key, history))
            if len(history) > 1 or key in known:
                several += itertools.takewhile(_is_packable, history[:room])
            elif _is_packable(history[0]):
                single.append(history[0])
        packed: dict[bytes, int] = {}
        for piece in pieces(single, BLOCK_BYTES) if len(single) >= MIN_PACKED else ():
            if self._open_packed().add(pack_samples(piece)):
                packed |= dict.fromkeys([sample.key for sample in piece], 1)
        if len(several) >= MIN_PACKED:
            self._histories = self._histories or Histories()
            if self._histories.add(several):
                packed |= collections.Counter([sample.key for sample in several])
        for key, history in oldest:
            del self._instances[key]
            count = packed.get(key, 0)
            if count < len(history):
                self._instances[key] = history[count:]
        held = sum([part.count for part in (self._packed, self._histories) if part])
        self._pack_at = held + max(MAX_OBJECTS, self.count - held + _STEP // 4 + 1)

    def _unpack(self, slot: int, known: Sample) -> list[Sample]:
        """Make a packed instance an object; return its history."""
        assert self._packed is not None
        others = self._packed.remove(slot)
        for sample in others:
            self._instances[sample.key] = [sample]
        self._pack_at -= 1 + len(others)
        if not self._packed.count:
            self._packed = None
        history = self._instances[known.key] = [known]
        return history

    def _unpack_key(self, key: bytes) -> None:
        slot = self._packed.find(key) if self._packed else -1
        if self._packed and slot >= 0:
            self._unpack(slot, self._packed.sample(slot))

    def _pop_packed(self, key: bytes, places: slice) -> list[Sample]:
        """Remove packed samples of an instance, and return them."""
        taken = self._histories.pop_writes(key, places) if self._histories else []
        self._took(len(taken))
        return taken

    def _took(self, count: int) -> None:
        self._pack_at -= count
        if self._histories and not self._histories.count:
            self._histories = None

    # Looks.

    def instance(self, key: bytes) -> tuple[Sample, ...]:
        """Return the samples of one instance, oldest first."""
        history = self._instances.get(key, ())
        if self._histories and key in self._histories:
            return (*self._histories.samples(key), *history)
        if not history and self._packed and (slot := self._packed.find(key)) >= 0:
            return (self._packed.sample(slot),)
        return tuple(history)

    def writers(self, key: bytes) -> dict[bytes, int]:
        """Return the writers of the samples of an instance, each with the status of its newest one."""
        if self._histories and key in self._histories:
            older = self._histories.writers(key)
            return older | {sample.writer: sample.status for sample in self._instances.get(key, ())}
        return {sample.writer: sample.status for sample in self.instance(key)}

    def holds(self, key: bytes, time_ns: int, digest: bytes) -> bool:
        """Whether an instance has a sample with this source time and digest."""
        history: Sequence[Sample] = self._instances.get(key, ())
        if self._histories and key in self._histories:
            packed = self._histories.samples(key, self._histories.places(key, time_ns))
            history = (*packed, *history)
        elif not history:
            history = self.instance(key)
        return any(sample.digest == digest for sample in history)

    def __contains__(self, key: bytes) -> bool:
        return (
            key in self._instances
            or (self._packed is not None and self._packed.find(key) >= 0)
            or (self._histories is not None and key in self._histories)
        )

    def keys(self) -> list[bytes]:
        """Return the keys of the instances, in order."""
        several = self._histories.rows if self._histories else {}
        return sorted([*(self._instances.keys() | several), *(self._packed.keys() if self._packed else ())])

    @property
    def instance_count(self) -> int:
        """Number of instances with at least one sample."""
        several = self._histories.rows if self._histories else {}
        in_part = sum([key in several for key in self._instances]) if several else 0
        return len(self._instances) + len(several) - in_part + (self._packed.count if self._packed else 0)

    def samples(self) -> SampleRows:
        """Return the present samples, those of each instance oldest first; instances in any order."""
        several = self._histories
        gathered = several.parts(self._instances) if several else ()
        objects = [
            sample
            for key, history in self._instances.items()
            if several is None or key not in several
            for sample in history
        ]
        return SampleRows((*(self._packed.parts() if self._packed else ()), *gathered, ObjectRows(objects)))


def _is_packable(sample: Sample) -> bool:
    return sample.status == DATA and len(sample.payload) <= MAX_PACKED_BYTES


class GroupSet(Instances):
    """The samples of one group that are kept, with their sums."""

    __slots__ = (
        "_digest",
        "_newest_ns",
        "_recent",
        "_untimed",
        "depth",
        "disposed",
        "floor_ns",
        "limits",
        "lost",
        "payload_bytes",
        "rejected",
        "touched",
    )

    def __init__(self, depth: int, present: SettlingClock | None = None) -> None:
        super().__init__()
        self.depth = depth
        """Samples kept per instance (`engine.dataset.sample`)."""
        self.limits = NO_LIMITS
        """Resource limits; a group with limits is an `engine.dataset.dataset.LimitedSet`."""
        self.rejected: collections.Counter[str] = collections.Counter()
        """Samples that a resource limit kept out or pushed out, by the name of the limit."""
        self._recent = Recent(present or TIMELESS)
        self.floor_ns = NO_FLOOR
        """Source time up to which samples were deleted and are not taken again."""
        self.disposed: set[bytes] = set()
        """Keys of the instances that end with a dispose."""
        self.touched: set[bytes] = set()
        """Those of them that have changed since the set was last cleared."""
        self.payload_bytes = 0
        """Bytes of all payloads."""
        self.lost = 0
        """Captured samples that were too old to be kept because of a wrong clock; see `came_late`."""
        self._digest = 0
        self._newest_ns = 0
        self._untimed: dict[tuple[bytes, bytes, int], int] | None = None
        """Times of the samples without source timestamp, and of some that are gone, by their identity."""

    def loosen(self, depth: int, limits: GroupLimits) -> None:
        """Keep at least what this history depth and these limits leave; what is gone does not come back."""
        assert not self.limits.are_set, "a set with limits says itself what they leave"
        self.depth = loosest(self.depth, depth)

    def apply(self, sample: Sample) -> tuple[ApplyOutcome, list[Sample]]:
        """Put one sample into the set; return the outcome and the samples that it pushed out.

        Which samples are kept depends only on those that ever arrived (`engine.dataset.sample`).
        """
        # Deleted historical data stays deleted (guide, 5.5.18 d_deleteData).
        if sample.source_time_ns <= self.floor_ns:
            return ApplyOutcome.OLDER, []
        if sample.sequence & UNTIMED and (twin := self._twin(sample)) is not None:
            if twin.source_time_ns <= sample.source_time_ns:
                return ApplyOutcome.DUPLICATE, []
            self._redate(twin, sample)
            return ApplyOutcome.STORED, [twin]
        # Find the instance: an object, packed, or new (DDS 1.4, 2.2.2.5 Access to the data).
        history = self._instances.get(sample.key)
        if history is None:
            if self._histories and sample.key in self._histories:
                return self._continue(sample)
            packed = self._packed
            slot = packed.find(sample.key) if packed else -1
            if packed is None or slot < 0:
                self._instances[sample.key] = [sample]
                if sample.status & DISPOSE:
                    self._end(sample.key)
                self._count_in(sample)
                return ApplyOutcome.STORED, []
            # Packed, with a single write: an equal or older sample leaves it packed.
            if packed.digest(slot) == sample.digest:
                return ApplyOutcome.DUPLICATE, []
            known = packed.sample(slot)
            if self.depth == 1 and sample.status == DATA and sample < known:
                return ApplyOutcome.OLDER, []
            history = self._unpack(slot, known)
        # The newest write of its instance, as nearly every sample is: with KEEP_LAST 1 it replaces the last
        # one, with KEEP_ALL it is added (DDS 1.4, 2.2.3.5 DURABILITY_SERVICE, 2.2.3.18 HISTORY).
        if sample.status == DATA and sample > history[-1]:
            known = history[0]
            if self.depth == 1 and len(history) == 1 and known.status == DATA:
                history[0] = sample
                gone = [known]
                self._count_in(sample, gone)
                return ApplyOutcome.STORED, gone
            if not self.depth:
                history.append(sample)
                self._revive(sample.key)
                self._count_in(sample)
                return ApplyOutcome.STORED, []
            if self.depth > 1 and (pushed := self._append(history, sample)) is not None:
                return ApplyOutcome.STORED, pushed
        # Any other: by the general rule, at its place by source timestamp (DDS 1.4, 2.2.3.17).
        return self._insert(history, sample)

    def _twin(self, sample: Sample) -> Sample | None:
        """Return the sample that is this one as another node received it; each node has its own time."""
        if self._untimed is None or len(self._untimed) > 2 * self.count + _MAX_GONE:
            self._untimed = {
                _identity(one): one.source_time_ns for one in self.samples() if one.sequence & UNTIMED
            }
        identity = _identity(sample)
        known_ns = self._untimed.get(identity)
        self._untimed[identity] = (
            sample.source_time_ns if known_ns is None else min(known_ns, sample.source_time_ns)
        )
        if known_ns is None:
            return None
        # Of a long history the objects are the newest, which is where a copy from another node is found.
        objects = self._instances.get(sample.key, [])
        at = bisect.bisect_left(objects, (known_ns, sample.writer, sample.sequence))
        if at < len(objects) and _identity(objects[at]) == identity:
            return objects[at]
        return next((one for one in self.instance(sample.key) if _identity(one) == identity), None)

    def _redate(self, twin: Sample, sample: Sample) -> None:
        """Put a sample into the place of the same one with a later time."""
        key = sample.key
        self._unpack_key(key)
        history = self._instances.get(key, [])
        if self._histories and key in self._histories:
            history = [*self._pop_packed(key, slice(self._histories.place(sample), None)), *history]
        history.remove(twin)
        bisect.insort(history, sample)
        self._instances[key] = history
        self._note_end(key, history)
        self._count_in(sample, [twin])

    def _continue(self, sample: Sample) -> tuple[ApplyOutcome, list[Sample]]:
        """Apply a sample to an instance all of which is packed."""
        assert self._histories is not None
        if sample.status == DATA and sample[:2] > self._histories.newest(sample.key):
            pushed = self._append([], sample)
            if pushed is not None:
                return ApplyOutcome.STORED, pushed
        return self._insert([], sample)

    def _append(self, history: list[Sample], sample: Sample) -> list[Sample] | None:
        """Add the newest write of an instance; return what it pushed out.

        Return None, and do nothing, if the general rule must decide. `history` is what is not packed.
        """
        pushed: list[Sample] = []
        several = self._histories
        packed = several.length(sample.key) if several else 0
        if self.depth and packed + len(history) >= self.depth:
            for item in history:
                if item.status != DATA:
                    return None
            if several and packed:
                pushed = [several.pop(sample.key)]
                self._took(1)
            else:
                pushed = [history.pop(0)]
        history.append(sample)
        self._instances[sample.key] = history
        self._revive(sample.key)
        self._count_in(sample, pushed)
        return pushed

    def renew(self, samples: Sequence[Sample]) -> list[list[Sample]]:
        """Apply writes that are each the newest of their instance, with depth 1; return what each pushed out.

        Args:
            samples: plain writes above the floor, one per instance (see `is_newest`).
        """
        instances = self._instances
        came: list[Sample] = []
        gone: list[list[Sample]] = []
        pushed: list[list[Sample]] = []
        nothing: list[Sample] = []  # one for all: many of them may wait for the disk
        for sample in samples:
            history = instances.get(sample.key)
            if history is None:
                packed = self._packed
                slot = packed.find(sample.key) if packed else -1
                history = self._unpack(slot, packed.sample(slot)) if packed and slot >= 0 else nothing
            if not history or (len(history) == 1 and history[0].status == DATA):
                instances[sample.key] = [sample]
                came.append(sample)
                gone.append(history)
                pushed.append(history)
            else:
                pushed.append(self.apply(sample)[1])
        self._count_swapped(came, gone)
        self._pack_surplus()
        return pushed

    def extend(self, samples: SampleRows | Sequence[Sample]) -> None:
        """Apply many samples; fast if each is the first of its instance, as in an arriving set."""
        self._untimed = None
        for part in SampleRows.coerce(samples).parts:
            block = pack(part.columns()) if isinstance(part, MaskedBlock) else part
            if not isinstance(block, Block) or not self._add_block(block):
                self._extend(part.samples())

    def _extend(self, samples: list[Sample]) -> None:
        keys = {sample.key for sample in samples}
        if (
            self._packed
            or self._histories
            or len(keys) < len(samples)
            or not self._instances.keys().isdisjoint(keys)
            or min([sample.source_time_ns for sample in samples]) <= self.floor_ns
        ):
            for sample in samples:
                self.apply(sample)
            return
        self._instances.update([(sample.key, [sample]) for sample in samples])
        for sample in samples:
            if sample.status & DISPOSE:
                self._end(sample.key)
        self._count_in_rows(SampleRows((ObjectRows(samples),)))
        self._pack_surplus()

    def _add_block(self, block: Block) -> bool:
        """Keep a block as it is; False if its samples must be applied one by one."""
        if block.span_ns()[0] <= self.floor_ns:
            return False
        if not self._pack_block(block) and not self._pack_histories(block, self.depth):
            return False
        self._count_in_rows(SampleRows((block,)))
        return True

    def came_late(self, sample: Sample, wall_ns: int) -> None:
        """Count a captured sample that is too old to be kept as lost if a clock, or the way, was to blame.

        Nothing is lost if its own writer has replaced it, or another one whose clock is right. `wall_ns` is
        the present of this node's clock.
        """
        present = self._recent.present
        if present.is_right(sample.writer, max(self.floor_ns, self._newest_ns), wall_ns):
            return  # as nearly always, and without a look at the instance
        newer = [item for item in self.instance(sample.key) if item > sample]
        newest_ns = max([self.floor_ns, *(item.source_time_ns for item in newer)])
        if not present.is_right(sample.writer, newest_ns, wall_ns):
            self.lost += all(item.writer != sample.writer for item in newer)

    @property
    def is_renewable(self) -> bool:
        """Whether `renew` may be used, because only the newest write of an instance is kept."""
        return self.depth == 1

    def has_no_place(self, sample: Sample) -> bool:
        """Whether the floor or the kept samples leave no place for this one."""
        return sample.source_time_ns <= self.floor_ns or self.is_superseded(sample)

    def is_superseded(self, sample: Sample) -> bool:
        """Whether kept samples of its instance leave no place for this one."""
        history = self.instance(sample.key)
        return sample not in history and sample not in retained(sorted((*history, sample)), self.depth)

    @property
    def has_kept_out(self) -> bool:
        """Whether a limit has kept out samples in favour of other instances."""
        return bool(self.rejected.keys() & {"max_samples", "max_instances"})

    def is_newest(self, key: bytes, source_time_ns: int, writer: bytes) -> bool:
        """Whether a plain write at that time is newer than all samples of the instance.

        With depth 1 it is then the only one that stays.
        """
        if source_time_ns <= self.floor_ns:
            return False
        history = self._instances.get(key)
        if history:
            last: tuple[int, bytes] | None = history[-1][:2]
        elif self._histories and key in self._histories:
            last = self._histories.newest(key)
        else:
            last = self._packed.newest(key) if self._packed else None
        if last is None:
            return True
        return (source_time_ns, writer) > last

    def _insert(self, history: list[Sample], sample: Sample) -> tuple[ApplyOutcome, list[Sample]]:
        """Apply a sample by the general rule; `history` is what is not packed of its instance."""
        key, packed = sample.key, self._histories
        if packed and key in packed and not (history and history[0] <= sample):
            place, length = packed.place(sample), packed.length(key)
            if place < length and packed.samples(key, slice(place, place + 1))[0].digest == sample.digest:
                return ApplyOutcome.DUPLICATE, []
            if not place and length == self.depth:
                return ApplyOutcome.OLDER, []
            if place < length:
                history = self._instances[key] = [*self._pop_packed(key, slice(place, None)), *history]
        position = bisect.bisect_left(history, sample)
        if position < len(history) and history[position].digest == sample.digest:
            return ApplyOutcome.DUPLICATE, []
        candidate = [*history[:position], sample, *history[position:]]
        kept = retained(candidate, self.depth)
        kept_digests = {item.digest for item in kept}
        if sample.digest not in kept_digests:
            return ApplyOutcome.OLDER, []
        evicted = [item for item in history if item.digest not in kept_digests]
        if self.depth and self._histories and key in self._histories:
            # What is packed are the oldest writes, so the rule for the rest does not depend on them.
            writes = self._histories.length(key) + sum(1 for item in kept if item.status & DATA)
            evicted = [*self._pop_packed(key, slice(max(0, writes - self.depth))), *evicted]
        self._instances[key] = kept
        self._note_end(key, kept)
        self._count_in(sample, evicted)
        return ApplyOutcome.STORED, evicted

    def _note_end(self, key: bytes, history: list[Sample]) -> None:
        """Update `disposed`; unregisters after a dispose do not make an instance alive again."""
        last = next((item for item in reversed(history) if item.status != UNREGISTER), None)
        if last is not None and last.status & DISPOSE:
            self._end(key)
        else:
            self._revive(key)

    def _end(self, key: bytes) -> None:
        """Note that an instance ends with a dispose and has changed."""
        self.disposed.add(key)
        self.touched.add(key)

    def _revive(self, key: bytes) -> None:
        """Note that an instance does not end with a dispose, or is gone."""
        self.disposed.discard(key)
        self.touched.discard(key)

    def raise_floor(self, until_ns: int) -> list[Sample]:
        """Delete the samples up to a source time permanently; return them (deployment guide 5.5.18)."""
        if until_ns <= self.floor_ns:
            return []
        self.floor_ns = until_ns
        for key in self._packed.until(until_ns) if self._packed else ():
            self._unpack_key(key)
        removed: list[Sample] = []
        for key in self._histories.until(until_ns) if self._histories else ():
            assert self._histories is not None
            removed += self._pop_packed(key, slice(self._histories.places(key, until_ns).stop))
        for key, history in list(self._instances.items()):
            old = [sample for sample in history if sample.source_time_ns <= until_ns]
            if not old:
                continue
            removed += old
            history[:] = history[len(old) :]
            self._note_end(key, history)
            if not history:
                del self._instances[key]
        self._count_out_rows(SampleRows((ObjectRows(removed),)))
        return removed

    def remove_instance(self, key: bytes) -> list[Sample]:
        """Forget an instance; return its samples."""
        self._unpack_key(key)
        removed = [*self._pop_packed(key, slice(None)), *self._instances.pop(key, [])]
        self._revive(key)
        self._count_out_rows(SampleRows((ObjectRows(removed),)))
        return removed

    def _count_in(self, sample: Sample, gone: Sequence[Sample] = ()) -> None:
        """Count a sample in, and those that it pushed out."""
        count, size, digest = 1, len(sample.payload), int.from_bytes(sample.digest)
        if gone:
            count -= len(gone)
            for item in gone:
                size -= len(item.payload)
                digest -= int.from_bytes(item.digest)
        self.count += count
        self.payload_bytes += size
        self._digest = (self._digest + digest) & MODULUS_MASK
        time_ns = sample.source_time_ns
        if time_ns > self._newest_ns:
            self._newest_ns = time_ns
        self._recent.add(time_ns, sample.writer, count, digest)
        if self.count >= self._pack_at:
            self._pack_oldest()

    def _count_swapped(self, came: list[Sample], gone: list[list[Sample]]) -> None:
        """Count samples in, each with those at its place in `gone` that it pushed out."""
        if not came:
            return
        present = self._recent.present
        if len(came) == 1 and not present.skews:
            self._count_in(came[0], gone[0])
            return
        rows = SampleRows((ObjectRows(came),))
        first, last = min(rows.parts[0].times_ns()), rows.newest_ns()
        if last >= present.kept_ns and (first // WIDTH_NS < last // WIDTH_NS or present.skews):
            for sample, pushed in zip(came, gone, strict=True):
                self._count_in(sample, pushed)
            return
        count, digest = self._count(
            rows, SampleRows((ObjectRows([sample for pushed in gone for sample in pushed]),))
        )
        self._newest_ns = max(self._newest_ns, last)
        self._recent.add(last, b"", count, digest)

    def _count_in_rows(self, rows: SampleRows) -> None:
        """Count in samples that came in bulk, as in an arriving set."""
        newest_ns = rows.newest_ns()
        self._newest_ns = max(self._newest_ns, newest_ns)
        count, digest = self._count(rows, SampleRows())
        if newest_ns >= self._recent.present.kept_ns:
            self._recent.add_now(count, digest)

    def _count_out_rows(self, rows: SampleRows) -> None:
        """Count out samples that no other sample pushed out."""
        if rows:
            self._recent.add_now(*self._count(SampleRows(), rows))

    def _count(self, came: SampleRows, gone: SampleRows) -> tuple[int, int]:
        """Update the sums; return by how much count and digest changed."""
        count, digest = len(came) - len(gone), came.digest_sum() - gone.digest_sum()
        self.count += count
        self.payload_bytes += came.payload_bytes - gone.payload_bytes
        assert self.count >= 0, "what goes was here"
        assert self.payload_bytes >= 0, "as were its bytes"
        self._digest = (self._digest + digest) & MODULUS_MASK
        return count, digest

    def summary(self) -> Summary:
        """Return count, digest and newest source time, in constant time."""
        return Summary(self.count, self._digest, self._newest_ns)

    def content(self) -> tuple[int, int, int]:
        """Return what `summary` has, without an object of its own."""
        return self.count, self._digest, self._newest_ns

    def settled(self, until_ns: int) -> Content:
        """Return the content without changes dated from `until_ns` on (`engine.dataset.settling`)."""
        count, digest = self._recent.since(until_ns)
        return self.count - count, (self._digest - digest) & MODULUS_MASK

    def settle_with(self, present: SettlingClock) -> None:
        """Date changes by this present from now on, and forget those that are not recent any more."""
        self._recent.present = present
        self._recent.forget()
