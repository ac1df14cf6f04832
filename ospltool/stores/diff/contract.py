"""What every engine answers: which instances are not the same everywhere, and what each store has of them.

An instance is a key of a group. Two stores have the same of it when their samples have the same digests.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class Row(NamedTuple):
    """A sample without its content; rows order as samples do."""

    source_time_ns: int
    writer: bytes
    sequence: int
    digest: bytes
    status: int


class Instance(NamedTuple):
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
    """An engine could not do it; the text says why."""


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """What an engine may take.

    Attributes:
        memory_bytes: about how much memory; what does not fit goes to `scratch`.
        threads: how many threads, 0 for as many as there are processors.
    """

    memory_bytes: int = 1 << 30
    threads: int = 0


class DiffEngine(Protocol):
    """Compares the sides it was made with."""

    def instances(self) -> Iterator[Instance]:
        """The instances that differ, ordered by group number and key.

        Raises:
            DiffError: the engine failed.
        """
        ...

    def contents(self, wanted: Sequence[Wanted]) -> Mapping[Wanted, bytes]:
        """The payloads of samples.

        Raises:
            DiffError: the engine failed.
        """
        ...

    def close(self) -> None:
        """Give back what the engine holds."""
        ...
