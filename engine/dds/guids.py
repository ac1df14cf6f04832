"""Chosen GUIDs, for participants that readers must prefer to others, or others to them.

Of two samples of equal time, readers that order by source time take that of the writer with the lower GUID.
They compare the three words of the prefix in memory order: the last byte of each word first.
"""

from __future__ import annotations

import os
import time
from typing import Final

_RANDOM_BITS: Final = 0xFFFF
"""Random bits of a GUID that is made from the time; they cover 65 us."""
_LARGEST: Final = (1 << 64) - 1


def high_guid() -> bytes:
    """Make a participant's GUID above all made before, and above nearly all that Cyclone DDS draws."""
    return _guid(b"\xff\xff", time.time_ns())


def low_guid() -> bytes:
    """Make a participant's GUID below all made before, and below nearly all that Cyclone DDS draws."""
    return _guid(b"\0\0", _LARGEST - time.time_ns())


def _guid(first: bytes, rank: int) -> bytes:
    """Make a GUID of Cyclone DDS (vendor 1.16) that compares by `first`, then by `rank`."""
    rank = (rank & ~_RANDOM_BITS) | (int.from_bytes(os.urandom(2)) & _RANDOM_BITS)
    ranked = rank.to_bytes(8)
    return b"\x01\x10" + first + ranked[3::-1] + ranked[:3:-1] + b"\0\0\x01\xc1"


def in_memory(guid: bytes) -> bytes:
    """Return a GUID in the memory order of a little-endian reader, in which readers compare GUIDs."""
    return b"".join(guid[at : at + 4][::-1] for at in range(0, 16, 4))
