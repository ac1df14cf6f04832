"""The numbers of groups, and counts of their content."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Final

from engine.dataset.sample import DATA, DISPOSE, Sample
from ospltool.stores.model import GroupName

MAX_COUNTED_KEYS: Final = 1_000_000
"""Instances of one group that are counted one by one; where there are more, the number is a lower bound."""
_NEVER: Final = 1 << 63


@functools.lru_cache(maxsize=65_536)
def group_code(name: GroupName) -> int:
    """Return the number of a group, which is equal in all stores for partition, topic and type name."""
    text = json.dumps(list(name)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), signed=True)


@dataclasses.dataclass(frozen=True, slots=True)
class GroupCount:
    """The content of a group in one set, in numbers."""

    set_number: int
    """Number of the set."""
    code: int
    """Number of the group, see `group_code`."""
    samples: int = 0
    """Samples that can be read."""
    instances: int = 0
    """Distinct keys among the samples."""
    damaged: int = 0
    """Records that cannot be read."""
    oldest_ns: int = 0
    """Oldest source timestamp; 0 without samples."""
    newest_ns: int = 0
    """Newest source timestamp; 0 without samples."""
    payload_bytes: int = 0
    """Size of all payloads."""
    disposed: int = 0
    """Samples that dispose their instance."""


class SampleTally:
    """Counts the samples of a group.

    Args:
        max_keys: number of instances to count exactly; 0 counts no instances.
    """

    def __init__(self, max_keys: int = MAX_COUNTED_KEYS) -> None:
        self._max_keys = max_keys
        self.samples = self.payload_bytes = self.disposed = self.newest_ns = 0
        self.oldest_ns = _NEVER
        self._keys: set[int] = set()

    def passing(self, samples: Iterable[Sample]) -> Iterator[Sample]:
        """Pass the samples on, and count them."""
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
        """Return the count so far as that of the group `code` of a set, with its number of damaged records.

        `set_number` is the number of the set.
        """
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
