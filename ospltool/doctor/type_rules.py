"""The rule of the diagnosis about types: one topic has one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ospltool.diagnostics.model import Severity
from ospltool.doctor.picture import DoctorCause, DoctorFinding, Endpoint, TopicView

_MAX_SHOWN: Final = 5
_ADVICE: Final = "one version of the type, or appendable or mutable versions with the same key"


def may_match(one: Endpoint, other: Endpoint) -> bool:
    """Tell whether the types of two endpoints may match.

    Cyclone DDS compares the structures if both sides announce them, whatever the names are, and the names
    otherwise. Only Cyclone DDS in the process of an endpoint knows whether two structures are compatible.
    """
    return one.type_name == other.type_name or bool(one.type_id and other.type_id)


def different_types(topic: TopicView, kept: Sequence[str]) -> Iterator[DoctorFinding]:
    """Find types that share the name of a topic.

    Args:
        topic: the topic.
        kept: names of the types of which nodes keep data of this topic.
    """
    endpoints = topic.writers + topic.readers
    names = sorted({each.type_name for each in endpoints})
    if len(names) > 1 and not all(each.type_id for each in endpoints):
        yield _finding(
            Severity.ERROR,
            topic,
            f"have different types, {_listed(names)}, and not all announce their structure: no data flows "
            "between different names where one side does not",
            "one type for each topic name",
            endpoints,
        )
    told = tuple(each for each in endpoints if each.type_id)
    if (count := len({each.type_id for each in told})) > 1:
        named = _listed(sorted({each.type_name for each in told}))
        text = f"have {count} different types named {named}: data flows only between compatible ones"
        yield _finding(Severity.WARNING, topic, text, _ADVICE, told)
    strange = tuple(each for each in topic.readers if kept and each.type_name not in kept)
    if strange and not topic.writers:
        text = f"have another type than nodes keep, {_listed(kept)}: they get that only if it is compatible"
        yield _finding(Severity.WARNING, topic, text, _ADVICE, strange)


def _listed(names: Sequence[str]) -> str:
    more = [f"{len(names) - _MAX_SHOWN} more"] if len(names) > _MAX_SHOWN else []
    return " and ".join([*names[:_MAX_SHOWN], *more])


def _finding(
    weight: Severity, topic: TopicView, text: str, advice: str, endpoints: tuple[Endpoint, ...]
) -> DoctorFinding:
    return DoctorFinding(DoctorCause.DIFFERENT_TYPES, weight, (topic.name,), text, advice, endpoints)
