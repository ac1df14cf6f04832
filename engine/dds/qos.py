"""Quality of service as values: of our own endpoints, of discovered ones, and whether two match."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from engine.dataset.groups import KEEP_ALL, DurabilityKind, GroupQos
from engine.dds import abi

XCDR1: Final = 0
XCDR2: Final = 2
BOTH_REPRESENTATIONS: Final = (XCDR1, XCDR2)

_LIVELINESS: Final = ("AUTOMATIC", "MANUAL_BY_PARTICIPANT", "MANUAL_BY_TOPIC")
_SCOPES: Final = ("INSTANCE", "TOPIC", "GROUP")
# Applications use some; a writer with more is captured in the first ones.
_MAX_PARTITIONS: Final = 4096
"""Partitions of an endpoint that are read; what an endpoint announces is not trusted to be small."""


class EndpointQos(msgspec.Struct, frozen=True):
    """The policies of one reader or writer, of our own or as announced by another participant.

    `abi.INFINITE_NS` stands for an infinite duration. The `service_...` fields are DURABILITY_SERVICE, which
    means something on writers only.
    """

    reliable: bool = True
    """RELIABILITY: RELIABLE, or else BEST_EFFORT."""
    # The default of DDS (DCPS 2.2.3).
    blocking_ns: int = 100_000_000
    """RELIABILITY max_blocking_time, nanoseconds."""
    durability: DurabilityKind = DurabilityKind.VOLATILE
    """DURABILITY kind."""
    history_depth: int = 1
    """HISTORY depth; `KEEP_ALL` (0) for all."""
    by_source_timestamp: bool = False
    """DESTINATION_ORDER: BY_SOURCE_TIMESTAMP, or else BY_RECEPTION_TIMESTAMP."""
    exclusive: bool = False
    """OWNERSHIP: EXCLUSIVE, or else SHARED."""
    strength: int = 0
    """OWNERSHIP_STRENGTH."""
    deadline_ns: int = abi.INFINITE_NS
    """DEADLINE period, nanoseconds."""
    latency_budget_ns: int = 0
    """LATENCY_BUDGET, nanoseconds."""
    lifespan_ns: int = abi.INFINITE_NS
    """LIFESPAN, nanoseconds; read from announced writers, never set on our own."""
    liveliness: int = 0
    """LIVELINESS kind: 0 AUTOMATIC, 1 MANUAL_BY_PARTICIPANT, 2 MANUAL_BY_TOPIC."""
    liveliness_lease_ns: int = abi.INFINITE_NS
    """LIVELINESS lease duration, nanoseconds."""
    presentation: int = 0
    """PRESENTATION access scope: 0 INSTANCE, 1 TOPIC, 2 GROUP."""
    coherent: bool = False
    """PRESENTATION coherent_access."""
    ordered: bool = False
    """PRESENTATION ordered_access."""
    autodispose: bool = True
    """WRITER_DATA_LIFECYCLE autodispose_unregistered_instances."""
    batching: bool = False
    """Whether one of our writers collects samples until a network message is full or flushed."""
    name: str = ""
    """ENTITY_NAME; empty for none."""
    user_data: bytes = b""
    """USER_DATA of one of our endpoints, not read from announced ones; empty for none."""
    transport_priority: int = 0
    """TRANSPORT_PRIORITY of a writer."""
    partitions: tuple[str, ...] = ()
    """PARTITION names; empty for the default partition."""
    representations: tuple[int, ...] = ()
    """DATA_REPRESENTATION, such as `XCDR1` and `XCDR2`, the preferred one first; empty for the default."""
    needs_type: bool = False
    """Whether one of our readers refuses writers without type information (TYPE_CONSISTENCY_ENFORCEMENT)."""
    resource_limits: tuple[int, int, int] = (-1, -1, -1)
    """max_samples, max_instances and max_samples_per_instance of an announced endpoint; -1 for no limit."""
    service_cleanup_delay_ns: int = 0
    """service_cleanup_delay, nanoseconds."""
    service_history_depth: int = 1
    """History depth of the group's set; `KEEP_ALL` (0) for all."""
    service_max_samples: int = -1
    """Limit for the samples of the group's set; -1 for none."""
    service_max_instances: int = -1
    """Limit for the instances of the group's set; -1 for none."""
    service_max_samples_per_instance: int = -1
    """Limit for the samples of each instance of the group's set; -1 for none."""

    def of_group(self) -> GroupQos:
        """Return the policies that a group adopts from its first writer, if topic discovery has none."""
        cleanup = self.service_cleanup_delay_ns
        return GroupQos(
            durability=self.durability,
            history_depth=self.service_history_depth,
            cleanup_delay_ns=-1 if cleanup == abi.INFINITE_NS else cleanup,
            by_source_timestamp=self.by_source_timestamp,
            exclusive=self.exclusive,
            max_samples=self.service_max_samples,
            max_instances=self.service_max_instances,
            max_samples_per_instance=self.service_max_samples_per_instance,
            representations=self.representations or BOTH_REPRESENTATIONS,
        )


def incompatibilities(offered: EndpointQos, requested: EndpointQos) -> tuple[str, ...]:
    """Return the policies that keep a writer and a reader from matching (DDS 1.4, 2.2.3), with both values.

    Partitions and types are not compared.
    """
    found = []

    def refuse(policy: str, offer: object, request: object) -> None:
        found.append(f"{policy}: offered {offer}, requested {request}")

    if requested.reliable and not offered.reliable:
        refuse("RELIABILITY", "BEST_EFFORT", "RELIABLE")
    if offered.durability < requested.durability:
        refuse("DURABILITY", offered.durability.name, requested.durability.name)
    if offered.exclusive != requested.exclusive:
        kinds = ("SHARED", "EXCLUSIVE")
        refuse("OWNERSHIP", kinds[offered.exclusive], kinds[requested.exclusive])
    if requested.by_source_timestamp and not offered.by_source_timestamp:
        refuse("DESTINATION_ORDER", "BY_RECEPTION_TIMESTAMP", "BY_SOURCE_TIMESTAMP")
    if offered.deadline_ns > requested.deadline_ns:
        refuse("DEADLINE", _duration(offered.deadline_ns), _duration(requested.deadline_ns))
    if offered.latency_budget_ns > requested.latency_budget_ns:
        refuse("LATENCY_BUDGET", _duration(offered.latency_budget_ns), _duration(requested.latency_budget_ns))
    if (
        offered.liveliness < requested.liveliness
        or offered.liveliness_lease_ns > requested.liveliness_lease_ns
    ):
        refuse("LIVELINESS", _liveliness(offered), _liveliness(requested))
    if (
        offered.presentation < requested.presentation
        or requested.coherent > offered.coherent
        or requested.ordered > offered.ordered
    ):
        refuse("PRESENTATION", _presentation(offered), _presentation(requested))
    if not set(offered.representations[:1] or (XCDR1,)) & set(requested.representations or (XCDR1,)):
        refuse("DATA_REPRESENTATION", _representations(offered), _representations(requested))
    return tuple(found)


def _duration(value_ns: int) -> str:
    return "infinite" if value_ns == abi.INFINITE_NS else f"{value_ns} ns"


def _liveliness(qos: EndpointQos) -> str:
    return f"{_LIVELINESS[qos.liveliness]} lease {_duration(qos.liveliness_lease_ns)}"


def _presentation(qos: EndpointQos) -> str:
    extra = (" coherent" if qos.coherent else "") + (" ordered" if qos.ordered else "")
    return _SCOPES[qos.presentation] + extra


def _representations(qos: EndpointQos) -> str:
    names = {XCDR1: "XCDR1", 1: "XML", XCDR2: "XCDR2"}
    return "+".join(names.get(one, str(one)) for one in qos.representations) or "XCDR1"


@contextlib.contextmanager
def new_qos() -> Iterator[int]:
    """Make an empty C QoS object that lives as long as the block."""
    qos = abi.create_qos()
    try:
        yield qos
    finally:
        abi.delete_qos(qos)


@contextlib.contextmanager
def endpoint_qos(values: EndpointQos) -> Iterator[int]:
    """Make the C QoS object of a reader or writer; partitions belong on its subscriber or publisher."""
    with new_qos() as qos:
        keep_all = values.history_depth == KEEP_ALL
        abi.qset_reliability(qos, int(values.reliable), values.blocking_ns)
        abi.qset_durability(qos, int(values.durability))
        abi.qset_history(qos, int(keep_all), 0 if keep_all else values.history_depth)
        abi.qset_resource_limits(qos, -1, -1, -1)
        abi.qset_destination_order(qos, int(values.by_source_timestamp))
        abi.qset_ownership(qos, int(values.exclusive))
        abi.qset_ownership_strength(qos, values.strength)
        abi.qset_writer_lifecycle(qos, values.autodispose)
        if values.name:
            abi.qset_entity_name(qos, values.name.encode())
        if values.user_data:
            abi.qset_userdata(qos, values.user_data, len(values.user_data))
        if values.transport_priority:
            abi.qset_transport_priority(qos, values.transport_priority)
        if values.batching:
            abi.qset_writer_batching(qos, True)
        if values.deadline_ns != abi.INFINITE_NS:
            abi.qset_deadline(qos, values.deadline_ns)
        if values.latency_budget_ns:
            abi.qset_latency_budget(qos, values.latency_budget_ns)
        if values.liveliness or values.liveliness_lease_ns != abi.INFINITE_NS:
            abi.qset_liveliness(qos, values.liveliness, values.liveliness_lease_ns)
        if values.representations:
            array = (ctypes.c_int16 * len(values.representations))(*values.representations)
            abi.qset_representation(qos, len(array), array)
        if values.needs_type:
            # The defaults of Cyclone DDS (ALLOW_TYPE_COERCION), but for the last: force_type_validation.
            abi.qset_type_consistency(qos, 1, True, True, False, False, True)
        service_keep_all = values.service_history_depth == KEEP_ALL
        abi.qset_durability_service(
            qos,
            values.service_cleanup_delay_ns,
            int(service_keep_all),
            0 if service_keep_all else values.service_history_depth,
            values.service_max_samples,
            values.service_max_instances,
            values.service_max_samples_per_instance,
        )
        yield qos


@contextlib.contextmanager
def group_qos(values: EndpointQos) -> Iterator[int]:
    """Make the C QoS object of a publisher or subscriber: partitions and presentation."""
    with new_qos() as qos:
        if values.partitions:
            names = [name.encode() for name in values.partitions]
            abi.qset_partition(qos, len(names), (ctypes.c_char_p * len(names))(*names))
        if values.presentation or values.coherent or values.ordered:
            abi.qset_presentation(qos, values.presentation, values.coherent, values.ordered)
        yield qos


def _read(getter: Callable[..., object], qos: int, *variables: Any) -> list[Any]:
    """Return what a getter of the C API fills in; the variables hold what applies without the policy."""
    getter(qos, *map(ctypes.byref, variables))
    return [variable.value for variable in variables]


def read_endpoint_qos(qos: int) -> EndpointQos:
    """Read the policies of a discovered endpoint."""
    integer, number, duration, flag = ctypes.c_int, ctypes.c_int32, ctypes.c_int64, ctypes.c_bool
    reliable, blocking_ns = _read(abi.qget_reliability, qos, integer(), duration())
    history = _read(abi.qget_history, qos, integer(), number(1))
    lease = duration(abi.INFINITE_NS)
    liveliness, lease_ns = _read(abi.qget_liveliness, qos, integer(), lease)
    scope, coherent, ordered = _read(abi.qget_presentation, qos, integer(), flag(), flag())
    limits = _read(abi.qget_resource_limits, qos, *_limits())
    service = duration(), integer(), number(1), *_limits()
    cleanup_ns, *service_history, most, instances, each = _read(abi.qget_durability_service, qos, *service)
    return EndpointQos(
        reliable=bool(reliable),
        blocking_ns=blocking_ns,
        durability=DurabilityKind(_read(abi.qget_durability, qos, integer())[0]),
        history_depth=_depth(*history),
        by_source_timestamp=bool(_read(abi.qget_destination_order, qos, integer())[0]),
        exclusive=bool(_read(abi.qget_ownership, qos, integer())[0]),
        strength=_read(abi.qget_ownership_strength, qos, number())[0],
        deadline_ns=_read(abi.qget_deadline, qos, duration(abi.INFINITE_NS))[0],
        latency_budget_ns=_read(abi.qget_latency_budget, qos, duration())[0],
        lifespan_ns=_read(abi.qget_lifespan, qos, duration(abi.INFINITE_NS))[0],
        liveliness=liveliness,
        liveliness_lease_ns=lease_ns,
        presentation=scope,
        coherent=coherent,
        ordered=ordered,
        autodispose=_read(abi.qget_writer_lifecycle, qos, flag(True))[0],
        name=read_name(qos),
        transport_priority=_read(abi.qget_transport_priority, qos, number())[0],
        partitions=_partitions(qos),
        representations=_read_representations(qos),
        resource_limits=(limits[0], limits[1], limits[2]),
        service_cleanup_delay_ns=cleanup_ns,
        service_history_depth=_depth(*service_history),
        service_max_samples=most,
        service_max_instances=instances,
        service_max_samples_per_instance=each,
    )


def read_name(qos: int) -> str:
    """Read the entity name of a participant or endpoint; empty for none."""
    name = ctypes.c_void_p()
    abi.qget_entity_name(qos, ctypes.byref(name))
    return abi.take_c_string(name)


def _depth(kind: int, depth: int) -> int:
    return KEEP_ALL if kind else max(1, depth)


def _limits() -> tuple[ctypes.c_int32, ...]:
    return tuple(ctypes.c_int32(-1) for _ in range(3))


def _partitions(qos: int) -> tuple[str, ...]:
    """Read the partition names; empty for the default partition."""
    count, array = ctypes.c_uint32(), ctypes.c_void_p()
    if not abi.qget_partition(qos, ctypes.byref(count), ctypes.byref(array)) or not array.value:
        return ()
    pointers = (ctypes.c_void_p * count.value).from_address(array.value)
    names = tuple(abi.take_c_string(ctypes.c_void_p(pointer)) for pointer in pointers)
    abi.release(array)
    names = names[:_MAX_PARTITIONS]
    return () if names == ("",) else names


def _read_representations(qos: int) -> tuple[int, ...]:
    count, array = ctypes.c_uint32(), ctypes.c_void_p()
    if not abi.qget_representation(qos, ctypes.byref(count), ctypes.byref(array)) or not array.value:
        return ()
    values = tuple((ctypes.c_int16 * count.value).from_address(array.value))
    abi.release(array)
    return values
