"""The types of the four topics, for the topic's sake: keys and names. The bytes are made in `messages`.

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
    """A time or a duration."""

    seconds: int32
    nanoseconds: uint32


@dataclass
@final
@autoid("sequential")
class WireVersion(IdlStruct, typename="DDS.DurabilityVersion_t"):
    """Version of the protocol."""

    major: uint16
    minor: uint16
    vendor_0: uint8
    vendor_1: uint8


@dataclass
@final
@autoid("sequential")
class Gid(IdlStruct, typename="DDS.Gid_t"):
    """Id of a client or a server."""

    prefix: int64
    suffix: int64


@dataclass
@final
@autoid("sequential")
class KeyRequestId(IdlStruct, typename="DDS.RequestId_t"):
    """A request; its client is the key."""

    client: Gid
    key("client")
    number: uint32


@dataclass
@final
@autoid("sequential")
class PlainRequestId(IdlStruct, typename="DDS.RequestId_nk"):
    """A request that is answered; no key."""

    client: Gid
    number: uint32


@dataclass
@final
@autoid("sequential")
class NameValue(IdlStruct, typename="DDS.NameValue_t"):
    """An extension."""

    name: _Text
    value: sequence[uint8]


@dataclass
@final
@autoid("sequential")
class ReaderQos(IdlStruct, typename="DDS.DataReaderQos"):
    """The reader's policies."""

    durability: int32
    deadline: WireTime
    latency_budget: WireTime
    liveliness: int32
    liveliness_lease: WireTime
    reliability: int32
    max_blocking: WireTime
    synchronous: bool
    destination_order: int32
    history: int32
    history_depth: int32
    max_samples: int32
    max_instances: int32
    max_samples_per_instance: int32
    user_data: sequence[uint8]
    ownership: int32
    minimum_separation: WireTime
    no_writer_delay: WireTime
    disposed_delay: WireTime
    dispose_all: bool
    invalid_samples: bool
    invalid_visibility: int32
    use_keys: bool
    keys: sequence[_Text]
    use_lifespan: bool
    lifespan: WireTime
    share_name: _Text
    share: bool


@dataclass
@final
@autoid("sequential")
class HistoricalDataRequest(IdlStruct, typename="DDS.HistoricalDataRequest"):
    """Client to servers."""

    version: WireVersion
    request: KeyRequestId
    key("request")
    topic: _Text
    partitions: sequence[_Text]
    format: uint16
    qos: ReaderQos
    start: WireTime
    end: WireTime
    sql_filter: _Text
    sql_parameters: sequence[_Text]
    max_samples: int32
    max_instances: int32
    max_samples_per_instance: int32
    alignment_partitions: sequence[_Text]
    servers: sequence[Gid]
    timeout: WireTime
    extensions: sequence[NameValue]


@dataclass
@final
@autoid("sequential")
class MessageQos(IdlStruct, typename="DDS.MessageQos"):
    """The policies of a sample's writer."""

    reliability: int32
    ownership: int32
    destination_order: int32
    autodispose: bool
    durability: int32
    access_scope: int32
    coherent: bool
    ordered: bool
    latency_budget: WireTime
    deadline: WireTime
    liveliness: int32
    liveliness_lease: WireTime
    lifespan: WireTime
    transport_priority: int32


@dataclass
@final
@autoid("sequential")
class WireBead(IdlStruct, typename="DDS.HistoricalDataBead_t"):
    """One sample."""

    writer: array[uint8, 16]
    source_time: WireTime
    sequence_number: uint32
    qos: MessageQos
    partitions: sequence[_Text]
    kind: uint16
    key_hash: array[uint8, 16]
    format: uint16
    payload: sequence[uint8]


@dataclass
@final
@autoid("sequential")
class WireLink(IdlStruct, typename="DDS.HistoricalDataLink_t"):
    """The end of an answer."""

    count: uint32
    completeness: uint16
    error: uint32


@final
class Content(IdlUnion, discriminator=uint16, typename="DDS.HistoricalDataContent_t"):
    """A sample or the end."""

    bead: case[0, WireBead]
    link: case[1, WireLink]


@dataclass
@final
@autoid("sequential")
class HistoricalData(IdlStruct, typename="DDS.HistoricalData"):
    """Server to clients."""

    version: WireVersion
    server: Gid
    key("server")
    requests: sequence[PlainRequestId]
    content: Content
    extensions: sequence[NameValue]


@dataclass
@final
@autoid("sequential")
class DurabilityStateRequest(IdlStruct, typename="DDS.DurabilityStateRequest"):
    """Client to servers."""

    version: WireVersion
    request: KeyRequestId
    key("request")
    topic: _Text
    partitions: sequence[_Text]
    servers: sequence[Gid]
    timeout: WireTime
    extensions: sequence[NameValue]


@dataclass
@final
@autoid("sequential")
class WireGroupState(IdlStruct, typename="DDS.PartitionTopicState_t"):
    """Completeness of a group."""

    partition: _Text
    topic: _Text
    completeness: uint16
    extensions: sequence[NameValue]


@dataclass
@final
@autoid("sequential")
class DurabilityState(IdlStruct, typename="DDS.DurabilityState"):
    """Server to clients."""

    version: WireVersion
    server: Gid
    key("server")
    requests: sequence[PlainRequestId]
    groups: sequence[WireGroupState]
    extensions: sequence[NameValue]
