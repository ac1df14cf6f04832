"""GUIDs of our choice, for participants that readers must prefer to others or others to them.

Readers that are ordered by source time take, of two samples of equal time, that of the writer with the lower
GUID. They compare the three words of the prefix as they lie in memory: the last byte of each one first.
"""

from __future__ import annotations

import os
import time
from typing import Final

_RANDOM_BITS: Final = 0xFFFF
"""Of a GUID that is made from the time: 65 us."""
_LARGEST: Final = (1 << 64) - 1


def high_guid() -> bytes:
    """A participant's GUID higher than nearly all that Cyclone DDS draws, and than those made before."""
    return _guid(b"\xff\xff", time.time_ns())


def low_guid() -> bytes:
    """A participant's GUID lower than nearly all that Cyclone DDS draws, and than those made before."""
    return _guid(b"\0\0", _LARGEST - time.time_ns())


def _guid(first: bytes, rank: int) -> bytes:
    """A GUID of Cyclone DDS (vendor 1.16) that compares by `first`, then by `rank`."""
    rank = (rank & ~_RANDOM_BITS) | (int.from_bytes(os.urandom(2)) & _RANDOM_BITS)
    ranked = rank.to_bytes(8)
    return b"\x01\x10" + first + ranked[3::-1] + ranked[:3:-1] + b"\0\0\x01\xc1"


def in_memory(guid: bytes) -> bytes:
    """A GUID as it lies in the memory of a reader on a little-endian machine: so GUIDs compare."""
    return b"".join(guid[at : at + 4][::-1] for at in range(0, 16, 4))
