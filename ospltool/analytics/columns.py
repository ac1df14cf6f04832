"""Columns of query results as values of Python; texts that are often equal, as in traces, are one object."""

from __future__ import annotations

import itertools
import sys
from typing import Any, Final

import numpy as np
import pyarrow as pa

_SAMPLE: Final = 256
"""Texts that tell whether those of a column are often equal."""


def values_of(column: Any) -> list[Any]:
    """Convert a column; a missing value becomes None."""
    kind = column.type
    if pa.types.is_map(kind):
        return _maps(column)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return texts_of(column)
    return list(column.to_pylist())


def texts_of(column: Any) -> list[Any]:
    """Return texts; those that are often equal are one object, which takes less time and memory."""
    few = column.slice(0, _SAMPLE).dictionary_encode()
    if 2 * len(few.dictionary) > len(few):
        return list(column.to_numpy(zero_copy_only=False).tolist())
    coded = column.dictionary_encode()
    texts = np.array([*map(sys.intern, coded.dictionary.to_pylist()), None], object)
    return list(texts[coded.indices.fill_null(len(texts) - 1).to_numpy()].tolist())


def _maps(column: Any) -> list[dict[str, Any] | None]:
    offsets = column.offsets.to_numpy().tolist()
    keys, items = values_of(column.keys), values_of(column.items)
    there = column.is_valid().to_numpy(zero_copy_only=False).tolist()
    return [
        (dict(zip(keys[start:end], items[start:end], strict=True)) if end > start else {}) if known else None
        for (start, end), known in zip(itertools.pairwise(offsets), there, strict=True)
    ]
