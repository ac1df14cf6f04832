"""Protocol messages between nodes of one process: passed unchanged, because they are frozen values.

Writing and reading JSON would take most of a simulation's time. So that the real codec is still part of it,
one message of N goes through it and must come back the same.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Final

from engine.runtime import codec
from engine.runtime.codec import Envelope

if TYPE_CHECKING:
    from engine.core.messages import Outgoing

PROBE_EVERY: Final = 64
MAX_REMEMBERED: Final = 100_000
"""Limit for messages under way; a simulated cluster never reaches it."""


class SharedCodec:
    """Replaces `engine.runtime.codec`: the bytes on the wire are the number of a remembered message."""

    def __init__(self) -> None:
        self._count = 0
        self._envelopes: collections.OrderedDict[bytes, Envelope] = collections.OrderedDict()

    def encode(self, outgoing: Outgoing) -> bytes:
        """Remember a message; return its number."""
        self._count += 1
        envelope = Envelope(outgoing.message, outgoing.to)
        if self._count % PROBE_EVERY == 0:
            assert codec.decode(codec.encode(outgoing)) == envelope, "the codec changes a message"
        number = self._count.to_bytes(8)
        self._envelopes[number] = envelope
        if len(self._envelopes) > MAX_REMEMBERED:
            self._envelopes.popitem(last=False)
        return number

    def decode(self, data: bytes) -> Envelope:
        """Return the message with that number.

        Raises:
            PeerFault: not a number that was given.
        """
        envelope = self._envelopes.get(data)
        if envelope is None:
            raise codec.PeerFault("not a message of this simulation")
        return envelope
