"""Converts the application's policies for a durable reader to those of the reader of live samples."""

from __future__ import annotations

import dataclasses
from typing import Final

from cyclonedds.qos import Policy, Qos, _CQos

from engine.dataset.groups import KEEP_ALL, DurabilityKind
from engine.dds.qos import BOTH_REPRESENTATIONS, EndpointQos, read_endpoint_qos
from ospltool.client.cache import ResourceLimits
from ospltool.client.errors import UnsupportedQos

DEFAULT_QOS: Final = (Policy.Durability.Transient, Policy.Reliability.Reliable(0), Policy.History.KeepAll)


def endpoint_qos(qos: Qos | None, partitions: tuple[str, ...]) -> EndpointQos:
    """Return the policies of the reader of live samples.

    Raises:
        UnsupportedQos: the library does not support a policy.
    """
    given = Qos(*(DEFAULT_QOS if qos is None else qos))
    for policy in given:
        if policy == Policy.Ownership.Exclusive or isinstance(policy, Policy.TimeBasedFilter):
            raise UnsupportedQos(f"a durable reader does not support {policy}")
    c_qos = _CQos.qos_to_cqos(given)
    try:
        values = read_endpoint_qos(c_qos)
    finally:
        _CQos.cqos_destroy(c_qos)
    if Policy.Durability not in given:
        values = dataclasses.replace(values, durability=DurabilityKind.TRANSIENT)
    if Policy.Reliability not in given:
        values = dataclasses.replace(values, reliable=True)
    if Policy.History not in given:
        values = dataclasses.replace(values, history_depth=KEEP_ALL)
    return dataclasses.replace(
        values,
        partitions=partitions or values.partitions,
        representations=values.representations or BOTH_REPRESENTATIONS,
    )


def resource_limits(qos: Qos | None) -> ResourceLimits:
    """Return RESOURCE_LIMITS of the application's policies."""
    for policy in qos or ():
        if isinstance(policy, Policy.ResourceLimits):
            given = (policy.max_samples, policy.max_instances, policy.max_samples_per_instance)
            return ResourceLimits(*(max(0, each) for each in given))
    return ResourceLimits()


def subscribed_qos(qos: EndpointQos) -> EndpointQos:
    """Return the policies of the reader of live samples of a durable subscription.

    Raises:
        UnsupportedQos: the policies would allow the loss of samples.
    """
    if not qos.reliable or qos.history_depth != KEEP_ALL:
        raise UnsupportedQos("a reader with a durable subscription is RELIABLE and KEEP_ALL")
    return dataclasses.replace(qos, durability=DurabilityKind.VOLATILE)
