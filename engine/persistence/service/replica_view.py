"""The view that a running replica publishes of itself, and its encoding."""

from __future__ import annotations

import json
from typing import Any, Final

from engine.core import plain
from engine.core.lazy_dataclass import lazy_dataclass

TOPIC: Final = "p_status"
PAST_TOPIC: Final = "p_past"

FORMAT_VERSION: Final = 1
_KIND: Final = "replica"
MAX_BYTES: Final = 16 << 20
MAX_WRITERS_SHOWN: Final = 1_000


class ViewFault(ValueError):
    """A received payload is not the view of a replica."""


@lazy_dataclass(frozen=True, slots=True)
class PeerView:
    """Another replica: its link is `up`, `beginning`, or `refused` with the reason in `problem`."""

    name: str
    link: str
    problem: str = ""


@lazy_dataclass(frozen=True, slots=True)
class KeptGroupView:
    """A group with the number of instances kept (`values`), and of processes that read it (`readers`)."""

    partition: str
    topic: str
    type_name: str
    values: int
    readers: int


@lazy_dataclass(frozen=True, slots=True)
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
    lag_ns: int
    """Source time behind the furthest replica, nanoseconds."""
    stable: int
    """Periods in a row with the same choice, up to `stable_of`."""
    stable_of: int
    """Periods that a choice must stay the same before it is used."""
    unsettled: int
    """Periods without a stable choice, below `unsettled_of`."""
    unsettled_of: int
    """Periods without a stable choice after which the last one is used."""
    path: tuple[str, ...]
    """The replicas through which its samples come, this one last; empty if none come."""


@lazy_dataclass(frozen=True, slots=True)
class ReaderDeliveryView:
    """A delivery to a late reader; `problem` is empty for a good one, `seconds` its duration."""

    topic: str
    partition: str
    participant: str
    samples: int
    seconds: float
    problem: str


@lazy_dataclass(frozen=True, slots=True)
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
    quorum: int
    members: tuple[str, ...]
    pending: int
    in_doubt: dict[str, int]


@lazy_dataclass(frozen=True, slots=True)
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
    pid: int
    """Its process id."""
    domain_id: int
    """Its DDS domain."""
    store: str
    """Absolute path of its store directory."""
    started_ns: int
    """When it started, nanoseconds since 1970 UTC by its clock."""
    time_ns: int
    """When it made this view, nanoseconds since 1970 UTC by its clock."""
    synchronizes: bool
    """data_synchronization/enable."""
    period_ms: int
    """remote_provider_selection_period."""
    values: int
    """Instances kept."""
    transactions: int
    """Transactions written since the start."""
    unwritten: bool
    """Whether data waits for the disk."""
    peers: tuple[PeerView, ...]
    """Other replicas, by name."""
    groups: tuple[KeptGroupView, ...]
    """All groups."""
    writers: tuple[WriterView, ...]
    """Original writers, at most 1000; those that are in use come first."""
    writers_left_out: int
    """Writers beyond that."""
    deliveries: tuple[ReaderDeliveryView, ...]
    """The last 20 deliveries to late readers, oldest first."""
    subscriptions: tuple[SubscriptionView, ...]
    """All durable subscriptions."""
    counters: dict[str, int]
    """Counts since the start that are not 0; see docs/redundant-persistence.md."""
    problems: tuple[str, ...] = ()
    """Sentences about present problems."""
    ending: bool = False
    """Whether the replica stops cleanly and this is its last view."""


def encode(view: ReplicaView) -> bytes:
    """Return the bytes of a view."""
    document = {"format_version": FORMAT_VERSION, "kind": _KIND, "data": plain.to_plain(view)}
    return json.dumps(document, separators=(",", ":")).encode()


def decode(payload: bytes) -> ReplicaView:
    """Return the view in a payload.

    Raises:
        ViewFault: not a view, or one of an unknown version.
    """
    if len(payload) > MAX_BYTES:
        raise ViewFault(f"{len(payload)} bytes are too many")
    try:
        document: Any = json.loads(payload)
        if document["format_version"] != FORMAT_VERSION or document["kind"] != _KIND:
            raise ViewFault("of an unknown version")
        view: ReplicaView = plain.from_plain(ReplicaView, document["data"])
    except Exception as error:  # of any class: anybody may have sent it
        raise ViewFault(f"not a view of a replica: {plain.words_of(error)}"[:200]) from error
    return view
