"""What a tap gives: one record for each thing that a writer did."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

WRITER_GONE: Final = 8
"""Status bit of a record that is no sample: the writer was deleted or lost, or no longer matches. `payload`
is `AUTODISPOSE` when its instances count as disposed."""

AUTODISPOSE: Final = b"\x01"

_REMEMBERED_WRITERS: Final = 8192
_WORDS_HOST: Final = struct.Struct("<4I")
_WORDS_NETWORK: Final = struct.Struct(">4I")


class Captured(NamedTuple):
    """One thing that a writer did; the fields in the order that `make_sample` takes.

    Attributes:
        source_time_ns: the writer's source timestamp; 0 with `WRITER_GONE`.
        writer: the writer's GUID, 16 bytes, network order.
        status: `DATA`, `DISPOSE`, `UNREGISTER` of `engine.dataset.sample`, or `WRITER_GONE`.
        key: XCDR2 key bytes; empty for a topic without keys.
        payload: CDR with its header; the key only when `status` lacks `DATA`.
    """

    source_time_ns: int
    writer: bytes
    status: int
    key: bytes
    payload: bytes


class WriterNames:
    """GUIDs as the built-in topics give them, from the host order in which a reader cache gets them.

    One bytes object for each writer serves all its samples.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, bytes] = {}
        self.get = self._known.get
        """The GUID of a writer that was seen before."""

    def learn(self, host_order: bytes) -> bytes:
        """The GUID of a writer that is new: each 32-bit word turned round."""
        if len(self._known) >= _REMEMBERED_WRITERS:
            self._known.clear()
        network = _WORDS_NETWORK.pack(*_WORDS_HOST.unpack(host_order))
        self._known[host_order] = network
        return network
