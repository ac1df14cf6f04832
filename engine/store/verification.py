"""The loop that verifies stored samples; both stores use it."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from engine.core.name_spaces import Group
from engine.dataset.group_set import Summary
from engine.dataset.sample import Sample, digest_of
from engine.store.interface import DamageLog

_MASK: Final = (1 << 128) - 1
_UNFIT: Final = (TypeError, ValueError, OverflowError, struct.error)
"""Exceptions of `digest_of` for a field of a wrong type or range."""


def sound_samples(
    group: Group, expected: Summary, rows: Iterable[Sample], damage: DamageLog
) -> Iterator[Sample]:
    """Pass on the samples with the right digest, and compare the whole group with its watermark.

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
        damage.add(f"group {group}", "the samples are sound but not the ones that were stored")
    if newest_ns > expected.newest_ns:
        damage.add(f"group {group}", "a sample is newer than the newest that was stored")


def _name(digest: object) -> str:
    return digest.hex() if isinstance(digest, bytes) else repr(digest)
