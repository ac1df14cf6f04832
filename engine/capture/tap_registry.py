"""The taps of a process: one for each topic and type, or several where it keeps only some partitions."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from engine.capture.tap import Tap
from engine.core.expressions import is_literal, name_within
from engine.dataset.groups import meets
from engine.dataset.sample import DATA
from engine.dds import abi
from engine.dds.capture_reader import ANY_PARTITION, CaptureReader
from engine.dds.errors import DdsError
from engine.dds.own_types import SelfCheck
from engine.dds.qos import incompatibilities
from engine.dds.topics import Topic, announced, open_topic
from engine.dds.typeinfo import Resolution, resolve_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import TypeAlias

    from engine.capture.tap import TapMove
    from engine.core.name_spaces import Group
    from engine.dataset.captured import CapturedRun
    from engine.dataset.groups import DurabilityKind, GroupDescription
    from engine.dataset.sample import Sample
    from engine.dds.discovery import EndpointSeen
    from engine.dds.participant import NodeParticipant
    from engine.dds.qos import EndpointQos
    from engine.dds.waiting import Waker

# One drain takes at most 20,000 samples: of 800 bytes these fit. A larger queue is memory for each topic, a
# smaller one holds writers back while the node works on a large set.
TAP_BYTES: Final = 16 << 20
"""Queue size of a tap; a full queue holds its writers back."""
NOWHERE: Final = "ospltool.types*"
"""A partition for readers that match nobody: not even writers in `*`, since both are expressions."""
# A fraction of `REMEMBER_S` and `LISTEN_S`, which end at such calls.
MOVING_S: Final = 0.1
"""Period for calls of `turn` while a tap moves."""


T = TypeVar("T", bound="Sample | CapturedRun")

_Key: TypeAlias = "tuple[str, str]"
"""Topic and type."""


class _Part(msgspec.Struct, frozen=True):
    """One tap of a topic and type, with the partitions that its reader requests."""

    partitions: tuple[str, ...]
    tap: Tap

    def meets(self, groups: Iterable[Group]) -> bool:
        """Tell whether it matches a writer that writes to these groups."""
        return any(meets(mine, group.partition) for group in groups for mine in self.partitions)


class TapRegistry:
    """The taps; one thread opens them, and others may read them.

    A writer sees from a match that it is kept (docs/client.md), so the reader of a tap is in partitions that
    are kept, and in no other. One tap is enough if expressions say which these are. If not, each partition
    gets one when its first writer is found: Cyclone DDS cannot change the partitions of a reader.

    A writer in several partitions may then match several taps. The first of them, in the order in which they
    were opened, captures it, and `once` drops what the others get of it. So a tap that is opened later takes
    no writer from another one, and loses or repeats nothing.

    Two expressions never match (DDS 1.4, 2.2.3.13): a group whose partition is the expression `A*`, which no
    tap matches, gets a tap in a partition within it.

    Args:
        participant: where they live; its tag is the USER_DATA of their readers.
        signal: a signal, or a bell of one, that is set when one of them has records.
    """

    def __init__(self, participant: NodeParticipant, signal: Waker) -> None:
        self._participant = participant
        self._signal = signal
        self._parts: dict[_Key, list[_Part]] = {}
        self._keys: dict[Tap, _Key] = {}
        self.further: set[Tap] = set()
        """Taps that are not the first of their topic and type; what they drain goes through `once`."""
        self._raised: list[_Key] = []
        self._types: dict[_Key, CaptureReader] = {}
        self._problems: dict[_Key, str] = {}

    def __iter__(self) -> Iterator[Tap]:
        return iter(list(self._keys))

    def open(self, description: GroupDescription, partitions: tuple[str, ...] = ANY_PARTITION) -> None:
        """Open a tap for a group, or let the open ones request at least the group's durability.

        Of groups that request different durability the highest counts, in any order. A group whose type this
        service cannot use gets no tap; `problem` returns the reason.

        Args:
            description: the group.
            partitions: names and expressions; one of them accepts the group's partition, and all of them
                accept only partitions that are kept.
        """
        group, qos = description.group, description.qos
        key = _key(group)
        self._show_type(description)
        parts = self._parts.get(key, [])
        if self.request(description) and any(part.meets((group,)) for part in parts):
            return
        try:
            topic = open_topic(self._participant, group.topic, announced(description.type))
        except DdsError as error:
            self._problems[key] = str(error)
            return
        if not is_literal(group.partition):
            partitions = (name_within(group.partition),)
        # All taps of a topic request the same: a writer matches all that it meets, or none, so that the one
        # which captures it stays the same.
        first = parts[0].tap.qos if parts else None

        def make(durability: DurabilityKind, *, hears: bool) -> CaptureReader:
            return CaptureReader(
                self._participant,
                topic,
                partitions=partitions,
                capacity_bytes=TAP_BYTES,
                exclusive=qos.exclusive if first is None else first.exclusive,
                durability=durability,
                # Of a writer with a key and without type information nothing can be kept.
                needs_type=description.type.keyed,
                user_data=self._participant.tag.encode(),
                signal=self._signal,
                hears=hears,
            )

        tap = Tap(make, qos.requested if first is None else first.durability)
        part = _Part(partitions, tap)
        assert part.meets((group,)), (partitions, group)
        self._keys[tap] = key
        self._parts[key] = [*parts, part]
        if parts:
            self.further.add(tap)

    def _show_type(self, description: GroupDescription) -> None:
        """Announce the type of a topic without key to those who look for it, such as `ospltool cat`.

        The tap tells its name only (`engine.dds.topics.announced`), and the writers may be gone. So a
        reader that matches nobody tells the rest.
        """
        type_, key = description.type, _key(description.group)
        if type_.keyed or type_.is_untyped or key in self._types:
            return
        with contextlib.suppress(DdsError):  # without it samples are shown as bytes
            self._types[key] = CaptureReader(
                self._participant,
                open_topic(self._participant, description.group.topic, type_),
                partitions=(NOWHERE,),
                reliable=False,
                hears=False,
            )

    def request(self, description: GroupDescription) -> bool:
        """Let the taps of a topic, if there are any, request at least the group's durability."""
        key = _key(description.group)
        parts = self._parts.get(key, [])
        raised = [part.tap.request(description.qos.requested) for part in parts]
        if any(raised):
            self._raised.append(key)
        return bool(parts)

    def is_tapped(self, group: Group) -> bool:
        """Tell whether there is a tap that captures the writers of a group."""
        return self._captor(_key(group), (group,)) is not None

    def problem(self, group: Group) -> str:
        """Return why the type of a group cannot be used; empty if that has not failed."""
        return self._problems.get(_key(group), "")

    def take_raised(self) -> list[tuple[str, str]]:
        """Take the topics and types whose taps request more since the last call: fewer writers match them."""
        raised, self._raised = self._raised, []
        return raised

    def refusals(self, groups: tuple[Group, ...], offer: EndpointQos) -> tuple[str, ...] | None:
        """Return the policies that keep a writer of these groups from matching its tap; None without one."""
        tap = self._captor(_key(groups[0]), groups)
        return None if tap is None else incompatibilities(offer, tap.qos)

    def is_matched(self, groups: tuple[Group, ...], writer: int) -> bool | None:
        """Tell whether the tap of a writer of these groups, with this handle, matches it; None without it."""
        tap = self._captor(_key(groups[0]), groups)
        return None if tap is None else tap.is_matched(writer)

    def is_sound(self, group: Group, sample: Sample) -> bool | None:
        """Tell whether a tap of the group's topic could have captured a sample; None without one."""
        parts = self._parts.get(_key(group))
        if not parts:
            return None
        entity, is_key = parts[0].tap.topic.entity, not sample.status & DATA
        return abi.as_written(entity, sample.payload, is_key=is_key) == (sample.key, sample.payload)

    def once(
        self,
        tap: Tap,
        records: list[T],
        routes: Mapping[bytes, tuple[Group, ...]],
    ) -> list[T]:
        """Return the records of a tap without those of writers that another tap captures.

        Args:
            tap: what they were drained from.
            records: its records; those of writers without a route are returned.
            routes: the groups of each writer.
        """
        if tap not in self.further:
            return records
        key = self._keys[tap]
        is_own: dict[bytes, bool] = {}
        for writer in {record.writer for record in records}:
            groups = routes.get(writer)
            is_own[writer] = not groups or self._captor(key, groups) is tap
        return [record for record in records if is_own[record.writer]]

    def _captor(self, key: _Key, groups: Iterable[Group]) -> Tap | None:
        """Return the tap that captures a writer of these groups: the first one that it meets."""
        return next((part.tap for part in self._parts.get(key, ()) if part.meets(groups)), None)

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
    return group.topic, group.type_id


def look_up_type(participant: NodeParticipant, writer: EndpointSeen, *, attempts: int) -> Resolution:
    """Request the type of a writer from the network; see `resolve_type`.

    A question to everybody comes first. Some implementations, such as Fast DDS 3.2, answer only a question
    that names them, and Cyclone DDS asks so in order to match a reader with a writer of another type.
    Therefore a reader of another type tries to match the writer during the other attempts.
    """
    assert writer.type is not None
    found = resolve_type(participant, writer.type, attempts=1)
    if found.type is not None or participant.closed:
        return found
    partitions = [one if is_literal(one) else name_within(one) for one in writer.partitions]
    with contextlib.ExitStack() as stack:
        # A reader that cannot be made leaves the type to the other attempts.
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


# Chosen, as `MAX_BACKLOG` of `engine.node.intake`: both are samples in memory.
MAX_UNROUTED: Final = 200_000
"""Limit for waiting samples; beyond it all of them are dropped and counted."""


class UnroutedSamples:
    """Samples that wait for discovery, which reports their writer within moments."""

    def __init__(self) -> None:
        self._waiting: dict[Tap, list[Sample]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def before(self, tap: Tap) -> list[Sample]:
        """Take all waiting samples of a tap; they come before what it has now."""
        return self._waiting.pop(tap, [])

    def wait(self, tap: Tap, samples: Iterable[Sample]) -> None:
        """Add samples of unknown writers, which a tap captured."""
        if waiting := [*samples]:
            self._waiting.setdefault(tap, []).extend(waiting)

    def drop_surplus(self) -> int:
        """Drop all samples if more than `MAX_UNROUTED` wait; return their number."""
        count = len(self)
        if count <= MAX_UNROUTED:
            return 0
        self._waiting.clear()
        return count
