"""The stores of a comparison, opened, with their sets chosen, and the contract of engines that compare them.

An engine finds the instances that are not the same in all stores. An instance is a key of a group. It is the
same in two stores if its samples have the same digests.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, Sample, make_sample
from engine.store.interface import DamageLog
from ospltool.output.text import plural
from ospltool.stores.describe import GroupCount, group_code
from ospltool.stores.model import GroupFacts, SetFacts, StoreFacts, StoreFormat, StoreReader, StoreUnreadable
from ospltool.stores.opening import open_reader
from ospltool.stores.types import Value

if TYPE_CHECKING:
    from ospltool.stores.snapshot import SnapshotStore


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


_NOBODY = bytes(16)


class ComparedPart(enum.Enum):
    """The part of the samples to compare."""

    ALL = "all"
    WITHOUT_UNREGISTERED = "unregistered"
    """Ignore samples that only unregister an instance: not every format keeps them."""
    DATA = "data"
    """Compare only time, key and content of writes and disposes, without writer and order."""


class Filtered:
    """A reader of a store that leaves samples out; see `ospltool.stores.model.StoreReader`."""

    def __init__(self, reader: StoreReader, left: ComparedPart) -> None:
        self._reader = reader
        self._left = left

    @property
    def facts(self) -> StoreFacts:
        """The facts of the store."""
        return self._reader.facts

    def read(self, number: int, damage: DamageLog) -> Iterator[tuple[GroupFacts, Iterator[Sample]]]:
        """Yield the samples of a set that are compared."""
        for group, samples in self._reader.read(number, damage):
            shown = dataclasses.replace(group, stored=None)
            yield shown, (one for sample in samples if (one := self._compared(sample)) is not None)

    def _compared(self, sample: Sample) -> Sample | None:
        if not sample.status & (DATA | DISPOSE):
            return None
        if self._left is not ComparedPart.DATA:
            return sample
        status = sample.status & ~UNREGISTER
        return make_sample(sample.source_time_ns, _NOBODY, status, sample.key, sample.payload)

    def decode(self, group: GroupFacts, sample: Sample) -> dict[str, Value] | None:
        """Return the fields of a sample."""
        return self._reader.decode(group, sample)

    def close(self) -> None:
        """Close the store."""
        self._reader.close()


MAX_SIDES: Final = 26
_CHOICE: Final = re.compile(r"(?P<path>.+)@(?P<sets>\d+(?:,\d+)*)")


@dataclasses.dataclass(frozen=True, slots=True)
class Side:
    """One store of a comparison."""

    label: str
    """A, B, C, ..."""
    given: str
    """The store as the user named it."""
    reader: StoreReader
    """The open store."""
    sets: tuple[SetFacts, ...]
    """The sets to compare."""
    groups: dict[int, GroupFacts]
    """Facts of each group, by its number."""
    name_spaces: dict[int, str]
    """Name-space of each group, by its number."""
    counts: dict[int, GroupCount]
    """Counts of each group, by its number."""
    snapshot: Path | None
    """Directory of its snapshot; None for an engine that reads the store itself and fills `counts`."""
    damage: DamageLog
    """Records that cannot be read."""
    lost: Mapping[tuple[int, int], int] = dataclasses.field(default_factory=dict)
    """Records that could not be read when the snapshot was made that the store is, by set and group."""
    ranges: Any = None
    """Digests of ranges of the snapshot (`ospltool.stores.snapshot.SnapshotStore.ranges`); None without."""

    @property
    def has_single_rows(self) -> bool:
        """Whether no counted instance has more than one sample."""
        return all(count.samples == count.instances for count in self.counts.values())

    @property
    def set_numbers(self) -> tuple[int, ...]:
        """The numbers of the sets."""
        return tuple(one.number for one in self.sets)


def chosen_sets(given: str) -> tuple[Path, tuple[int, ...]]:
    """Split `PATH` or `PATH@1,2` into the path and the numbers of sets."""
    path = Path(given)
    found = _CHOICE.fullmatch(given)
    if path.exists() or found is None:
        return path, ()
    return Path(found["path"]), tuple(int(number) for number in found["sets"].split(","))


def open_side(
    label: str,
    given: str,
    scratch: Path | None,
    *,
    contents: bool = False,
    left: ComparedPart = ComparedPart.ALL,
) -> Side:
    """Open a store and choose its sets.

    Args:
        label: its label in the comparison.
        given: `PATH` or `PATH@1,2`.
        scratch: directory for its snapshot, unless it is one; None makes no snapshot.
        contents: the engine will need payloads.
        left: the part of the samples to compare.

    Raises:
        StoreUnreadable: it cannot be opened, has no such set, or its sets overlap.
    """
    path, numbers = chosen_sets(given)
    reader = open_reader(path)
    damage, lost = DamageLog(), {}
    if (made := _snapshot_of(reader)) is not None:
        lost = {(one.set_number, one.code): one.damaged for one in made.counts if one.damaged}
        if made.damage:
            damage.add(given, f"{plural(made.damage, 'sample')} could not be read when the snapshot was made")
    if left is not ComparedPart.ALL:
        reader = Filtered(reader, left)
    try:
        facts = reader.facts
        sets = tuple(map(facts.set_of, numbers)) if numbers else facts.current()
        groups = {group_code(group.name): group for one in sets for group in one.groups}
        spaces = {group_code(group.name): one.name_space for one in sets for group in one.groups}
        if sum(len(one.groups) for one in sets) != len(groups):
            raise StoreUnreadable(
                f"{given}: one group is in several of the sets; choose one with PATH@NUMBER"
            )
        side = Side(label, given, reader, sets, groups, spaces, {}, None, damage, lost)
        return side if scratch is None else _spooled(side, path, scratch, contents=contents)
    except BaseException:
        reader.close()
        raise


def _snapshot_of(reader: StoreReader) -> SnapshotStore | None:
    """Return the reader of a snapshot, whole; None for that of anything else."""
    if reader.facts.format is not StoreFormat.SNAPSHOT:
        return None
    from ospltool.stores.snapshot import SnapshotStore  # it needs pyarrow

    return reader if isinstance(reader, SnapshotStore) else None


def _spooled(side: Side, path: Path, scratch: Path, *, contents: bool) -> Side:
    from ospltool.stores import snapshot  # it needs pyarrow

    given = _snapshot_of(side.reader)
    ranges = None
    if given and given.is_sealed():
        directory, counted, ranges = path, given.counts, given.ranges()
    else:  # a snapshot that is not what was written is verified sample by sample
        directory = scratch / side.label
        form = snapshot.COMPARED_BY_FIELDS if contents else snapshot.COMPARED
        counted = tuple(
            dataclasses.replace(one, damaged=one.damaged + side.lost.get((one.set_number, one.code), 0))
            for one in snapshot.write_snapshot(side.reader, directory, side.sets, side.damage, form).groups
        )
    side.counts.update((count.code, count) for count in counted if count.set_number in side.set_numbers)
    return dataclasses.replace(side, snapshot=directory, ranges=ranges)
