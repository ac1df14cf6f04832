"""The QoS that a delivery offers to the readers of a process, and the readers that match it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from engine.core import expressions
from engine.dataset.groups import KEEP_ALL
from engine.dds.qos import EndpointQos, incompatibilities
from engine.dds.typeinfo import TypeRef

if TYPE_CHECKING:
    from engine.dataset.groups import GroupQos, TypeDescription
    from engine.dds.discovery import EndpointSeen

LEAST_STRENGTH: Final = -(1 << 31)
"""First OWNERSHIP_STRENGTH of delivering writers, so that every original writer outranks them."""


def offer(qos: GroupQos, partition: str, readers: list[EndpointSeen]) -> EndpointQos:
    """Return the QoS of the delivering writer.

    It offers the policies of the group's QoS unchanged. Deadline, liveliness and presentation, which are not
    in it, promise something about the original writer's future; they mean nothing for history, so the
    delivering writer offers the values that the target's readers request.
    """
    asked = [reader.endpoint_qos for reader in readers]
    default = EndpointQos()
    return EndpointQos(
        reliable=True,
        blocking_ns=1_000_000_000,
        durability=qos.durability,
        history_depth=KEEP_ALL,
        by_source_timestamp=qos.by_source_timestamp,
        exclusive=qos.exclusive,
        strength=LEAST_STRENGTH,
        autodispose=False,
        batching=True,
        partitions=(partition,) if partition else (),
        representations=qos.representations,
        deadline_ns=min((one.deadline_ns for one in asked), default=default.deadline_ns),
        liveliness=max((one.liveliness for one in asked), default=default.liveliness),
        liveliness_lease_ns=min(
            (one.liveliness_lease_ns for one in asked), default=default.liveliness_lease_ns
        ),
        presentation=max((one.presentation for one in asked), default=default.presentation),
        coherent=any(one.coherent for one in asked),
        ordered=any(one.ordered for one in asked),
    )


def sort_out(
    offered: EndpointQos, description: TypeDescription, readers: list[EndpointSeen]
) -> tuple[set[bytes], tuple[str, ...]]:
    """Return the readers that will match, and for each of the others a text with the reason.

    Where one side announces no type information, the names of the types decide.
    """
    type_ = None if description.is_untyped else TypeRef.of_description(description)
    willing: set[bytes] = set()
    refused: list[str] = []
    for reader in readers:
        policies = incompatibilities(offered, reader.endpoint_qos)
        is_named = reader.type is None or description.is_untyped
        if reader.type_name != description.name if is_named else reader.type != type_:
            policies += (f"TYPE_CONSISTENCY: another type, '{reader.type_name}'",)
        if policies:
            refused.append(f"reader {reader.guid.hex()}: {', '.join(policies)}")
        else:
            willing.add(reader.guid)
    return willing, tuple(refused)


def partition_matches(patterns: tuple[str, ...], partition: str) -> bool:
    """Tell whether a reader's partitions include the group's (DDS 1.4, 2.2.3.13).

    No partition and an empty name mean the default partition. Two expressions never match each other.
    """
    literal = expressions.is_literal(partition)
    return any(
        expressions.matches(pattern, partition)
        if literal
        else expressions.is_literal(pattern) and expressions.matches(partition, pattern)
        for pattern in patterns or ("",)
    )
