"""The comparison as a merge of sorted streams: little memory, no database.

Each store is read once, sorted in runs that go to disk, and all are merged, instance by instance.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import pickle
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from engine.store.interface import DamageLog
from ospltool.output import progress
from ospltool.stores.describe import SampleTally, group_code
from ospltool.stores.diff.sides import DiffError, InstanceDifference, Limits, Row, Side, Wanted

_BYTES_OF_A_ROW: Final = 600
"""What a row takes while a run is sorted, with key and writer as objects of their own."""
_ROWS_OF_A_RECORD: Final = 500
_Place = tuple[int, bytes]
_Entry = tuple[int, bytes, Row]


class MergeDiff:
    """See `ospltool.stores.diff.sides.DiffEngine`."""

    def __init__(self, sides: Sequence[Side], limits: Limits) -> None:
        self._sides = sides
        self._scratch = tempfile.TemporaryDirectory(prefix="ospltool-diff-")
        self._rows_of_a_run = max(10_000, limits.memory_bytes // len(sides) // _BYTES_OF_A_ROW)

    def instances(self) -> Iterator[InstanceDifference]:
        """Yield the instances that differ."""
        try:
            streams = [self._sorted(number, side) for number, side in enumerate(self._sides)]
            counted = [self._counted(*pair) for pair in zip(self._sides, streams, strict=True)]
            yield from _differing(counted)
        except OSError as error:
            raise DiffError(f"{error.filename or self._scratch.name}: {error.strerror}") from error

    @staticmethod
    def _counted(side: Side, entries: Iterator[_Entry]) -> Iterator[tuple[_Place, tuple[Row, ...]]]:
        """The instances of a side; how many a group has is known when the next group begins."""
        for code, instances in itertools.groupby(_by_instance(entries), key=lambda one: one[0][0]):
            count = 0
            for one in instances:
                count += 1
                yield one
            side.counts[code] = dataclasses.replace(side.counts[code], instances=count)

    def _sorted(self, number: int, side: Side) -> Iterator[_Entry]:
        runs: list[Path] = []
        entries = _entries(side)
        while run := list(itertools.islice(entries, self._rows_of_a_run)):
            run.sort()
            if len(run) < self._rows_of_a_run and not runs:
                return iter(run)  # all of it fits
            path = Path(self._scratch.name) / f"{number}-{len(runs)}"
            with path.open("wb") as file:
                for start in range(0, len(run), _ROWS_OF_A_RECORD):
                    pickle.dump(run[start : start + _ROWS_OF_A_RECORD], file, pickle.HIGHEST_PROTOCOL)
            runs.append(path)
        return heapq.merge(*map(_read_run, runs))

    def contents(self, wanted: Sequence[Wanted]) -> Mapping[Wanted, bytes]:
        """Return the payloads of samples, in another pass over the stores."""
        left = set(wanted)
        found: dict[Wanted, bytes] = {}
        for number, side in enumerate(self._sides):
            if not any(one.side == number for one in left):
                continue
            for one in side.sets:
                for group, samples in side.reader.read(one.number, DamageLog()):
                    code = group_code(group.name)
                    for sample in progress.counted(samples):
                        place = Wanted(number, code, sample.digest)
                        if place in left:
                            found[place] = sample.payload
        return found

    def close(self) -> None:
        """Remove the runs."""
        self._scratch.cleanup()


def _entries(side: Side) -> Iterator[_Entry]:
    for one in side.sets:
        for group, samples in side.reader.read(one.number, side.damage):
            code = group_code(group.name)
            before = side.damage.count
            tally = SampleTally(max_keys=0)
            for time_ns, writer, sequence, digest, status, key, _ in tally.passing(progress.counted(samples)):
                yield code, key, Row(time_ns, writer, sequence, digest, status)
            damaged = side.damage.count - before + side.lost.get((one.number, code), 0)
            side.counts[code] = tally.result(one.number, code, damaged)


def _read_run(path: Path) -> Iterator[_Entry]:
    with path.open("rb") as file:
        while file.peek(1):
            yield from pickle.load(file)  # noqa: S301  # written a moment ago, by us, in our own directory


def _by_instance(entries: Iterable[_Entry]) -> Iterator[tuple[_Place, tuple[Row, ...]]]:
    for place, group in itertools.groupby(entries, key=lambda entry: entry[:2]):
        yield place, tuple(dict.fromkeys(row for _, _, row in group))


def _differing(streams: list[Iterator[tuple[_Place, tuple[Row, ...]]]]) -> Iterator[InstanceDifference]:
    heads = [next(stream, None) for stream in streams]
    while True:
        places = [head[0] for head in heads if head is not None]
        if not places:
            return
        place = min(places)
        rows: list[tuple[Row, ...]] = []
        for number, head in enumerate(heads):
            if head is not None and head[0] == place:
                rows.append(head[1])
                heads[number] = next(streams[number], None)
            else:
                rows.append(())
        if any(held != rows[0] for held in rows[1:]):
            yield InstanceDifference(*place, tuple(rows))
