"""Incoming streams: a set is collected and verified before anything of it counts.

An alignment that broke off is resumed, whichever of the two nodes ended. The samples that have arrived are no
set: the node does not report, send or inject them. But the next request is compared with them
(`engine.runtime.reconciling.alignee`), so that any aligner sends only the rest. They are kept in memory, and
on the disk as the version that was filling. Count and digest of the whole verify the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from engine.core.events import AligneeRequest
from engine.core.name_spaces import Group
from engine.dataset.dataset import DataSet
from engine.dataset.group_set import Summary
from engine.dataset.groups import GroupDescription
from engine.dataset.rateless import Words
from engine.dataset.sample import Sample
from engine.dataset.sample_rows import SampleRows, has_large
from engine.runtime.name_space_data import NameSpaceData
from engine.runtime.store_queue import WORTH_CHANGING, Conversion
from engine.runtime.stream import StreamBegin, StreamEnd, StreamFault, Unpacker, stream_of
from engine.store.interface import GroupChange

# Some for each of the name-spaces that are filled at once. Each holds a batch that is not whole, so 64
# bound the memory.
MAX_STREAMS: Final = 64
"""Streams under way to one node at most; it refuses another one and asks for it again later."""


class IncomingStream(msgspec.Struct):
    """One stream and what has arrived of it."""

    number: bytes
    """Number of the stream, 16 bytes."""
    begin: StreamBegin
    """Its description by the sender."""
    target: AligneeRequest
    """The request of this node that it answers."""
    unpacker: Unpacker
    """Reader of its batches."""
    started_ns: int
    """When its first batch arrived, nanoseconds since 1970 UTC."""
    data: DataSet = msgspec.field(default_factory=DataSet)
    """Samples that have arrived."""
    descriptions: list[GroupDescription] = msgspec.field(default_factory=list)
    """Groups that have arrived."""
    fresh: list[tuple[GroupDescription, SampleRows]] = msgspec.field(default_factory=list)
    """Samples that have not been handed to the store yet."""
    identities: list[bytes] = msgspec.field(default_factory=list)
    """For a difference: identities of samples that the alignee must remove, 8 bytes each."""
    end: StreamEnd | None = None
    """Its last record; None while it has not come."""
    samples: int = 0
    """Samples that have arrived."""
    bytes: int = 0
    """Bytes that have arrived."""
    is_whole: bool = False
    """The end came, and the sums of a whole set were right."""

    def removed(self) -> Words:
        """Return the identities of the samples that this node must remove, for a difference."""
        from engine.dataset import reconciliation  # needs numpy, which takes a moment to load

        joined = b"".join(self.identities)
        return reconciliation.from_list(joined, len(joined) // 8)


class IncomingStreams:
    """The streams under way to this node."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._streams: dict[tuple[str, bytes], IncomingStream] = {}

    def running(self, name_space: str) -> list[IncomingStream]:
        """Return the streams that carry a set of the name-space."""
        return [stream for stream in self._streams.values() if stream.begin.name_space == name_space]

    def receive(self, sender: str, batch: bytes, wall_ns: int) -> IncomingStream | None:
        """Take a batch; return its stream, None for a stream that is not for this node.

        Args:
            sender: the node that sent it, whatever the batch says.
            batch: its bytes.
            wall_ns: the node's wall clock.

        Raises:
            StreamFault: the stream is damaged and was dropped; this node will ask again.
        """
        number, index = stream_of(batch)
        key = sender, number  # no sender touches the streams of another
        stream = self._streams.get(key)
        unpacker = stream.unpacker if stream else Unpacker()
        if stream is None and index:
            return None  # the rest of a stream that was dropped or began too early
        try:
            for item in unpacker.items(batch):
                if isinstance(item, StreamBegin):
                    if item.aligner != sender:
                        raise StreamFault(f"{sender} sends a stream of {item.aligner}")
                    stream = self._begin(number, item, unpacker, wall_ns)
                if stream is None:
                    return None
                self._add(stream, item)
        except StreamFault:  # of a damaged stream nothing can be used: the core asks again
            self._streams.pop(key, None)
            raise
        if stream is None:
            return None
        stream.bytes += len(batch)
        if stream.is_whole:
            del self._streams[key]
        return stream

    def _begin(
        self, number: bytes, begin: StreamBegin, unpacker: Unpacker, wall_ns: int
    ) -> IncomingStream | None:
        target = next((target for target in begin.targets if target.node == self._node), None)
        if target is None:
            return None
        if len(self._streams) >= MAX_STREAMS:
            raise StreamFault(f"{MAX_STREAMS} streams are under way already")
        stream = IncomingStream(number, begin, target, unpacker, wall_ns)
        self._streams[begin.aligner, number] = stream
        return stream

    @staticmethod
    def _add(stream: IncomingStream, item: object) -> None:
        if isinstance(item, tuple):
            group, block = item
            description = group.description
            group_set = stream.data.open_described(description)
            if block is None:
                group_set.raise_floor(group.floor_ns)
                stream.descriptions.append(description)
            else:
                samples = SampleRows((block,))
                if has_large(block):
                    samples = SampleRows.coerce(block.samples())  # the set and the store share their payloads
                group_set.extend(samples)
                stream.fresh.append((description, samples))
                stream.samples += len(samples)
        elif isinstance(item, bytes):
            if not stream.begin.is_difference or len(item) % 8:
                raise StreamFault("identities come where none are expected")
            stream.identities.append(item)
        elif isinstance(item, StreamEnd):
            stream.end = item
            if stream.begin.is_difference:  # it is verified when it is applied to the base
                stream.is_whole = True
                return
            summary = stream.data.summary()
            if (item.count, item.digest) != (summary.count, summary.digest):
                raise StreamFault(
                    f"{summary.count} samples arrived, {item.count} were sent, or one is damaged"
                )
            stream.is_whole = True

    def forget_unless(self, wanted: Callable[[IncomingStream], bool]) -> list[IncomingStream]:
        """Forget and return the streams that are not wanted any more."""
        if not self._streams:
            return []
        forgotten = [stream for stream in self._streams.values() if not wanted(stream)]
        for stream in forgotten:
            del self._streams[stream.begin.aligner, stream.number]
        return forgotten


def fills_store(data: NameSpaceData, incoming: IncomingStream) -> bool:
    """Whether arriving samples go to the store at once: they are a set, or most of one, to begin with.

    A small difference is cheaper to request again than to store twice.
    """
    if incoming.target.purpose != "initial" or data.state.holder:
        return False
    here = 0 if data.loaded is None else data.loaded.summary().count
    return (
        not incoming.begin.is_difference
        or data.part is not None
        or incoming.begin.count > WORTH_CHANGING * here
    )


def broke_off(data: NameSpaceData, incoming: IncomingStream) -> None:
    """Keep what a stream brought that will not come to its end."""
    if not incoming.samples or not fills_store(data, incoming):
        return
    if data.part is None:
        data.part = incoming.data
    else:
        _add(data.part, incoming.data)


def held_before(data: NameSpaceData) -> DataSet | None:
    """Return the samples with which to compare a set: the stored set, and those of broken-off streams."""
    if data.part is None or data.loaded is None:
        return data.part or data.loaded
    both = DataSet()
    _add(both, data.part)
    _add(both, data.loaded)
    return both


def _add(target: DataSet, other: DataSet) -> None:
    for group, group_set in other.groups.items():
        target.open_group(group, group_set.depth, group_set.limits).extend(group_set.samples())


def conversion_of(
    data: NameSpaceData,
    incoming: IncomingStream,
    before: Summary,
    groups: list[tuple[Group, SampleRows]],
    removed: dict[Group, list[Sample]],
    describe: dict[Group, GroupDescription],
) -> Conversion:
    """Return the changes that turn the samples in the store into the set.

    Args:
        data: the name-space.
        incoming: the stream whose samples went to the store.
        before: summary of the base.
        groups: samples of the base.
        removed: samples of the base that the set lacks.
        describe: descriptions of the groups.
    """
    conversion = Conversion([], incoming.number, before)
    part = data.part.groups if data.part is not None else {}
    for group, samples in groups:
        if group not in describe or not data.is_on_disk(describe[group]):
            continue
        gone = removed.get(group, [])
        filled = set(part[group].samples().each_digest()) if group in part else set()
        rest = samples.without(filled.union(sample.digest for sample in gone))
        if rest:
            conversion.rest.append((describe[group], rest))
        evicted = [sample for sample in gone if sample.digest in filled]
        if evicted:
            conversion.changes.append(GroupChange(describe[group], None, evicted))
    return conversion
