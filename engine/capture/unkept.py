"""Durable writers whose data a node cannot keep: which, and why. None of them goes without a word.

DURABILITY of TRANSIENT and PERSISTENT promises a late joiner what was written before (DDS 1.4, 2.2.3.4).
Where a node cannot hold that promise, it says so: a code, a counter, a line in ospl-info.log and the trace,
a row in what consoles see and in `ospltool doctor`.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.dds.discovery import EndpointSeen

MAX_UNKEPT: Final = 10_000
"""Writers that are remembered; of more, the latest."""
_KEYLESS: Final = 0x03
"""Kind of a writer without key, the last byte of its GUID (DDSI 2.3, 9.3.1.2)."""


class Why(enum.StrEnum):
    """Why the data of a durable writer is not kept."""

    UNTYPED_KEYED = "untyped-keyed"
    UNTYPED_KEYLESS = "untyped-keyless"
    TYPE_AWAITED = "type-awaited"
    TYPE_UNKNOWN = "type-unknown"
    QOS = "qos"


EXPLANATIONS: Final = {
    Why.UNTYPED_KEYED: "it tells no type information, so its instances cannot be told apart",
    Why.UNTYPED_KEYLESS: "it tells no type information, so there is no topic to read it with",
    Why.TYPE_AWAITED: "its type is being looked up; it is kept as soon as that is known",
    Why.TYPE_UNKNOWN: "its type could not be looked up",
    Why.QOS: "it and the built-in reader do not match",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Unkept:
    """A durable writer that is not kept.

    Attributes:
        writer: its GUID, 32 hexadecimal characters.
        topic: its topic.
        type_name: the name of its type.
        partitions: its partitions; none is the default one.
        why: the code.
        detail: what else is known, such as the policies that do not match; may be empty.
    """

    writer: str
    topic: str
    type_name: str
    partitions: tuple[str, ...]
    why: Why
    detail: str = ""

    @property
    def text(self) -> str:
        """The code, and what it means here."""
        detail = f": {self.detail}" if self.detail else ""
        return f"{self.why.value}: {EXPLANATIONS[self.why]}{detail}"


class UnkeptWriters:
    """The durable writers that there are and that are not kept."""

    def __init__(self) -> None:
        self._writers: dict[bytes, Unkept] = {}

    def __iter__(self) -> Iterator[Unkept]:
        return iter(self._writers.values())

    def __len__(self) -> int:
        return len(self._writers)

    def add(self, endpoint: EndpointSeen, why: Why, detail: str = "") -> Unkept | None:
        """A writer is not kept; None where that is known already, for the same reason."""
        unkept = Unkept(
            endpoint.guid.hex(), endpoint.topic, endpoint.type_name, endpoint.partitions, why, detail
        )
        if self._writers.get(endpoint.guid) == unkept:
            return None
        self._writers.pop(endpoint.guid, None)
        self._writers[endpoint.guid] = unkept
        if len(self._writers) > MAX_UNKEPT:
            del self._writers[next(iter(self._writers))]
        return unkept

    def remove(self, writer: bytes) -> None:
        """A writer is kept now, or is gone."""
        self._writers.pop(writer, None)


def untyped(endpoint: EndpointSeen) -> Why:
    """The code of a writer that tells no type information."""
    return Why.UNTYPED_KEYLESS if endpoint.guid[-1] == _KEYLESS else Why.UNTYPED_KEYED
