"""The final order of rows that almost have it; see `ospltool.trace.case.marked`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ospltool.trace.case.marked import SAME
from ospltool.trace.reading.record import STRAGGLER_NS


class Places:
    """Puts rows in the order in which files are merged, and gives them their runs.

    They come by time, and a record is at most `STRAGGLER_NS` earlier than one before it in its file. So those
    that are older than the last one by that much are in their final places.
    """

    def __init__(self) -> None:
        self._waiting: pa.RecordBatch | None = None
        self._files: dict[tuple[str, str], int] = {}
        self._latest: dict[int, int] = {}
        """The place of the last record of each file."""
        self._run: dict[int, int] = {}
        """The run of the last record of each file."""

    def add(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Take in the next rows of `marked.query`, at least one; return those whose places are known."""
        if self._waiting is not None:
            rows = pa.concat_batches([self._waiting, rows])
        return self._placed(rows, rows.column("at_ns")[-1].as_py() - STRAGGLER_NS)

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are still waiting in the end."""
        if self._waiting is not None:
            yield self._placed(self._waiting, _FOREVER)

    def _placed(self, rows: pa.RecordBatch, until_ns: int) -> pa.RecordBatch:
        file, offset = self._numbers(rows), rows.column("off").to_numpy()
        places, runs = rows.column("at_ns").to_numpy().copy(), rows.column("run").to_numpy().copy()
        in_files = np.lexsort((offset, file))
        starts = np.flatnonzero(np.diff(file[in_files], prepend=-1)).tolist()
        present = file[in_files[starts]].tolist()
        for number, start, end in zip(present, starts, [*starts[1:], len(file)], strict=True):
            some = in_files[start:end]
            latest = self._latest.get(number, _LONG_AGO)
            places[some] = np.maximum(np.maximum.accumulate(places[some]), latest)
            runs[some] = _continued(runs[some], self._run.get(number, 0))
        ranks = np.zeros(len(self._files), np.int64)
        names = list(self._files)
        ranks[sorted(present, key=names.__getitem__)] = np.arange(len(present))
        order = np.lexsort((offset, ranks[file], places))
        done = order[: np.searchsorted(places[order], until_ns, side="right")]
        of_file = file[done].tolist()
        self._latest.update(zip(of_file, places[done].tolist(), strict=True))
        self._run.update(zip(of_file, runs[done].tolist(), strict=True))
        later = order[done.size :]
        self._waiting = rows.take(pa.array(later)) if later.size else None
        known = rows.set_column(rows.schema.get_field_index("run"), "run", pa.array(runs))
        return known.take(pa.array(done))

    def _numbers(self, rows: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return a number for the file of each row."""
        nodes, files = rows.column("node").dictionary_encode(), rows.column("file").dictionary_encode()
        pairs = nodes.indices.to_numpy().astype(np.int64) * len(files.dictionary) + files.indices.to_numpy()
        kinds, kind_of = np.unique(pairs, return_inverse=True)
        numbers = [
            self._files.setdefault(
                (nodes.dictionary[node].as_py(), files.dictionary[file].as_py()), len(self._files)
            )
            for node, file in zip(*np.divmod(kinds, len(files.dictionary)), strict=True)
        ]
        return np.array(numbers, np.int64)[kind_of]


def _continued(runs: np.ndarray[Any, np.dtype[np.int64]], before: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the runs of rows of a file, where `SAME` stands for that of the row before."""
    last = np.maximum.accumulate(np.where(runs == SAME, -1, np.arange(runs.size)))
    return np.where(last < 0, before, runs[last])


_LONG_AGO: Final = -(1 << 63)
_FOREVER: Final = (1 << 63) - 1
