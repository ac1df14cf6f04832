"""What two nodes tell each other to find the difference of their sets: short notes beside the streams.

The alignee describes its set in a `Sketch`, which is some symbols of it or the list of all its identities
(`engine.dataset.reconciliation`); the aligner asks for `More`, or to `Narrow` it to ranges, or answers with a
stream that carries the difference. A note has a checksum; one that is damaged or says nonsense is a fault,
and is not answered.
"""

from __future__ import annotations

import dataclasses
import json
import struct
import zlib
from typing import Final

from engine.core import plain
from engine.runtime.faults import StreamFault

MAGIC: Final = b"OSPC"
_VERSION: Final = 1
_HEAD: Final = struct.Struct("<4sBBII")
"""Magic, version, kind, checksum of what follows, bytes of JSON; then the JSON, then the body."""


@dataclasses.dataclass(frozen=True, slots=True)
class Sketch:
    """What the set of an alignee holds.

    Attributes:
        node: who says it.
        request: its request that this belongs to.
        salt: of the identities.
        count, digest: the root of the set, over all groups.
        first, length: the symbols that the body carries.
        is_list: the body is the list of all identities instead.
        lacking: identities at the end of the body, 8 bytes each, that the alignee lacks, as far as it knows.
            The symbols are then those of its set and of these. Only nodes with the capability
            `engine.core.messages.LACKING` are told so.
    """

    name_space: str
    node: str
    request: int
    salt: bytes
    count: int
    digest: int
    first: int
    length: int
    is_list: bool = False
    lacking: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Narrow:
    """The aligner asks about ranges (`engine.dataset.ranges.Ask`), in the body with 4 bytes each.

    It asks only those who say that they can answer: the capability `engine.core.messages.RANGES`.
    """

    name_space: str
    request: int
    bits: int
    deeper: int
    split: int
    listed: int


@dataclasses.dataclass(frozen=True, slots=True)
class Ranges:
    """The answer: the body has `fingerprints`, then identities, 8 bytes each."""

    name_space: str
    node: str
    request: int
    fingerprints: int


@dataclasses.dataclass(frozen=True, slots=True)
class More:
    """The aligner needs the symbols up to `symbols`; 0 asks for the list of all identities."""

    name_space: str
    request: int
    symbols: int


Note = Sketch | More | Narrow | Ranges
_KINDS: Final[tuple[type[Note], ...]] = (More, Sketch, Narrow, Ranges)


def encode(note: Note, body: bytes = b"") -> bytes:
    """A note as bytes."""
    text = json.dumps(plain.to_plain(note)).encode()
    content = text + body
    head = _HEAD.pack(MAGIC, _VERSION, _KINDS.index(type(note)), zlib.crc32(content), len(text))
    return head + content


def decode(data: bytes) -> tuple[Note, bytes]:
    """The note in `data` and its body.

    Raises:
        StreamFault: not a note, or damaged.
    """
    if len(data) < _HEAD.size:
        raise StreamFault("a note is cut off")
    magic, version, kind, checksum, size = _HEAD.unpack_from(data)
    content = memoryview(data)[_HEAD.size :]
    if magic != MAGIC or version != _VERSION or kind >= len(_KINDS):
        raise StreamFault(f"a note of version {version}.{kind} is not known")
    if zlib.crc32(content) != checksum or size > len(content):
        raise StreamFault("a note does not have its checksum")
    try:
        note: Note = plain.from_json(_KINDS[kind], bytes(content[:size]))
    except ValueError as error:
        raise StreamFault(f"a note says nonsense: {error}") from error
    return note, bytes(content[size:])
