"""Samples of a small world: few instances, writers and times, so that they meet, repeat and tie."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pytest
from hypothesis import strategies as st

from engine.core.name_spaces import Group
from engine.dataset import group_set, sample_rows
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, Sample, make_sample

STATUSES = (DATA, DISPOSE, UNREGISTER, DISPOSE | UNREGISTER, DATA | DISPOSE, DATA | UNREGISTER)
"""Write, dispose, unregister, autodispose, writedispose, and a write that is the last of its writer."""
WRITERS = (b"A" * 16, b"B" * 16)
KEYS = (b"", b"k", b"long key")
DEPTHS = (0, 1, 2, 5)
GROUPS = (Group("p", "T"), Group("q", "T"), Group("p", "U"))


def samples(keys: tuple[bytes, ...] = KEYS) -> st.SearchStrategy[Sample]:
    """Samples of any kind, of the instances named."""
    return st.builds(
        make_sample,
        st.integers(1, 6),
        st.sampled_from(WRITERS),
        st.sampled_from(STATUSES),
        st.sampled_from(keys),
        st.sampled_from((b"", b"x", b"y")),
        st.integers(0, 1),
    )


def pack_early(patch: pytest.MonkeyPatch) -> None:
    """From now on, sets are packed as soon as they have a few samples."""
    for name, value in {"PACKED_FROM": 2, "MIN_PACKED": 2, "MAX_OBJECTS": 4, "_STEP": 3, "_MOVED": 3}.items():
        patch.setattr(sample_rows if name == "_MOVED" else group_set, name, value)


_Hash = ctypes.CFUNCTYPE(ctypes.c_ssize_t, ctypes.POINTER(ctypes.c_ubyte), ctypes.c_ssize_t)


def hash_keys_with(patch: pytest.MonkeyPatch, chosen: Callable[[bytes], int]) -> None:
    """From now on, packed instances are found by another hash, which the library calls back."""
    callback = _Hash(lambda at, size: chosen(bytes(at[:size])))
    patch.setattr(sample_rows, "_hash", chosen)
    patch.setattr(sample_rows, "_hash_of_bytes", lambda: ctypes.cast(callback, ctypes.c_void_p).value)


def contents(max_size: int = 16) -> st.SearchStrategy[list[tuple[Group, Sample]]]:
    """Samples with the groups they belong to."""
    return st.lists(st.tuples(st.sampled_from(GROUPS), samples()), max_size=max_size)


def kept(sample: Sample, everything: set[Sample], depth: int) -> bool:
    """Whether a sample is kept of everything that ever arrived: the rule, sample by sample.

    A sample is hidden by `depth` newer writes; of disposes without data the newest `depth` count, of
    unregisters the newest of each writer.
    """
    newer = [other for other in everything if other.key == sample.key and other > sample]
    if depth and sum(1 for other in newer if other.status & DATA) >= depth:
        return False
    if sample.status & DATA:
        return True
    disposes = sum(1 for other in newer if other.status & DISPOSE and not other.status & DATA)
    if sample.status & DISPOSE and (not depth or disposes < depth):
        return True
    unregistered = any(other.writer == sample.writer and other.status & UNREGISTER for other in newer)
    return bool(sample.status & UNREGISTER) and not unregistered


def model(everything: list[Sample], depth: int, floor_ns: int | None = None) -> set[Sample]:
    """What a set holds after all these samples, in whatever order they came."""
    there = {sample for sample in everything if floor_ns is None or sample.source_time_ns > floor_ns}
    return {sample for sample in there if kept(sample, there, depth)}
