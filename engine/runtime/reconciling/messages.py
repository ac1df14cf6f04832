"""Messages of two nodes that look for the difference of their sets; they travel beside the streams.

The alignee describes its set in a `Sketch`, which has some symbols of it or the list of all identities
(`engine.dataset.reconciliation`). The aligner asks for `More`, or answers with a stream that carries the
difference. Messages have a checksum; damaged or invalid ones are faults and are not answered.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

import msgspec

from engine.core.untrusted import json_reader
from engine.runtime.steps import StreamFault

MAGIC: Final = b"OSPC"
_VERSION: Final = 1
_HEAD: Final = struct.Struct("<4sBBII")
"""Magic, version, kind, checksum of the rest, bytes of JSON; then the JSON, then the body."""


class Sketch(msgspec.Struct, frozen=True):
    """A description of an alignee's set."""

    name_space: str
    """Name-space of the set."""
    node: str
    """Id of the alignee."""
    request: int
    """Its request to which the sketch belongs."""
    salt: bytes
    """Salt of the identities."""
    count: int
    """Samples in the set."""
    digest: int
    """Digest of the set, over all groups."""
    first: int
    """Number of the first symbol in the body."""
    length: int
    """Symbols, or identities of a list, in the body."""
    is_list: bool = False
    """The body is the list of all identities instead of symbols."""
    lacking: int = 0
    """Identities at the end of the body, 8 bytes each, that the alignee knows that it lacks.

    The symbols then include them.
    """


class More(msgspec.Struct, frozen=True):
    """A question of the aligner for the symbols up to `symbols`; 0 asks for the list of all identities."""

    name_space: str
    request: int
    symbols: int


ComparisonMessage = Sketch | More
_KINDS: Final[tuple[type[ComparisonMessage], ...]] = (More, Sketch)
_READERS: Final = [json_reader(kind) for kind in _KINDS]


def encode(message: ComparisonMessage, body: bytes = b"") -> bytes:
    """Return a message with its body as bytes."""
    # With spaces, as it always was: sizes of streams are in the digests of simulated runs.
    text = msgspec.json.format(msgspec.json.encode(message), indent=0)
    content = text + body
    head = _HEAD.pack(MAGIC, _VERSION, _KINDS.index(type(message)), zlib.crc32(content), len(text))
    return head + content


def decode(data: bytes) -> tuple[ComparisonMessage, bytes]:
    """Return the message in `data` and its body.

    Raises:
        StreamFault: not such a message, or damaged.
    """
    if len(data) < _HEAD.size:
        raise StreamFault("a comparison message is cut off")
    magic, version, kind, checksum, size = _HEAD.unpack_from(data)
    content = memoryview(data)[_HEAD.size :]
    if magic != MAGIC or version != _VERSION or kind >= len(_KINDS):
        raise StreamFault(f"a comparison message of version {version}.{kind} is not known")
    if zlib.crc32(content) != checksum or size > len(content):
        raise StreamFault("a comparison message does not have its checksum")
    try:
        message: ComparisonMessage = _READERS[kind](bytes(content[:size]))
    except ValueError as error:
        raise StreamFault(f"an invalid comparison message: {error}") from error
    return message, bytes(content[size:])
