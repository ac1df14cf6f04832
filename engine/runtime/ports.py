"""What a runtime is given: a clock, a wire, and a way to give data to late joiners.

The live node has Cyclone DDS and threads behind them, the simulator has virtual time. Calls return at once;
what takes time is reported back by a call to the runtime.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from engine.core.messages import Outgoing, ReaderKey
    from engine.core.namespaces import Group
    from engine.dataset.groups import GroupDescription
    from engine.dataset.rows import Rows
    from engine.runtime.codec import Envelope


class FilterRefused(Exception):
    """A content filter does not fit the type of a group, which must not be kept then; the text says why."""


class Gate(Protocol):
    """The content filter of one group."""

    def accepts(self, status: int, payload: bytes) -> bool | None:
        """Whether a sample may be kept; None for a dispose or unregister whose key does not tell.

        A sample that cannot be decoded may not.
        """


class Filters(Protocol):
    """The content filters of a node (//OpenSplice/Domain/Filters)."""

    def gate(self, description: GroupDescription) -> Gate | None:
        """The filter of a group; None where none applies.

        Raises:
            FilterRefused: it does not fit the group's type.
        """


class NoFilters:
    """Everything is kept."""

    def gate(self, description: GroupDescription) -> Gate | None:
        """None."""
        del description
        return None


@dataclasses.dataclass(frozen=True, slots=True)
class Delivered:
    """What became of a delivery.

    Attributes:
        samples: acknowledged by the reader's process.
        elapsed_ns: how long it took.
        problem: why it is not complete and must be tried again; empty when it is.
        refused: readers whose QoS or type does not fit, each with both sides named; they get nothing.
        readers: GUIDs of the readers that got all of it.
        resent: how often resource limits of readers left no room, and it was tried again.
        not_kept: groups whose instances are not kept ALIVE, for the sake of a reader's max_instances.
    """

    samples: int = 0
    elapsed_ns: int = 0
    problem: str = ""
    refused: tuple[str, ...] = ()
    readers: frozenset[bytes] = frozenset()
    resent: int = 0
    not_kept: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Again:
    """Readers have these samples: only the newest of each instance is shown, so that it is ALIVE again.

    Attributes:
        writer: GUID of the writer that they lost, and that is back: of instances that depend on it. Empty
            when they have lost the node that was in charge of them: of all that have a living writer.
    """

    writer: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Instead:
    """Samples take the place of what readers have: those ordered by source time must take them, too.

    Attributes:
        times: by group and instance, the newest source time that readers have.
    """

    times: Mapping[Group, Mapping[bytes, int]]


class Clock(Protocol):
    """Two clocks: one that never jumps, and the wall clock, whose stamps are stored and shown."""

    def monotonic(self) -> float:
        """Seconds since any moment."""
        ...

    def wall_ns(self) -> int:
        """Nanoseconds since 1970 UTC."""
        ...


class Codec(Protocol):
    """How protocol messages are written; `engine.runtime.codec` is the one of our own wire."""

    def encode(self, outgoing: Outgoing) -> bytes:
        """The message as bytes."""
        ...

    def decode(self, data: bytes) -> Envelope:
        """The message in `data`; raises PeerFault or UnsupportedMessage, see `engine.runtime.codec`."""
        ...


class Wire(Protocol):
    """The way to fellows, applications and consoles."""

    def send(self, topic: str, payload: bytes) -> None:
        """Send a protocol message to all fellows; the addressees are written inside."""
        ...

    def send_stream(
        self, name_space: str, fellows: tuple[str, ...], batches: Iterator[bytes], samples: int
    ) -> None:
        """Stream a set of so many samples to fellows; answer with `Runtime.stream_sent`."""
        ...

    def send_note(self, fellow: str, note: bytes) -> None:
        """Send one batch that is no stream to one fellow; if it cannot be sent, nothing happens."""
        ...

    def open_group(self, description: GroupDescription) -> None:
        """Capture whatever is written to a group from now on; a second call changes nothing."""
        ...

    def deliver(
        self,
        reader: ReaderKey,
        groups: list[tuple[GroupDescription, Rows]],
        *,
        whole: bool,
        how: Again | Instead | None = None,
    ) -> None:
        """Give samples to the reader's process only, in order; answer with `Serving.delivered`.

        `whole` tells a complete set from a difference, and comes back with the answer. With `Again`, only
        what the readers need to see these instances ALIVE is given; see also `Instead`.
        """
        ...

    def publish(self, topic: str, payload: bytes) -> None:
        """Put a monitor message where consoles see it."""
        ...
