"""The stores of a comparison: opened, with their sets chosen, and each as a snapshot that SQL can read."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, Sample, make_sample
from engine.store.interface import DamageLog
from ospltool.output.text import plural
from ospltool.stores.describe import GroupCount, group_code
from ospltool.stores.model import (
    SAMPLES_FILE,
    GroupFacts,
    SetFacts,
    StoreFacts,
    StoreReader,
    StoreUnreadable,
)
from ospltool.stores.opening import open_reader
from ospltool.stores.types import Value


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
    """The stores cannot be compared; the text says why."""


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


# Sides are named A to Z.
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
    counts: dict[int, GroupCount] = dataclasses.field(default_factory=dict)
    """Counts of each group, by its number."""
    samples_path: Path = Path()
    """The samples of its snapshot, as Parquet."""
    damage: DamageLog = dataclasses.field(default_factory=DamageLog)
    """Records that cannot be read."""
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
    scratch: Path,
    *,
    contents: bool = False,
    left: ComparedPart = ComparedPart.ALL,
) -> Side:
    """Open a store and choose its sets.

    Args:
        label: its label in the comparison.
        given: `PATH` or `PATH@1,2`.
        scratch: directory for its snapshot, unless it is one.
        contents: payloads will be wanted.
        left: the part of the samples to compare.

    Raises:
        StoreUnreadable: it cannot be opened, has no such set, or its sets overlap.
    """
    path, numbers = chosen_sets(given)
    reader = whole = open_reader(path)
    try:
        if left is not ComparedPart.ALL:
            reader = Filtered(reader, left)
        sets = tuple(map(reader.facts.set_of, numbers)) if numbers else reader.facts.current()
        groups = {group_code(group.name): group for one in sets for group in one.groups}
        spaces = {group_code(group.name): one.name_space for one in sets for group in one.groups}
        if sum(len(one.groups) for one in sets) != len(groups):
            raise StoreUnreadable(
                f"{given}: one group is in several of the sets; choose one with PATH@NUMBER"
            )
        return _with_snapshot(
            Side(label, given, reader, sets, groups, spaces), whole, scratch, contents=contents
        )
    except BaseException:
        reader.close()
        raise


def _with_snapshot(side: Side, whole: StoreReader, scratch: Path, *, contents: bool) -> Side:
    """Complete a side whose unfiltered reader is `whole`."""
    from ospltool.stores import snapshot  # it needs pyarrow

    damage, lost = DamageLog(), {}
    given = whole if isinstance(whole, snapshot.SnapshotStore) else None
    if given is not None:
        lost = {(one.set_number, one.code): one.damaged for one in given.counts if one.damaged}
        if given.damage:
            what = plural(given.damage, "sample")
            damage.add(side.given, f"{what} could not be read when the snapshot was made")
    if given is not None and side.reader is given and given.is_sealed():
        path, counted, ranges = given.samples_path, given.counts, given.ranges()
    else:  # a snapshot that is not what was written is verified sample by sample
        form = snapshot.COMPARED_BY_FIELDS if contents else snapshot.COMPARED
        made = snapshot.write_snapshot(side.reader, scratch / side.label, side.sets, damage, form)
        path, ranges = scratch / side.label / SAMPLES_FILE, None
        counted = tuple(
            dataclasses.replace(one, damaged=one.damaged + lost.get((one.set_number, one.code), 0))
            for one in made.groups
        )
    counts = {count.code: count for count in counted if count.set_number in side.set_numbers}
    return dataclasses.replace(side, counts=counts, samples_path=path, damage=damage, ranges=ranges)
