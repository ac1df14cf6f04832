"""Records about the ends of writers, and the GUIDs of writers, as a reader cache gets them."""

from __future__ import annotations

import struct
from typing import Final

# The bit after data, dispose and unregister (1, 2, 4); ring.c sets it.
WRITER_GONE: Final = 8
"""Status bit of a record that is not a sample: the writer was deleted, was lost, or no longer matches.
`payload` is `AUTODISPOSE` if its instances count as disposed."""

AUTODISPOSE: Final = b"\x01"

# A memory of names only: one that is forgotten is asked for again.
_REMEMBERED_WRITERS: Final = 8192
_WORDS_HOST: Final = struct.Struct("<4I")
_WORDS_NETWORK: Final = struct.Struct(">4I")


class WriterNames:
    """GUIDs in network order, as built-in topics show them, by the host order that a reader cache receives.

    One bytes object for each writer serves all its samples.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, bytes] = {}
        self.get = self._known.get
        """Return the GUID of a known writer, or None."""

    def learn(self, host_order: bytes) -> bytes:
        """Remember a new writer and return its GUID: each 32-bit word is byte-swapped."""
        if len(self._known) >= _REMEMBERED_WRITERS:
            self._known.clear()
        network = _WORDS_NETWORK.pack(*_WORDS_HOST.unpack(host_order))
        self._known[host_order] = network
        return network
