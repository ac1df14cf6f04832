"""The durable writers of the domain whose data a service does not keep, each with the reason."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

import msgspec

from engine.core.name_spaces import Group
from engine.core.untrusted import Newest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.dds.discovery import EndpointSeen

# Only shown to people; forgetting one makes it new, so that it is reported a second time.
MAX_UNKEPT: Final = 10_000
"""Limit for remembered writers; beyond it the oldest are forgotten."""


class UnkeptReason(enum.StrEnum):
    """Reason why the data of a durable writer is not kept.

    DURABILITY of TRANSIENT and PERSISTENT promises earlier samples to a late joiner (DDS 1.4, 2.2.3.4). If a
    node cannot keep that promise, it reports so: a code, a counter, a line in ospl-info.log and the trace,
    and a row in consoles and in `ospltool doctor`.
    """

    UNTYPED_KEYED = "untyped-keyed"
    TYPE_AWAITED = "type-awaited"
    TYPE_UNKNOWN = "type-unknown"
    REFUSED = "refused"
    QOS = "qos"
    UNMATCHED = "unmatched"
    ENDED = "ended"


EXPLANATIONS: Final = {
    UnkeptReason.UNTYPED_KEYED: "it tells no type information, so its instances cannot be told apart",
    UnkeptReason.TYPE_AWAITED: "its type is being looked up; it is kept as soon as that is known",
    UnkeptReason.TYPE_UNKNOWN: "its type could not be looked up",
    UnkeptReason.REFUSED: "samples of it do not fit the type that it announces, so readers refuse them",
    UnkeptReason.QOS: "it and the built-in reader do not match",
    UnkeptReason.UNMATCHED: "it and the built-in reader do not match, although type and policies do",
    UnkeptReason.ENDED: "it ended before a sample of it was captured; what it wrote before the built-in "
    "reader matched it, if anything, is here only if a fellow captured it",
}


class Unkept(msgspec.Struct, frozen=True):
    """A durable writer that is not kept.

    Attributes:
        writer: its GUID, 32 hexadecimal characters.
        topic: its topic.
        type_name: the name of its type.
        partitions: its partitions; none is the default one.
        why: the code.
        detail: further facts, such as the policies that do not match; may be empty.
    """

    writer: str
    topic: str
    type_name: str
    partitions: tuple[str, ...]
    why: UnkeptReason
    detail: str = ""

    @property
    def groups(self) -> tuple[Group, ...]:
        """Its groups; the type does not matter."""
        return tuple(Group(name, self.topic) for name in self.partitions or ("",))

    @property
    def text(self) -> str:
        """The code with its explanation."""
        detail = f": {self.detail}" if self.detail else ""
        return f"{self.why.value}: {EXPLANATIONS[self.why]}{detail}"


def unkept_writer(endpoint: EndpointSeen, why: UnkeptReason, detail: str = "") -> Unkept:
    """Return a writer with the reason for which it is not kept.

    Args:
        endpoint: the writer.
        why: the code.
        detail: further facts; may be empty.
    """
    return Unkept(endpoint.guid.hex(), endpoint.topic, endpoint.type_name, endpoint.partitions, why, detail)


class UnkeptWriters:
    """The durable writers that are not kept: current ones, and for a time those that ended too soon."""

    def __init__(self) -> None:
        self._writers: Newest[bytes, Unkept] = Newest(MAX_UNKEPT)
        self._kept: dict[bytes, Unkept] = {}

    def __iter__(self) -> Iterator[Unkept]:
        return iter(self._writers.values())

    def __len__(self) -> int:
        return len(self._writers)

    def add(self, endpoint: EndpointSeen, why: UnkeptReason, detail: str = "") -> Unkept | None:
        """Note a writer that is not kept; return None if it was noted with the same reason before.

        `detail` explains the reason further.
        """
        unkept = unkept_writer(endpoint, why, detail)
        self._kept.pop(endpoint.guid, None)
        if self._writers.get(endpoint.guid) == unkept:
            return None
        self._writers[endpoint.guid] = unkept
        return unkept

    def remove(self, writer: bytes, *, is_kept: bool = False) -> None:
        """Forget a writer that is gone, or kept from now on."""
        before = self._writers.pop(writer, None)
        if not is_kept:
            self._kept.pop(writer, None)
        elif before is not None and before.why is not UnkeptReason.TYPE_AWAITED:
            self._kept[writer] = before

    def take_kept(self) -> list[Unkept]:
        """Take the writers that are kept now after they were reported as not kept, each as it was."""
        kept = list(self._kept.values())
        self._kept.clear()
        return kept
