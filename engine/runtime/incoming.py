"""Streams on their way in: a set is collected and verified before anything of it counts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from engine.core.events import Target
from engine.dataset.dataset import DataSet
from engine.dataset.groups import GroupDescription
from engine.dataset.rows import Rows
from engine.runtime.stream import Begin, End, StreamFault, Unpacker, stream_of

if TYPE_CHECKING:
    from engine.dataset.reconciliation import Words

MAX_STREAMS: Final = 64
"""Streams that may be under way to one node; one more is refused and asked for again later."""


@dataclasses.dataclass(slots=True)
class Incoming:
    """One stream: what it said of itself, and what has arrived.

    `target` is our request in it; `is_whole` once the end came and the sums were right. `fresh` is what
    arrived since somebody looked there last.
    """

    number: bytes
    begin: Begin
    target: Target
    unpacker: Unpacker
    started_ns: int
    data: DataSet = dataclasses.field(default_factory=DataSet)
    descriptions: list[GroupDescription] = dataclasses.field(default_factory=list)
    fresh: list[tuple[GroupDescription, Rows]] = dataclasses.field(default_factory=list)
    identities: list[bytes] = dataclasses.field(default_factory=list)
    end: End | None = None
    samples: int = 0
    bytes: int = 0
    is_whole: bool = False

    def removed(self) -> Words:
        """The identities of what we have too much, when a difference came."""
        from engine.dataset import reconciliation  # needs numpy, which takes a moment to load

        octets = b"".join(self.identities)
        return reconciliation.from_list(octets, len(octets) // 8)


class IncomingStreams:
    """All streams that are under way to this node."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._streams: dict[bytes, Incoming] = {}

    def running(self, name_space: str) -> list[Incoming]:
        """The streams that carry a set of the name-space."""
        return [stream for stream in self._streams.values() if stream.begin.name_space == name_space]

    def take(self, batch: bytes, wall_ns: int) -> Incoming | None:
        """Take in a batch; the stream it belongs to, None for a stream that is not for us.

        Raises:
            StreamFault: the stream is damaged and has been dropped; its sender will be asked again.
        """
        number, index = stream_of(batch)
        stream = self._streams.get(number)
        unpacker = stream.unpacker if stream else Unpacker()
        if stream is None and index:
            return None  # the rest of a stream that was dropped, or that began before we listened
        try:
            for item in unpacker.items(batch):
                if isinstance(item, Begin):
                    stream = self._begin(number, item, unpacker, wall_ns)
                if stream is None:
                    return None
                self._add(stream, item)
        except StreamFault:
            self._streams.pop(number, None)
            raise
        if stream is None:
            return None
        stream.bytes += len(batch)
        if stream.is_whole:
            del self._streams[number]
        return stream

    def _begin(self, number: bytes, begin: Begin, unpacker: Unpacker, wall_ns: int) -> Incoming | None:
        target = next((target for target in begin.targets if target.node == self._node), None)
        if target is None:
            return None
        if len(self._streams) >= MAX_STREAMS:
            raise StreamFault(f"{MAX_STREAMS} streams are under way already")
        stream = self._streams[number] = Incoming(number, begin, target, unpacker, wall_ns)
        return stream

    @staticmethod
    def _add(stream: Incoming, item: object) -> None:
        if isinstance(item, tuple):
            group, block = item
            description = group.description
            group_set = stream.data.open_described(description)
            if block is None:
                group_set.raise_floor(group.floor_ns)
                stream.descriptions.append(description)
            else:
                samples = Rows((block,))
                group_set.extend(samples)
                stream.fresh.append((description, samples))
                stream.samples += len(samples)
        elif isinstance(item, bytes):
            if not stream.begin.is_difference or len(item) % 8:
                raise StreamFault("identities come where none are expected")
            stream.identities.append(item)
        elif isinstance(item, End):
            stream.end = item
            if stream.begin.is_difference:  # held against the root when it is put to the set that is here
                stream.is_whole = True
                return
            summary = stream.data.summary()
            if (item.count, item.digest) != (summary.count, summary.digest):
                raise StreamFault(
                    f"{summary.count} samples arrived, {item.count} were sent, or one is damaged"
                )
            stream.is_whole = True

    def keep(self, wanted: Callable[[Incoming], bool]) -> list[Incoming]:
        """Forget the streams that are not wanted any more; returns them."""
        forgotten = [stream for stream in self._streams.values() if not wanted(stream)]
        for stream in forgotten:
            del self._streams[stream.number]
        return forgotten
