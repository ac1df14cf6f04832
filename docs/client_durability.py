"""The types of the four topics of the client-durability protocol, as OpenSplice declares them.

Cyclone DDS needs their descriptions to create the topics with the right names and keys: `docs.own_types`
writes them to a file. `engine.dds.client_protocol.encoding` writes and reads the bytes itself, so the product
does without these classes; a test holds its bytes against what Cyclone DDS makes of them.

Strings that OpenSplice may send as NULL (length 0) are byte sequences here, which look the same on the wire;
Cyclone DDS refuses a string without its terminating zero. The field types are evaluated when the module
loads: the wheel cannot resolve them as text.
"""

# The base classes come without types; their class keyword cannot be checked.
# mypy: disable-error-code="misc,call-arg,valid-type"

from dataclasses import dataclass

from cyclonedds.idl import IdlStruct, IdlUnion
from cyclonedds.idl.annotations import autoid, final, key
from cyclonedds.idl.types import array, case, int32, int64, sequence, uint8, uint16, uint32

_Text = sequence[uint8]


@dataclass
@final
@autoid("sequential")
class WireTime(IdlStruct, typename="DDS.Time_t"):
    """A time since 1970, or a duration. Both numbers 0x7FFFFFFF: infinite. -1 and 0xFFFFFFFF: invalid."""

    seconds: int32
    nanoseconds: uint32
    """0 to 999,999,999, added to the seconds."""


@dataclass
@final
@autoid("sequential")
class WireVersion(IdlStruct, typename="DDS.DurabilityVersion_t"):
    """The version of the protocol, and the vendor of the sender as in RTPS."""

    major: uint16
    minor: uint16
    vendor_0: uint8
    vendor_1: uint8


@dataclass
@final
@autoid("sequential")
class Gid(IdlStruct, typename="DDS.Gid_t"):
    """The id of a client or a server: 16 bytes as two numbers."""

    prefix: int64
    suffix: int64


@dataclass
@final
@autoid("sequential")
class KeyRequestId(IdlStruct, typename="DDS.RequestId_t"):
    """The id of a request, in the request itself. The client is the key of the topic."""

    client: Gid
    key("client")
    number: uint32
    """The client's own number for the request."""


@dataclass
@final
@autoid("sequential")
class PlainRequestId(IdlStruct, typename="DDS.RequestId_nk"):
    """The id of a request, in its answer, where it is not a key."""

    client: Gid
    number: uint32
    """The client's own number for the request."""


@dataclass
@final
@autoid("sequential")
class NameValue(IdlStruct, typename="DDS.NameValue_t"):
    """An addition to a message beyond the protocol. A receiver ignores names that it does not know."""

    name: _Text
    value: sequence[uint8]


@dataclass
@final
@autoid("sequential")
class ReaderQos(IdlStruct, typename="DDS.DataReaderQos"):
    """The policies of the client's reader. Kinds have the numbers of the DDS standard.

    A server uses `durability` only.
    """

    durability: int32
    """0 VOLATILE, 1 TRANSIENT_LOCAL, 2 TRANSIENT, 3 PERSISTENT."""
    deadline: WireTime
    latency_budget: WireTime
    liveliness: int32
    """0 AUTOMATIC, 1 MANUAL_BY_PARTICIPANT, 2 MANUAL_BY_TOPIC."""
    liveliness_lease: WireTime
    reliability: int32
    """0 BEST_EFFORT, 1 RELIABLE."""
    max_blocking: WireTime
    """Longest time that a RELIABLE write waits for room."""
    synchronous: bool
    """Whether a write waits for acknowledgements (an OpenSplice extension)."""
    destination_order: int32
    """0 by reception timestamp, 1 by source timestamp."""
    history: int32
    """0 KEEP_LAST, 1 KEEP_ALL."""
    history_depth: int32
    """Samples of each instance with KEEP_LAST."""
    max_samples: int32
    """Limit of RESOURCE_LIMITS, -1 for none; also the next two."""
    max_instances: int32
    max_samples_per_instance: int32
    user_data: sequence[uint8]
    ownership: int32
    """0 SHARED, 1 EXCLUSIVE."""
    minimum_separation: WireTime
    """Least time between two samples of an instance (TIME_BASED_FILTER)."""
    no_writer_delay: WireTime
    """Time after which an instance without writers is purged (autopurge_nowriter_samples_delay)."""
    disposed_delay: WireTime
    """Time after which a disposed instance is purged (autopurge_disposed_samples_delay)."""
    dispose_all: bool
    """Whether disposing all data of the topic purges it from the reader (autopurge_dispose_all)."""
    invalid_samples: bool
    """Whether samples without data show changes of an instance's state (enable_invalid_samples)."""
    invalid_visibility: int32
    """How many of them: 0 none, 1 where nothing else shows the change, 2 all."""
    use_keys: bool
    """Whether `keys` replaces the keys of the topic (an OpenSplice extension, as are the fields below)."""
    keys: sequence[_Text]
    use_lifespan: bool
    """Whether `lifespan` limits the age of samples in the reader."""
    lifespan: WireTime
    share_name: _Text
    """Name under which several readers share their samples, if `share` is set."""
    share: bool


@dataclass
@final
@autoid("sequential")
class HistoricalDataRequest(IdlStruct, typename="DDS.HistoricalDataRequest"):
    """A client's request to the servers for historical data (topic `d_historicalDataRequest`)."""

    version: WireVersion
    request: KeyRequestId
    key("request")
    topic: _Text
    """Name of the topic; no expression."""
    partitions: sequence[_Text]
    """Partition expressions."""
    format: uint16
    """Wanted byte order of payloads: 0 any, 1 big-endian, 2 little-endian (`ByteOrder`)."""
    qos: ReaderQos
    start: WireTime
    """Earliest source time, included."""
    end: WireTime
    """Latest source time, included; infinite for none."""
    sql_filter: _Text
    """Condition on the fields; empty for all samples."""
    sql_parameters: sequence[_Text]
    """Values for the `%0`, `%1` ... of the condition."""
    max_samples: int32
    """Limit for the samples of the answer, -1 for none; also the next two."""
    max_instances: int32
    max_samples_per_instance: int32
    alignment_partitions: sequence[_Text]
    """Partitions in which the client reads the answer."""
    servers: sequence[Gid]
    """Ids of the servers that shall answer; empty for all that are responsible."""
    timeout: WireTime
    """Longest time for which a server holds the request until its set is complete."""
    extensions: sequence[NameValue]


@dataclass
@final
@autoid("sequential")
class MessageQos(IdlStruct, typename="DDS.MessageQos"):
    """The policies of the writer of a sample. Kinds have the numbers of `ReaderQos`."""

    reliability: int32
    ownership: int32
    destination_order: int32
    autodispose: bool
    """Whether the instance is disposed when the writer unregisters it."""
    durability: int32
    access_scope: int32
    """0 INSTANCE, 1 TOPIC, 2 GROUP (PRESENTATION)."""
    coherent: bool
    """Whether samples arrive in coherent sets."""
    ordered: bool
    """Whether samples are taken in the order in which they were written."""
    latency_budget: WireTime
    deadline: WireTime
    liveliness: int32
    liveliness_lease: WireTime
    lifespan: WireTime
    transport_priority: int32
    """Hint for the network; greater is more urgent."""


@dataclass
@final
@autoid("sequential")
class WireBead(IdlStruct, typename="DDS.HistoricalDataBead_t"):
    """One sample of an answer."""

    writer: array[uint8, 16]
    """GUID of the writer."""
    source_time: WireTime
    """Time at which it was written."""
    sequence_number: uint32
    """Number of the sample among those of its writer."""
    qos: MessageQos
    partitions: sequence[_Text]
    """Names of the partitions in which it was written."""
    kind: uint16
    """0 write, 1 dispose, 2 unregister, 3 write and dispose, 4 register (`SampleKind`)."""
    key_hash: array[uint8, 16]
    """Key hash as in RTPS; it is ignored."""
    format: uint16
    """Byte order of `payload`: 1 big-endian, 2 little-endian (`ByteOrder`)."""
    payload: sequence[uint8]
    """The sample in XCDR1, without the four bytes of the encapsulation header."""


@dataclass
@final
@autoid("sequential")
class WireLink(IdlStruct, typename="DDS.HistoricalDataLink_t"):
    """The end of an answer."""

    count: uint32
    """Number of samples that were sent before it."""
    completeness: uint16
    """Completeness of the server's set: 0 unknown, 1 incomplete, 2 complete (`Completeness`)."""
    error: uint32
    """Reason for an answer without data, 0 for none (`ErrorCode`)."""


@final
class Content(IdlUnion, discriminator=uint16, typename="DDS.HistoricalDataContent_t"):
    """One sample, or the end of the answer."""

    bead: case[0, WireBead]
    link: case[1, WireLink]


@dataclass
@final
@autoid("sequential")
class HistoricalData(IdlStruct, typename="DDS.HistoricalData"):
    """A part of a server's answer with historical data (topic `d_historicalData`)."""

    version: WireVersion
    server: Gid
    key("server")
    requests: sequence[PlainRequestId]
    """The requests that it answers."""
    content: Content
    extensions: sequence[NameValue]


@dataclass
@final
@autoid("sequential")
class DurabilityStateRequest(IdlStruct, typename="DDS.DurabilityStateRequest"):
    """A client's question to the servers how complete groups are (topic `d_durabilityStateRequest`)."""

    version: WireVersion
    request: KeyRequestId
    key("request")
    topic: _Text
    partitions: sequence[_Text]
    """Names or expressions of partitions."""
    servers: sequence[Gid]
    """Ids of the servers that shall answer; empty for all."""
    timeout: WireTime
    """Longest time for which a server holds the question."""
    extensions: sequence[NameValue]


@dataclass
@final
@autoid("sequential")
class WireGroupState(IdlStruct, typename="DDS.PartitionTopicState_t"):
    """The completeness of one group at a server."""

    partition: _Text
    topic: _Text
    completeness: uint16
    """0 unknown, 1 incomplete, 2 complete (`Completeness`)."""
    extensions: sequence[NameValue]


@dataclass
@final
@autoid("sequential")
class DurabilityState(IdlStruct, typename="DDS.DurabilityState"):
    """A server's answer to a question, or its notice of a change (topic `d_durabilityState`)."""

    version: WireVersion
    server: Gid
    key("server")
    requests: sequence[PlainRequestId]
    """The questions that it answers; none in a notice."""
    groups: sequence[WireGroupState]
    extensions: sequence[NameValue]
