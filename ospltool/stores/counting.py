"""Numbers of groups, and what a set holds of each."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from typing import TYPE_CHECKING, Final

from engine.dataset.sample import DATA, DISPOSE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from engine.dataset.sample import Sample
    from ospltool.stores.model import GroupName

MAX_COUNTED_KEYS: Final = 1_000_000
"""Instances of one group that are counted one by one; where there are more, the number is a lower bound."""
_NEVER: Final = 1 << 63


@functools.lru_cache(maxsize=65_536)
def group_code(name: GroupName) -> int:
    """The number of a group: the same for the same partition, topic and type name, in every store."""
    text = json.dumps(list(name)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), signed=True)


@dataclasses.dataclass(frozen=True, slots=True)
class GroupCount:
    """What is held of a group.

    Attributes:
        set_number: the set that the group is in.
        code: the group's number.
        samples: how many.
        instances: different keys among them.
        damaged: what could not be read of it.
        oldest_ns: oldest source timestamp, 0 without samples.
        newest_ns: newest source timestamp, 0 without samples.
        payload_bytes: of all samples.
        disposed: samples that dispose their instance.
    """

    set_number: int
    code: int
    samples: int = 0
    instances: int = 0
    damaged: int = 0
    oldest_ns: int = 0
    newest_ns: int = 0
    payload_bytes: int = 0
    disposed: int = 0


class Tally:
    """Counts the samples of a group as they pass.

    Args:
        max_keys: so many instances are counted one by one; with 0, none are.
    """

    def __init__(self, max_keys: int = MAX_COUNTED_KEYS) -> None:
        self._max_keys = max_keys
        self.samples = self.payload_bytes = self.disposed = self.newest_ns = 0
        self.oldest_ns = _NEVER
        self._keys: set[int] = set()

    def passing(self, samples: Iterable[Sample]) -> Iterator[Sample]:
        """The same samples, counted."""
        for sample in samples:
            self.samples += 1
            self.payload_bytes += len(sample.payload) if sample.status & DATA else 0
            self.disposed += bool(sample.status & DISPOSE)
            self.newest_ns = max(self.newest_ns, sample.source_time_ns)
            self.oldest_ns = min(self.oldest_ns, sample.source_time_ns)
            if len(self._keys) < self._max_keys:
                self._keys.add(hash(sample.key))
            yield sample

    def result(self, set_number: int, code: int, damaged: int) -> GroupCount:
        """The count so far."""
        return GroupCount(
            set_number,
            code,
            self.samples,
            len(self._keys),
            damaged,
            self.oldest_ns if self.samples else 0,
            self.newest_ns,
            self.payload_bytes,
            self.disposed,
        )
