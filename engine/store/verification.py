"""Verified samples of a store: one by one, or in columns for callers that read many and need no objects.

Columns are twice as fast. At the first damage, the rest of the group is read and verified one by one, so that
both ways find the same.
"""

from __future__ import annotations

import itertools
import sqlite3
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from engine.core.name_spaces import Group
from engine.dataset.blocks import Block, SampleColumns, pack
from engine.dataset.group_set import Summary
from engine.dataset.sample import DIGEST_BYTES, Sample, digest_of
from engine.store.compiled_rows import CompiledRows
from engine.store.interface import DamageLog
from engine.store.sample_table import raw_pages

_MASK: Final = (1 << 128) - 1
_UNFIT: Final = (TypeError, ValueError, OverflowError, struct.error)
"""Exceptions of `digest_of` for a field of a wrong type or range."""


def sound_samples(
    group: Group, expected: Summary, rows: Iterable[Sample], damage: DamageLog
) -> Iterator[Sample]:
    """Pass on the samples with the right digest, and compare the whole group with its watermark.

    The digest of a sample does not tell its group. Where there are more samples than were stored, or others,
    some may be of another group, and nothing tells which: the group is noted as `strange`.

    Args:
        group: the group, named in `damage`.
        expected: its watermark.
        rows: its stored samples.
        damage: collects damage.
    """
    count = bad = digest_sum = newest_ns = 0
    for sample in rows:
        time_ns, writer, sequence, digest, status, key, payload = sample
        try:
            right = digest_of(time_ns, writer, sequence, status, key, payload) == digest
        except _UNFIT:
            right = False
        if not right:
            bad += 1
            damage.add(f"group {group}, sample {_name(digest)}", "the content does not match its digest")
            continue
        count += 1
        digest_sum += int.from_bytes(digest)
        newest_ns = max(newest_ns, time_ns)
        yield sample
    if count + bad != expected.count:
        damage.add(f"group {group}", f"{expected.count} samples were stored, {count + bad} are there")
    elif not bad and digest_sum & _MASK != expected.digest:
        damage.strange.add(group)
        damage.add(f"group {group}", "the samples are sound but not the ones that were stored")
    if count + bad > expected.count or newest_ns > expected.newest_ns:
        damage.strange.add(group)
    if newest_ns > expected.newest_ns:
        damage.add(f"group {group}", "a sample is newer than the newest that was stored")


def _name(digest: object) -> str:
    return digest.hex() if isinstance(digest, bytes) else repr(digest)


ROWS: Final = 1024
"""Samples in memory at once; more would not fit into the processor's cache."""


def in_columns(samples: Iterable[Sample]) -> Iterator[SampleColumns]:
    """Put samples into columns."""
    left = iter(samples)
    while rows := list(itertools.islice(left, ROWS)):
        yield SampleColumns(*zip(*rows, strict=True))


def sound_blocks(
    connection: sqlite3.Connection,
    group_id: int,
    expected: Summary,
    one_by_one: Callable[[], Iterator[Sample]],
) -> Iterator[tuple[SampleColumns, Block]]:
    """Read the sound samples of a group, in columns and as a block of the same samples.

    Args:
        connection: the file.
        group_id: the group's number in the file.
        expected: the group's watermark.
        one_by_one: verifies the rows of the group one by one, and notes damage.
    """
    passed = digest_sum = newest_ns = 0
    try:
        for rows in raw_pages(connection, group_id, ROWS):
            columns = SampleColumns(*zip(*rows, strict=True))
            block = pack(columns)
            if not _is_sound(columns, block):
                break
            passed += len(rows)
            digest_sum += block.digest_sum()
            newest_ns = max(newest_ns, block.newest_ns())
            yield columns, block
        are_all = (passed, digest_sum & _MASK) == (expected.count, expected.digest)
        if are_all and newest_ns <= expected.newest_ns:
            return
    except (sqlite3.DatabaseError, TypeError, ValueError, OverflowError, struct.error):
        pass  # reading one by one notes the damage
    for columns in in_columns(itertools.islice(one_by_one(), passed, None)):
        yield columns, pack(columns)


def compiled_blocks(
    rows: CompiledRows, expected: Summary, one_by_one: Callable[[], Iterator[Sample]]
) -> Iterator[Block]:
    """Read the sound samples of a group with the compiled library.

    Args:
        rows: the rows of the group.
        expected: the group's watermark.
        one_by_one: verifies the rows of the group one by one, and notes damage.
    """
    yield from rows.blocks()
    are_all = rows.is_whole and (rows.passed, rows.digest_sum & _MASK) == (expected.count, expected.digest)
    if not are_all or rows.newest_ns > expected.newest_ns:
        for columns in in_columns(itertools.islice(one_by_one(), rows.passed, None)):
            yield pack(columns)


def _is_sound(columns: SampleColumns, block: Block) -> bool:
    """Whether the digests are right, and every field has the size that the block gives it."""
    sizes = {*map(len, columns.digests), *map(len, set(columns.writers))}
    return sizes == {DIGEST_BYTES} and block.digests == block.computed_digests()
