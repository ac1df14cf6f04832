"""Many samples made at once, with their digests.

The compiled library digests four payloads at once where the processor has the registers for it, and does not
hold the interpreter lock meanwhile; for small payloads the call would cost more than that saves.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import struct
from collections.abc import Iterable, Sequence
from typing import Final

from engine import native
from engine.dataset.sample import DIGEST_BYTES, HEADER, LARGE_BYTES, Sample, make_sample

TOGETHER_BYTES: Final = 1 << 10
"""Payloads from this size on are digested together, if at least `TOGETHER` samples are made."""
TOGETHER: Final = 4


@functools.cache
def _compiled() -> ctypes.CDLL:
    """The compiled library, whose function gives up the interpreter lock."""
    return native.unlocked()


def _digests(heads: Sequence[bytes], payloads: Sequence[bytes]) -> list[bytes]:
    """Return the digests of texts whose heads are header, writer and key; in C four at once."""
    count = len(heads)
    digests = ctypes.create_string_buffer(DIGEST_BYTES * count)
    texts = [
        part
        for column in (heads, payloads)
        for part in ((ctypes.c_char_p * count)(*column), struct.pack(f"={count}Q", *map(len, column)))
    ]
    _compiled().digests_of_samples(ctypes.c_uint64(count), *texts, digests)
    joined = digests.raw
    return [joined[at : at + DIGEST_BYTES] for at in range(0, len(joined), DIGEST_BYTES)]


def make_samples(records: Iterable[tuple[int, bytes, int, bytes, bytes, int]]) -> list[Sample]:
    """Make many samples from the arguments of `make_sample`; `sequence` must be 0."""
    records = [*records]
    if len(records) == 1 and len(records[0][4]) < LARGE_BYTES:
        return [make_sample(*records[0])]
    hashed, pack, new, size = hashlib.blake2b, HEADER.pack, tuple.__new__, DIGEST_BYTES
    least = TOGETHER_BYTES if len(records) >= TOGETHER else LARGE_BYTES
    large = [record for record in records if len(record[4]) >= least]
    heads = [
        pack(time_ns, 0, status, len(key), len(payload)) + writer + key
        for time_ns, writer, status, key, payload, _ in large
    ]
    together = iter(_digests(heads, [record[4] for record in large]) if large else ())
    return [
        new(
            Sample,
            (
                time_ns,
                writer,
                0,
                hashed(
                    pack(time_ns, 0, status, len(key), len(payload)) + writer + key + payload,
                    digest_size=size,
                ).digest()
                if len(payload) < least
                else next(together),
                status,
                key,
                payload,
            ),
        )
        for time_ns, writer, status, key, payload, _ in records
    ]
