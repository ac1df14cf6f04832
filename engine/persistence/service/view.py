"""What a running replica shows of itself, and how that travels."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Final

from engine.core import plain

TOPIC: Final = "p_status"
PAST_TOPIC: Final = "p_past"

FORMAT_VERSION: Final = 1
_KIND: Final = "replica"
_KINDS: Final = (_KIND, "instance")
"""The kinds that are read: release 0.1 called a replica an instance."""
MAX_BYTES: Final = 16 << 20
MAX_WRITERS_SHOWN: Final = 1_000


class ViewFault(ValueError):
    """What arrived is not what a replica shows."""


@dataclasses.dataclass(frozen=True, slots=True)
class PeerView:
    """Another replica: its link is `up`, `beginning`, or `refused` with the reason in `problem`."""

    name: str
    link: str
    problem: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class KeptGroupView:
    """A group with the number of instances kept, and of processes that read it."""

    partition: str
    topic: str
    type_name: str
    values: int
    readers: int


@dataclasses.dataclass(frozen=True, slots=True)
class WriterView:
    """An original writer in one group.

    Attributes:
        writer: its GUID, 32 hexadecimal digits.
        topic, partition: what it writes, and where.
        late: it is its stream of late samples (`engine.persistence.core.positions`).
        direct: it is connected with this replica.
        provider: whose samples are used now: `original`, the name of a replica, or empty for nobody.
        filling: replicas that give what the provider does not.
        selected: the provider that the last period chose; another one than `provider` until it is stable.
        selected_filling: likewise.
        lag_ns: source time behind the replica that is furthest.
        stable: periods in a row with the same choice, up to `stable_of`.
        stable_of: how many are needed.
        unsettled: periods without a stable choice, of `unsettled_of`.
        unsettled_of: after so many the last choice is used, and `unsettled` is 0 again.
        path: the replicas through which its samples come, this one last; empty when nothing comes.
    """

    writer: str
    topic: str
    partition: str
    late: bool
    direct: bool
    provider: str
    filling: tuple[str, ...]
    selected: str
    selected_filling: tuple[str, ...]
    lag_ns: int
    stable: int
    stable_of: int
    unsettled: int
    unsettled_of: int
    path: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class ReaderDeliveryView:
    """What a reader that came late was given."""

    topic: str
    partition: str
    participant: str
    samples: int
    seconds: float
    problem: str


@dataclasses.dataclass(frozen=True, slots=True)
class SubscriptionView:
    """A durable subscription in one group.

    Attributes:
        name, topic, partition, quorum: what it is.
        members: readers that are connected with this replica.
        pending: samples that the quorum has not acknowledged.
        in_doubt: what a member has acknowledged and the quorum has not: how many samples, by member.
    """

    name: str
    topic: str
    partition: str
    quorum: int
    members: tuple[str, ...]
    pending: int
    in_doubt: dict[str, int]


@dataclasses.dataclass(frozen=True, slots=True)
class ReplicaView:
    """One replica of a persistence service.

    Attributes:
        service: name of the persistence_service element.
        name: of the replica.
        id: of its store.
        host, pid, domain_id, store: where it is.
        started_ns, time_ns: wall clock at its start and now.
        synchronizes: data_synchronization/enable.
        period_ms: remote_provider_selection_period.
        values: instances kept.
        transactions: written since the start.
        unwritten: something waits for the disk.
        peers, groups, writers, deliveries, subscriptions: what it knows; of writers at most 1000.
        writers_left_out: those beyond.
        counters: since the start; see docs/redundant-persistence.md.
        problems: what is wrong now.
        ending: it ends in order, and this is the last that it shows.
    """

    service: str
    name: str
    id: str
    host: str
    pid: int
    domain_id: int
    store: str
    started_ns: int
    time_ns: int
    synchronizes: bool
    period_ms: int
    values: int
    transactions: int
    unwritten: bool
    peers: tuple[PeerView, ...]
    groups: tuple[KeptGroupView, ...]
    writers: tuple[WriterView, ...]
    writers_left_out: int
    deliveries: tuple[ReaderDeliveryView, ...]
    subscriptions: tuple[SubscriptionView, ...]
    counters: dict[str, int]
    problems: tuple[str, ...] = ()
    ending: bool = False


def encode(view: ReplicaView) -> bytes:
    """As bytes."""
    document = {"format_version": FORMAT_VERSION, "kind": _KIND, "data": plain.to_plain(view)}
    return json.dumps(document, separators=(",", ":")).encode()


def decode(payload: bytes) -> ReplicaView:
    """What a replica showed.

    Raises:
        ViewFault: it is none, or of a version that is not known.
    """
    if len(payload) > MAX_BYTES:
        raise ViewFault(f"{len(payload)} bytes are too many")
    try:
        document: Any = json.loads(payload)
        if document["format_version"] != FORMAT_VERSION or document["kind"] not in _KINDS:
            raise ViewFault("of a version that is not known")
        view: ReplicaView = plain.from_plain(ReplicaView, document["data"])
    except (plain.PlainFault, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ViewFault(f"no view of a replica: {error!r}"[:200]) from error
    return view
