"""The instances of a group: as objects, and packed if they are many."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Sequence
from typing import Final

from engine.dataset.blocks import MAX_SAMPLES, Block, pack_samples, pieces
from engine.dataset.histories import Histories
from engine.dataset.living import by_instance
from engine.dataset.packed import Packed
from engine.dataset.sample import DATA, Sample
from engine.dataset.sample_rows import Loose, SampleRows
from engine.dataset.segments import BLOCK_BYTES

MAX_LOOSE: Final = 16_384
"""Samples of a group kept as objects; of more, the longest untouched instances are packed."""
PACKED_FROM: Final = MAX_SAMPLES
"""Instances below which a group is not packed on arrival."""
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
        self._pack_at = MAX_LOOSE
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
            from engine.dataset.packed import Packed  # needs numpy, which takes a moment to load

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
        self._pack_at = held + max(MAX_LOOSE, self.count - held + _STEP // 4 + 1)

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

    def _take(self, key: bytes, places: slice) -> list[Sample]:
        """Take packed samples of an instance out."""
        taken = self._histories.take(key, places) if self._histories else []
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
        woven = several.parts(self._instances) if several else ()
        loose = [
            sample
            for key, history in self._instances.items()
            if several is None or key not in several
            for sample in history
        ]
        return SampleRows((*(self._packed.parts() if self._packed else ()), *woven, Loose(loose)))


def _is_packable(sample: Sample) -> bool:
    return sample.status == DATA and len(sample.payload) <= MAX_PACKED_BYTES
