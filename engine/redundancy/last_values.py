"""What an instance keeps: the last value of every DDS instance, with digests for the audit."""

from __future__ import annotations

import dataclasses

from engine.redundancy import audit
from engine.redundancy.messages import Sample


@dataclasses.dataclass(slots=True)
class Entry:
    """The last value of one DDS instance, and every writer that ever wrote it."""

    sample: Sample
    writers: frozenset[str]


class LastValues:
    """The last values.

    Attributes:
        entries: by DDS instance.
        changed: DDS instances that are different since somebody cleared this.
    """

    def __init__(self) -> None:
        self.entries: dict[bytes, Entry] = {}
        self.changed: set[bytes] = set()
        self._digests = audit.Digests()
        self._keys_of_part: list[set[bytes]] = [set() for _ in range(audit.PARTS)]

    def keep(self, sample: Sample) -> None:
        """This is the last value of its DDS instance from now on."""
        entry = self.entries.get(sample.key)
        self._digests.replace(sample.key, entry.sample.order if entry else None, sample.order)
        if entry is None:
            self._keys_of_part[audit.part_of(sample.key)].add(sample.key)
        self.entries[sample.key] = Entry(sample, entry.writers if entry else frozenset())
        self.changed.add(sample.key)

    def digests(self) -> tuple[int, ...]:
        """The digest of each part."""
        return self._digests.snapshot()

    def of_part(self, part: int) -> list[Entry]:
        """The last values of one part, in order of their DDS instances."""
        return [self.entries[key] for key in sorted(self._keys_of_part[part])]
