"""QoS profiles in XML (DDS4CCM), compared with what the QosProvider of Cyclone DDS 11 reads.

A test holds the tables against the library of 11.0.1. OpenSplice has profiles in XML, too, without libraries;
they are recognised by that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from engine.config import Document, XmlElement
from engine.config.problems import quoted
from engine.config.values import did_you_mean
from ospltool.check.findings import finding_at, hint
from ospltool.diagnostics.model import Finding

ROOT: Final = "dds"
LIBRARY: Final = "qos_library"
PROFILE: Final = "qos_profile"
UNSUPPORTED: Final = ("TRANSIENT_DURABILITY_QOS", "PERSISTENT_DURABILITY_QOS")
"""Kinds of durability that the QosProvider of Cyclone DDS 11 refuses."""
_REFUSED_ATTRIBUTES: Final = {"base_name": "inheritance", "topic_filter": "a filter of topics"}

_DURATION: Final = "duration"
_INTEGER: Final = "integer"
_LENGTH: Final = "length"
_TEXT: Final = "text"
_TEXTS: Final = "texts"
_BOOLEAN: Final = ("true", "false", "1", "0")
_HISTORY: Final = ("KEEP_LAST_HISTORY_QOS", "KEEP_ALL_HISTORY_QOS")
_LIMITS: Final[Mapping[str, str | tuple[str, ...]]] = {
    "max_samples": _LENGTH,
    "max_instances": _LENGTH,
    "max_samples_per_instance": _LENGTH,
}

POLICIES: Final[Mapping[str, Mapping[str, str | tuple[str, ...]]]] = {
    "deadline": {"period!": _DURATION},
    "destination_order": {
        "kind!": ("BY_RECEPTION_TIMESTAMP_DESTINATIONORDER_QOS", "BY_SOURCE_TIMESTAMP_DESTINATIONORDER_QOS")
    },
    "durability": {"kind!": ("VOLATILE_DURABILITY_QOS", "TRANSIENT_LOCAL_DURABILITY_QOS", *UNSUPPORTED)},
    "durability_service": {
        "service_cleanup_delay": _DURATION,
        "history_kind": _HISTORY,
        "history_depth": _INTEGER,
        **_LIMITS,
    },
    "entity_factory": {"autoenable_created_entities!": ("true", "1")},
    "group_data": {"value": _TEXT},
    "history": {"kind": _HISTORY, "depth": _INTEGER},
    "latency_budget": {"duration!": _DURATION},
    "lifespan": {"duration!": _DURATION},
    "liveliness": {
        "kind!": (
            "AUTOMATIC_LIVELINESS_QOS",
            "MANUAL_BY_PARTICIPANT_LIVELINESS_QOS",
            "MANUAL_BY_TOPIC_LIVELINESS_QOS",
        ),
        "lease_duration!": _DURATION,
    },
    "ownership": {"kind!": ("SHARED_OWNERSHIP_QOS", "EXCLUSIVE_OWNERSHIP_QOS")},
    "ownership_strength": {"value!": _INTEGER},
    "partition": {"name": _TEXTS},
    "presentation": {
        "access_scope!": (
            "INSTANCE_PRESENTATION_QOS",
            "TOPIC_PRESENTATION_QOS",
            "GROUP_PRESENTATION_QOS",
        ),
        "coherent_access!": _BOOLEAN,
        "ordered_access!": _BOOLEAN,
    },
    "reader_data_lifecycle": {
        "autopurge_nowriter_samples_delay!": _DURATION,
        "autopurge_disposed_samples_delay!": _DURATION,
    },
    "reliability": {
        "kind!": ("BEST_EFFORT_RELIABILITY_QOS", "RELIABLE_RELIABILITY_QOS"),
        "max_blocking_time": _DURATION,
    },
    "resource_limits": _LIMITS,
    "time_based_filter": {"minimum_separation!": _DURATION},
    "topic_data": {"value": _TEXT},
    "transport_priority": {"value!": _INTEGER},
    "type_consistency": {
        "kind!": ("DISALLOW_TYPE_COERCION", "ALLOW_TYPE_COERCION"),
        "ignore_sequence_bounds": _BOOLEAN,
        "ignore_string_bounds": _BOOLEAN,
        "ignore_member_names": _BOOLEAN,
        "prevent_type_widening": _BOOLEAN,
        "force_type_validation": _BOOLEAN,
    },
    "user_data": {"value": _TEXT},
    "writer_batching": {"batch_updates!": _BOOLEAN},
    "writer_data_lifecycle": {"autodispose_unregistered_instances!": _BOOLEAN},
}
"""The policies that are compared, with the values of their members; an exclamation mark means required."""

_OF_BOTH: Final = [
    "deadline",
    "destination_order",
    "durability",
    "history",
    "latency_budget",
    "liveliness",
    "ownership",
    "data_representation",
    "reliability",
    "resource_limits",
]
_OF_GROUPS: Final = ("entity_factory", "group_data", "partition", "presentation")
ENTITIES: Final[Mapping[str, tuple[str, ...]]] = {
    "domainparticipant_qos": ("entity_factory", "user_data"),
    "domain_participant_qos": ("entity_factory", "user_data"),
    "publisher_qos": _OF_GROUPS,
    "subscriber_qos": _OF_GROUPS,
    "topic_qos": (*_OF_BOTH, "durability_service", "lifespan", "topic_data", "transport_priority"),
    "datawriter_qos": (
        *_OF_BOTH,
        *("durability_service", "lifespan", "ownership_strength", "transport_priority", "user_data"),
        *("writer_data_lifecycle", "writer_batching"),
    ),
    "datareader_qos": (
        *_OF_BOTH,
        *("type_consistency", "reader_data_lifecycle", "time_based_filter", "user_data"),
    ),
}
"""The policies of each kind of entity. The content of data_representation is not compared."""


def is_profiles(document: Document) -> bool:
    """Tell whether a document has QoS profiles, of Cyclone DDS or of OpenSplice."""
    root = document.root
    return root.name == ROOT and any(child.name in (LIBRARY, PROFILE) for child in root.children)


def of_opensplice(document: Document) -> list[XmlElement]:
    """Return the profiles that belong to no library, as only OpenSplice has them."""
    return document.root.named(PROFILE)


def faults(document: Document) -> Iterator[Finding]:
    """Find everything in libraries of profiles that the QosProvider refuses, in document order."""
    for library in document.root.named(LIBRARY):
        yield from _named(library)
        for profile in library.children:
            if profile.name != PROFILE:
                yield _unknown(profile, library, (PROFILE,))
                continue
            yield from _named(profile)
            for entity in profile.children:
                if entity.name not in ENTITIES:
                    yield _unknown(entity, profile, tuple(ENTITIES))
                    continue
                yield from _attributes(entity)
                yield from _policies(entity)


def _named(node: XmlElement) -> Iterator[Finding]:
    name = node.attribute("name")
    if name is None:
        yield finding_at("DUR771", node, f"<{node.name}> lacks the attribute 'name'")
    elif not name.text.replace("_", "a").isalnum() and not name.value.is_broken:
        message = f"{quoted(name.text)} is not a name; it has letters, digits and underscores"
        yield finding_at("DUR771", name.value, message)
    yield from _attributes(node)


def _attributes(node: XmlElement) -> Iterator[Finding]:
    for attribute in node.attributes:
        if attribute.name in _REFUSED_ATTRIBUTES:
            message = (
                f"Cyclone DDS has no {_REFUSED_ATTRIBUTES[attribute.name]}, and refuses '{attribute.name}'"
            )
            yield finding_at("DUR771", attribute, message)
        elif attribute.name != "name":
            message = f"<{node.name}> has no attribute {quoted(attribute.name)}"
            yield finding_at("DUR770", attribute, message, did_you_mean(attribute.name, ["name"]))


def _unknown(node: XmlElement, parent: XmlElement, known: tuple[str, ...]) -> Finding:
    message = f"<{parent.name}> has no element {quoted(node.name)}"
    return finding_at("DUR770", node, message, hint(node.name, known))


def _policies(entity: XmlElement) -> Iterator[Finding]:
    seen: set[str] = set()
    for policy in entity.children:
        if policy.name not in ENTITIES[entity.name]:
            yield _unknown(policy, entity, ENTITIES[entity.name])
            continue
        if policy.name in seen:
            yield finding_at("DUR771", policy, f"<{entity.name}> has two elements '{policy.name}'")
        seen.add(policy.name)
        members = POLICIES.get(policy.name)
        if members is not None:
            yield from _members(policy, members)


def _members(policy: XmlElement, members: Mapping[str, str | tuple[str, ...]]) -> Iterator[Finding]:
    known = {name.rstrip("!"): kind for name, kind in members.items()}
    for member in policy.children:
        if member.name not in known:
            yield _unknown(member, policy, tuple(known))
        elif known[member.name] == _DURATION:
            yield from _duration(member)
        elif known[member.name] == _TEXTS:
            yield from (
                _unknown(each, member, ("element",)) for each in member.children if each.name != "element"
            )
            if member.value is not None:
                message = f"<{member.name}> is a list: put each of its values into <element>"
                yield finding_at("DUR771", member.value, message)
        else:
            yield from _value(member, known[member.name])
    for name in members:
        if name.endswith("!") and policy.find(name[:-1]) is None:
            yield finding_at("DUR771", policy, f"<{policy.name}> lacks '{name[:-1]}'")


def _duration(node: XmlElement) -> Iterator[Finding]:
    infinite = {"sec": "DURATION_INFINITE_SEC", "nanosec": "DURATION_INFINITE_NSEC"}
    for part in node.children:
        if part.name not in infinite:
            yield _unknown(part, node, tuple(infinite))
        elif part.text not in (infinite[part.name], "DURATION_INFINITY"):
            yield from _value(part, _INTEGER)
    if not node.children:
        yield finding_at("DUR771", node, f"<{node.name}> lacks 'sec' and 'nanosec'")


def _value(node: XmlElement, kind: str | tuple[str, ...]) -> Iterator[Finding]:
    """Find the faults of a value; an empty one is as if it were not there."""
    value = node.value
    if value is None or value.is_broken or kind == _TEXT:
        return
    text = value.text.strip()
    if isinstance(kind, tuple):
        if text not in kind:
            read = [one for one in kind if one not in UNSUPPORTED]
            message = f"{quoted(text)} is none of {', '.join(read)}"
            yield finding_at("DUR771", value, message, did_you_mean(text, read))
        elif text in UNSUPPORTED:
            message = f"the QosProvider of Cyclone DDS 11 refuses {text}, and with it the whole file"
            advice = "set this durability in the application, after the profile was read"
            yield finding_at("DUR772", value, message, advice)
    elif not _is_integer(text) and not (kind == _LENGTH and text == "LENGTH_UNLIMITED"):
        yield finding_at("DUR771", value, f"{quoted(text)} is not a whole number")


def _is_integer(text: str) -> bool:
    try:
        return -(1 << 31) <= int(text, 0) < 1 << 32
    except ValueError:
        return text.lstrip("+-").isdigit()  # a leading zero
