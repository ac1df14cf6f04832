"""The rule of the diagnosis about types: one topic has one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ospltool.doctor.picture import DoctorCause, DoctorFinding, Endpoint, TopicView, Weight

_MAX_SHOWN: Final = 5


def different_types(topic: TopicView) -> Iterator[DoctorFinding]:
    """Find types that share the name of a topic, and versions of a type that share its name.

    Only Cyclone DDS in the process of an endpoint knows whether two versions are compatible.
    """
    endpoints = topic.writers + topic.readers
    names = sorted({each.type_name for each in endpoints})
    if len(names) > 1:
        more = [f"{len(names) - _MAX_SHOWN} more"] if len(names) > _MAX_SHOWN else []
        shown = " and ".join([*names[:_MAX_SHOWN], *more])
        text = f"have different types, {shown}, so no data flows from one to another"
        yield _finding(Weight.ERROR, topic, text, "one type for each topic name", endpoints)
    for name in names:
        told = tuple(each for each in endpoints if each.type_name == name and each.type_id)
        count = len({each.type_id for each in told})
        if count > 1:
            text = f"have {count} different types named {name}: data flows only between compatible ones"
            advice = "one version of the type, or appendable or mutable versions with the same key"
            yield _finding(Weight.WARNING, topic, text, advice, told)


def _finding(
    weight: Weight, topic: TopicView, text: str, advice: str, endpoints: tuple[Endpoint, ...]
) -> DoctorFinding:
    return DoctorFinding(DoctorCause.DIFFERENT_TYPES, weight, topic.name, text, advice, endpoints)
