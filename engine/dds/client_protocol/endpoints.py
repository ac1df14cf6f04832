"""The endpoints of the protocol: topics, partitions and QoS, as OpenSplice defines them."""

from __future__ import annotations

from typing import Final

from engine.dataset.groups import KEEP_ALL
from engine.dds.capture_reader import CaptureReader
from engine.dds.participant import NodeParticipant
from engine.dds.qos import XCDR1, EndpointQos
from engine.dds.topics import Topic, open_topic, our_descriptions
from engine.dds.waiting import Signal
from engine.dds.writer import RawWriter

PARTITION: Final = "durabilityPartition"
STATE_REQUEST: Final = "d_durabilityStateRequest"
STATE: Final = "d_durabilityState"
HISTORY_REQUEST: Final = "d_historicalDataRequest"
HISTORY: Final = "d_historicalData"

_TYPES: Final = {
    STATE_REQUEST: "DDS::DurabilityStateRequest",
    STATE: "DDS::DurabilityState",
    HISTORY_REQUEST: "DDS::HistoricalDataRequest",
    HISTORY: "DDS::HistoricalData",
}
# A tenth of `SEND_TIMEOUT_S`: between two attempts the thread looks whether the client is gone or the node
# ends.
_BLOCKING_NS: Final = 3_000_000_000
_TOPIC_SCOPE: Final = 1


def open_topics(participant: NodeParticipant) -> dict[str, Topic]:
    """Open the four topics; return them by name."""
    types = our_descriptions()
    return {name: open_topic(participant, name, types[type_]) for name, type_ in _TYPES.items()}


def open_reader(
    participant: NodeParticipant,
    topic: Topic,
    partitions: tuple[str, ...],
    signal: Signal,
    *,
    limit: int = 10_000,
    name: str = "",
) -> CaptureReader:
    """Open a reader of one of the four topics.

    Args:
        participant: where the reader lives.
        topic: from `open_topics`.
        partitions: the partitions to read.
        signal: set when there is something to take.
        limit: size of the queue in samples; a full queue makes senders wait.
        name: the reader's entity name, which tools show.
    """
    qos = EndpointQos(history_depth=KEEP_ALL, partitions=partitions, representations=(XCDR1,), name=name)
    return CaptureReader(participant, topic, limit=limit, qos=qos, signal=signal)


def open_writer(
    participant: NodeParticipant,
    topic: Topic,
    partitions: tuple[str, ...],
    *,
    batching: bool = False,
    name: str = "",
    priority: int = 0,
) -> RawWriter:
    """Open a writer of one of the four topics; a write blocks for at most three seconds.

    Args:
        participant: where the writer lives.
        topic: from `open_topics`.
        partitions: the partitions to write.
        batching: whether samples are collected until a network message is full or flushed.
        name: the writer's entity name, which tools show.
        priority: TRANSPORT_PRIORITY.
    """
    qos = EndpointQos(
        blocking_ns=_BLOCKING_NS,
        history_depth=KEEP_ALL,
        by_source_timestamp=True,
        presentation=_TOPIC_SCOPE,
        partitions=partitions,
        representations=(XCDR1,),
        batching=batching,
        name=name,
        transport_priority=priority,
    )
    return RawWriter(participant, topic, qos)
