"""The taps of a process, one for each topic and type."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, TypeVar

from engine.capture.tap import Tap
from engine.core.expressions import is_literal, name_within
from engine.dataset.sample import DATA
from engine.dds import abi
from engine.dds.capture_reader import ANY_PARTITION, CaptureReader
from engine.dds.errors import DdsError
from engine.dds.own_types import SelfCheck
from engine.dds.qos import incompatibilities
from engine.dds.topics import Topic, announced, open_topic
from engine.dds.typeinfo import Resolution, resolve_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import TypeAlias

    from engine.capture.tap import TapMove
    from engine.core.name_spaces import Group
    from engine.dataset.captured import CapturedSample
    from engine.dataset.groups import DurabilityKind, GroupDescription
    from engine.dataset.sample import Sample
    from engine.dds.discovery import EndpointSeen
    from engine.dds.participant import NodeParticipant
    from engine.dds.qos import EndpointQos
    from engine.dds.waiting import Waker

TAP_BYTES: Final = 16 << 20
"""Queue size of a tap; a full queue holds its writers back."""
NOWHERE: Final = "ospltool.types*"
"""A partition for readers that match nobody: not even writers in `*`, since both are expressions."""
MOVING_S: Final = 0.1
"""Period for calls of `turn` while a tap moves."""


_Key: TypeAlias = "tuple[str, str, str]"
"""Topic, type, and the reader's partition: empty for all partitions that are not expressions."""


class TapRegistry:
    """The taps; one thread opens them, and others may read them.

    A reader in every partition (`*`) does not match a writer in `A*`: two expressions never match (DDS 1.4,
    2.2.3.13). A group with such a name has its own tap, in a partition that matches the expression.

    Args:
        participant: where they live.
        signal: a signal, or a bell of one, that is set when one of them has records.
    """

    def __init__(self, participant: NodeParticipant, signal: Waker) -> None:
        self._participant = participant
        self._signal = signal
        self._taps: dict[_Key, Tap] = {}
        self._raised: list[tuple[str, str]] = []
        self._types: dict[tuple[str, str], CaptureReader] = {}
        self._problems: dict[tuple[str, str], str] = {}

    def __iter__(self) -> Iterator[Tap]:
        return iter(list(self._taps.values()))

    def open(self, description: GroupDescription) -> None:
        """Open the tap for a group, or let an open one request at least the group's durability.

        Of groups that request different durability the highest counts, in any order. A group whose type this
        service cannot use gets no tap; `problem` returns the reason.
        """
        key = _key(description.group)
        self._show_type(description)
        if key in self._taps:
            self.request(description)
            return
        try:
            topic = open_topic(self._participant, description.group.topic, announced(description.type))
        except DdsError as error:
            self._problems[key[:2]] = str(error)
            return

        def make(durability: DurabilityKind, *, hears: bool) -> CaptureReader:
            return CaptureReader(
                self._participant,
                topic,
                partitions=(key[2],) if key[2] else ANY_PARTITION,
                capacity_bytes=TAP_BYTES,
                exclusive=description.qos.exclusive,
                durability=durability,
                signal=self._signal,
                hears=hears,
            )

        self._taps[key] = Tap(make, description.qos.requested)

    def _show_type(self, description: GroupDescription) -> None:
        """Announce the type of a topic without key to those who look for it, such as `ospltool cat`.

        The tap tells its name only (`engine.dds.topics.announced`), and the writers may be gone. So a
        reader that matches nobody tells the rest.
        """
        type_, name = description.type, description.group.topic
        if type_.keyed or type_.is_untyped or (name, type_.type_id) in self._types:
            return
        with contextlib.suppress(DdsError):  # without it samples are shown as bytes
            self._types[name, type_.type_id] = CaptureReader(
                self._participant,
                open_topic(self._participant, name, type_),
                partitions=(NOWHERE,),
                reliable=False,
                hears=False,
            )

    def request(self, description: GroupDescription) -> None:
        """Let the tap of a group, if there is one, request at least the group's durability."""
        key = _key(description.group)
        if key in self._taps and self._taps[key].request(description.qos.requested):
            self._raised.append(key[:2])

    def is_tapped(self, group: Group) -> bool:
        """Tell whether there is a tap that captures the writers of a group."""
        return _key(group) in self._taps

    def problem(self, group: Group) -> str:
        """Return why the type of a group cannot be used; empty if that has not failed."""
        return self._problems.get(_key(group)[:2], "")

    def take_raised(self) -> list[tuple[str, str]]:
        """Take the topics and types whose taps request more since the last call: fewer writers match them."""
        raised, self._raised = self._raised, []
        return raised

    def refusals(self, group: Group, offer: EndpointQos) -> tuple[str, ...] | None:
        """Return the policies that keep a writer from matching the tap of a group; None without a tap."""
        tap = self._taps.get(_key(group))
        return None if tap is None else incompatibilities(offer, tap.qos)

    def is_matched(self, group: Group, writer: int) -> bool | None:
        """Tell whether the tap of a group matches the writer with this handle; None without a tap."""
        tap = self._taps.get(_key(group))
        return None if tap is None else tap.is_matched(writer)

    def is_sound(self, group: Group, sample: Sample) -> bool | None:
        """Tell whether a tap of the group could have captured a sample; None without a tap."""
        tap = self._taps.get(_key(group))
        if tap is None:
            return None
        is_key = not sample.status & DATA
        return abi.as_written(tap.topic.entity, sample.payload, is_key=is_key) == (sample.key, sample.payload)

    def turn(self) -> list[TapMove]:
        """Continue the moves of taps; return the completed ones. The draining thread calls this."""
        return [moved for tap in self if (moved := tap.turn()) is not None]

    @property
    def patience_s(self) -> float:
        """Seconds until `turn` should be called again."""
        return MOVING_S if self.is_moving else float("inf")

    @property
    def is_moving(self) -> bool:
        """Whether a tap moves."""
        return any(tap.is_moving for tap in self)

    def has_news(self) -> bool:
        """Tell whether a tap has records."""
        return any(len(tap) for tap in self)

    def close(self) -> None:
        """Stop capturing."""
        for one in (*self, *self._types.values()):
            one.close()


def _key(group: Group) -> _Key:
    name = group.partition
    stand_in = "" if is_literal(name) else name_within(name)
    return group.topic, group.type_id, stand_in


def look_up_type(participant: NodeParticipant, writer: EndpointSeen, *, attempts: int) -> Resolution:
    """Request the type of a writer from the network; see `resolve_type`.

    A question to everybody comes first. Some implementations, such as Fast DDS 3.2, answer only a question
    that names them, and Cyclone DDS asks so in order to match a reader with a writer of another type.
    Therefore a reader of a type of ours tries to match the writer during the other attempts.
    """
    assert writer.type is not None
    found = resolve_type(participant, writer.type, attempts=1)
    if found.type is not None or participant.closed:
        return found
    partitions = [one if is_literal(one) else name_within(one) for one in writer.partitions]
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(DdsError):
            topic = Topic.of_class(participant, writer.topic, SelfCheck)
            stack.callback(topic.close)
            reader = CaptureReader(
                participant,
                topic,
                partitions=tuple(partitions) or ("",),
                exclusive=writer.endpoint_qos.exclusive,
                reliable=False,
                hears=False,
            )
            stack.callback(reader.close)
        return resolve_type(participant, writer.type, attempts=max(1, attempts - 1))


MAX_ORPHANS: Final = 200_000
"""Limit for waiting samples; beyond it all of them are dropped and counted."""

T = TypeVar("T")


class Orphans:
    """Samples that wait for discovery, which reports their writer within moments."""

    def __init__(self) -> None:
        self._waiting: list[CapturedSample] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def before(self, taken: list[T]) -> list[T | CapturedSample]:
        """Take all waiting samples, and put records of a tap behind them."""
        waiting, self._waiting = self._waiting, []
        return [*waiting, *taken]

    def wait(self, samples: Iterable[CapturedSample]) -> None:
        """Add samples of unknown writers."""
        self._waiting += samples

    def drop_surplus(self) -> int:
        """Drop all samples if more than `MAX_ORPHANS` wait; return their number."""
        count = len(self._waiting)
        if count <= MAX_ORPHANS:
            return 0
        self._waiting = []
        return count
