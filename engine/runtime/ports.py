"""Ports of a runtime: clock, codec, content filters, and the wire to fellows and readers.

The live node implements them with Cyclone DDS and threads, the simulator with virtual time. Calls return at
once; long work is reported back by a call to the runtime.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from engine.core.messages import Outgoing, ReaderKey
from engine.core.name_spaces import Element, Group
from engine.dataset.groups import GroupDescription
from engine.dataset.sample import Sample
from engine.dataset.sample_rows import SampleRows
from engine.runtime.codec import Envelope


class FilterRefused(Exception):
    """A content filter that does not fit the type of a group, which is then not kept; the text says why."""


class Gate(Protocol):
    """The content filter of one group."""

    def accepts(self, status: int, payload: bytes) -> bool | None:
        """Whether a sample may be kept; None for a dispose or unregister whose key does not decide it.

        A sample that cannot be decoded may not be kept.
        """


class Filters(Protocol):
    """The content filters of a node (//OpenSplice/Domain/Filters).

    Attributes:
        elements: all groups that have one.
    """

    elements: tuple[Element, ...]

    def gate(self, description: GroupDescription) -> Gate | None:
        """Return the filter of a group; None if none applies.

        Raises:
            FilterRefused: it does not fit the group's type.
        """


class NoFilters:
    """Filters of a node without any."""

    elements: tuple[Element, ...] = ()

    def gate(self, description: GroupDescription) -> Gate | None:
        """Return None."""
        del description
        return None


class GivenGroup(msgspec.Struct, frozen=True):
    """What a delivery brought of one group.

    Attributes:
        group: the group.
        samples: samples that were written; readers may lack some of them if there is a problem.
        unwritten: how many of these are of instances without a living writer.
        readers: GUIDs of the readers that they were written for.
        by_reception: those of them that take samples in the order of their reception.
        latecomers: GUIDs of readers that got only the last part of it.
        problem: why readers may lack samples; empty if they have all.
    """

    group: Group
    samples: int
    unwritten: int
    readers: frozenset[bytes]
    by_reception: frozenset[bytes]
    latecomers: frozenset[bytes] = frozenset()
    problem: str = ""


class Delivered(msgspec.Struct, frozen=True):
    """The result of a delivery.

    Attributes:
        samples: samples that the reader's process has acknowledged.
        elapsed_ns: duration.
        problem: why it is incomplete and must be repeated; empty if complete.
        refused: readers whose QoS or type does not match, each with both sides named; they get nothing.
        given: each group that found readers.
        resent: repetitions because resource limits of readers left no room.
        not_kept: groups whose instances are not kept ALIVE because of a reader's max_instances.
    """

    samples: int = 0
    elapsed_ns: int = 0
    problem: str = ""
    refused: tuple[str, ...] = ()
    given: tuple[GivenGroup, ...] = ()
    resent: int = 0
    not_kept: int = 0

    @property
    def readers(self) -> frozenset[bytes]:
        """GUIDs of the readers that got all samples of all groups."""
        complete = [one.readers if not one.problem else frozenset[bytes]() for one in self.given]
        return frozenset.intersection(*complete) if complete else frozenset()


class RevivingDelivery(msgspec.Struct, frozen=True):
    """A delivery of the newest sample of each instance, to make instances ALIVE again.

    Attributes:
        writer: GUID of a writer that readers lost and that is back; the delivery is for instances that
            depend on it. Empty if readers lost the node in charge; then for all with a living writer.
    """

    writer: bytes


class ReplacingDelivery(msgspec.Struct, frozen=True):
    """A delivery that replaces samples, also in readers that are ordered by source time.

    Attributes:
        times: newest source time that readers have, by group and instance.
    """

    times: Mapping[Group, Mapping[bytes, int]]


class AliveInstances:
    """The living writers of each group, and the node's own writers that keep instances ALIVE in readers.

    This base class knows no writers and keeps nothing, as on a host without readers.
    """

    def living(self, group: Group) -> frozenset[bytes]:
        """Return the GUIDs of a group's living writers."""
        del group
        return frozenset()

    def was_away(self, sample: Sample) -> bool:
        """Tell whether the writer of a sample was out of this host's reach when it wrote it."""
        del sample
        return False

    def taken_over(self, reader: ReaderKey) -> None:
        """Keep the instances of a served reader ALIVE: this node takes charge of it."""

    def handed_over(self, reader: ReaderKey) -> None:
        """Keep them no longer: another node has taken charge."""

    def ended(self, group: Group, samples: Sequence[Sample]) -> None:
        """Take in ends of writers that are new in the set of a group."""

    def revived(self, writer: bytes, groups: tuple[Group, ...]) -> None:
        """Take in that the instances of a writer that is back are alive again in the sets of these groups."""


class Clock(Protocol):
    """A clock that never jumps, and the wall clock, whose times are stored and shown."""

    def monotonic(self) -> float:
        """Return seconds since some moment."""
        ...

    def wall_ns(self) -> int:
        """Return nanoseconds since 1970 UTC."""
        ...


class Codec(Protocol):
    """Encoding of protocol messages; the product's own is `engine.runtime.codec`."""

    def encode(self, outgoing: Outgoing) -> bytes:
        """Return the message as bytes."""
        ...

    def decode(self, data: bytes) -> Envelope:
        """Return the message in `data`, or raise PeerFault or UnsupportedMessage (`engine.runtime.codec`)."""
        ...


class Wire(Protocol):
    """The way to fellows, applications and consoles.

    The runtime makes its wire, which answers with calls of the runtime.

    Attributes:
        alive: the instances that it keeps ALIVE in readers.
    """

    alive: AliveInstances

    def send(self, topic: str, payload: bytes) -> None:
        """Send a protocol message to all fellows; it contains its addressees."""
        ...

    def send_stream(
        self, name_space: str, fellows: tuple[str, ...], batches: Iterator[bytes], samples: int
    ) -> None:
        """Stream a set with this number of samples to fellows; answer with `Transfers.sent`."""
        ...

    def send_note(self, fellow: str, note: bytes) -> None:
        """Send one message of a comparison to one fellow; if it cannot be sent, nothing happens."""
        ...

    def open_group(self, description: GroupDescription, partitions: tuple[str, ...]) -> None:
        """Capture what is written to a group from now on; a second call may raise its durability.

        `partitions` accept the group's, and only partitions of its topic that are kept.
        """
        ...

    def deliver(
        self,
        reader: ReaderKey,
        groups: list[tuple[GroupDescription, SampleRows]],
        *,
        whole: bool,
        how: RevivingDelivery | ReplacingDelivery | None = None,
    ) -> None:
        """Deliver samples to the reader's process only, in order; answer with `LateJoinerDelivery.delivered`.

        Args:
            reader: process, topic and partitions.
            groups: samples by group, those of each instance oldest first.
            whole: it is the complete set, not a difference; the answer repeats it.
            how: see `RevivingDelivery` and `ReplacingDelivery`; None delivers the samples as they are.
        """
        ...

    def publish(self, topic: str, payload: bytes) -> None:
        """Publish a monitor message for consoles."""
        ...
