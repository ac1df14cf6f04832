"""The view that a running replica publishes of itself, and its encoding."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Final, Literal

import msgspec

from engine.core.untrusted import words_of

TOPIC: Final = "p_status"
PAST_TOPIC: Final = "p_past"

MAX_BYTES: Final = 16 << 20
"""A view of all bounds is smaller; a larger one only costs the memory of those that read it."""
# Chosen, some hundred kilobytes.
MAX_WRITERS_SHOWN: Final = 1_000
"""A view is made each second, and nobody reads more."""


Number = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""A number that a float can hold: who shows it may divide by it."""


class ViewFault(ValueError):
    """A received payload is not the view of a replica."""


@dataclasses.dataclass(frozen=True, slots=True)
class PeerView:
    """Another replica: its link is `up`, `beginning`, or `refused` with the reason in `problem`."""

    name: str
    link: str
    problem: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class KeptGroupView:
    """A group with the number of instances kept (`values`), and of processes that read it (`readers`)."""

    partition: str
    topic: str
    type_name: str
    values: Number
    readers: Number


@dataclasses.dataclass(frozen=True, slots=True)
class WriterView:
    """An original writer in one group."""

    writer: str
    """Its GUID, 32 hexadecimal digits."""
    topic: str
    """Its topic."""
    partition: str
    """One of its partitions."""
    late: bool
    """Whether this is its stream of late samples (`engine.persistence.core.positions`)."""
    direct: bool
    """Whether it is connected to this replica."""
    provider: str
    """The provider in use: `original`, the name of a replica, or empty for none."""
    filling: tuple[str, ...]
    """The replicas in use that give samples which the provider does not give."""
    selected: str
    """The provider that the last period chose; it is used once the choice is stable."""
    selected_filling: tuple[str, ...]
    """The replicas that the last period chose beside it."""
    lag_ns: Number
    """Source time behind the furthest replica, nanoseconds."""
    stable: Number
    """Periods in a row with the same choice, up to `stable_of`."""
    stable_of: Number
    """Periods that a choice must stay the same before it is used."""
    unsettled: Number
    """Periods without a stable choice, below `unsettled_of`."""
    unsettled_of: Number
    """Periods without a stable choice after which the last one is used."""
    path: tuple[str, ...]
    """The replicas through which its samples come, this one last; empty if none come."""


@dataclasses.dataclass(frozen=True, slots=True)
class ReaderDeliveryView:
    """A delivery to a late reader; `problem` is empty for a good one, `seconds` its duration."""

    topic: str
    partition: str
    participant: str
    samples: Number
    seconds: float
    problem: str


@dataclasses.dataclass(frozen=True, slots=True)
class SubscriptionView:
    """A durable subscription in one group.

    Attributes:
        name: of the durable subscription (role_name).
        topic: its topic.
        partition: of the group; with no group yet, expressions separated by commas.
        quorum: members that must acknowledge a sample.
        members: readers that are connected to this replica.
        pending: samples that the quorum has not acknowledged.
        in_doubt: by member, how many samples it has acknowledged and the quorum has not.
    """

    name: str
    topic: str
    partition: str
    quorum: Number
    members: tuple[str, ...]
    pending: Number
    in_doubt: dict[str, Number]


@dataclasses.dataclass(frozen=True, slots=True)
class ReplicaView:
    """One replica of a persistence service."""

    service: str
    """Name of the persistence_service element."""
    name: str
    """Name of the replica."""
    id: str
    """Id of its store, 32 hexadecimal digits."""
    host: str
    """Name of its host."""
    pid: Number
    """Its process id."""
    domain_id: Number
    """Its DDS domain."""
    store: str
    """Absolute path of its store directory."""
    started_ns: Number
    """When it started, nanoseconds since 1970 UTC by its clock."""
    time_ns: Number
    """When it made this view, nanoseconds since 1970 UTC by its clock."""
    synchronizes: bool
    """data_synchronization/enable."""
    period_ms: Number
    """remote_provider_selection_period."""
    values: Number
    """Instances kept."""
    transactions: Number
    """Transactions written since the start."""
    unwritten: bool
    """Whether data waits for the disk."""
    peers: tuple[PeerView, ...]
    """Other replicas, by name."""
    groups: tuple[KeptGroupView, ...]
    """All groups."""
    writers: tuple[WriterView, ...]
    """Original writers, at most 1000; those that are in use come first."""
    writers_left_out: Number
    """Writers beyond that."""
    deliveries: tuple[ReaderDeliveryView, ...]
    """The last 20 deliveries to late readers, oldest first."""
    subscriptions: tuple[SubscriptionView, ...]
    """All durable subscriptions."""
    counters: dict[str, Number]
    """Counts since the start that are not 0; see docs/redundant-persistence.md."""
    problems: tuple[str, ...] = ()
    """Sentences about present problems."""
    ending: bool = False
    """Whether the replica stops cleanly and this is its last view."""
    digest: str = ""
    """Of all values kept, 16 hexadecimal digits: the same at replicas that keep the same."""


class _Document(msgspec.Struct):
    data: ReplicaView
    format_version: Literal[1] = 1
    kind: Literal["replica"] = "replica"


_DECODER: Final = msgspec.json.Decoder(_Document)


def encode(view: ReplicaView) -> bytes:
    """Return the bytes of a view."""
    return msgspec.json.encode(_Document(view))


def decode(payload: bytes) -> ReplicaView:
    """Return the view in a payload.

    Raises:
        ViewFault: not a view, or one of an unknown version.
    """
    if len(payload) > MAX_BYTES:
        raise ViewFault(f"{len(payload)} bytes are too many")
    try:
        return _DECODER.decode(payload).data
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ViewFault(f"not a view of a replica: {words_of(error)}"[:200]) from error
