"""The contract of comparison engines: they find the instances that are not the same in all stores.

An instance is a key of a group. It is the same in two stores if its samples have the same digests.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol


class Row(NamedTuple):
    """A sample without its content; rows order as samples do."""

    source_time_ns: int
    writer: bytes
    sequence: int
    digest: bytes
    status: int


class InstanceDifference(NamedTuple):
    """An instance that is not the same in all stores. `rows` has what each store holds, in order."""

    code: int
    key: bytes
    rows: tuple[tuple[Row, ...], ...]


class Wanted(NamedTuple):
    """A sample whose content is wanted: the number of its store, its group and digest."""

    side: int
    code: int
    digest: bytes


class DiffError(Exception):
    """An engine failed; the text says why."""


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """The resources that an engine may use.

    Attributes:
        memory_bytes: approximate limit of memory; the rest goes to disk.
        threads: number of threads; 0 for one per processor.
    """

    memory_bytes: int = 1 << 30
    threads: int = 0


class DiffEngine(Protocol):
    """An engine that compares the sides it was made with."""

    def instances(self) -> Iterator[InstanceDifference]:
        """Yield the instances that differ, ordered by group number and key.

        Raises:
            DiffError: the engine failed.
        """
        ...

    def contents(self, wanted: Sequence[Wanted]) -> Mapping[Wanted, bytes]:
        """Return the payloads of samples.

        Raises:
            DiffError: the engine failed.
        """
        ...

    def close(self) -> None:
        """Close the engine."""
        ...
