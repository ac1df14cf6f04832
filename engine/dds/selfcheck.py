"""Proof, before a node relies on them, that functions and layouts of Cyclone DDS are the ones we know."""

from __future__ import annotations

import functools
import os
import types
from typing import TYPE_CHECKING, Final

from engine.dataset.sample import captured_sample
from engine.dds import trial
from engine.dds.errors import DdsError, UnsupportedCyclone, check

if TYPE_CHECKING:
    from engine.dataset.groups import TypeDescription
    from engine.dds.participant import NodeParticipant
    from engine.dds.topics import Topic

_TOPIC: Final = "ospltool_selfcheck"
# Any three that differ, and that no clock gives: the check reads back that source times are kept as they
# are.
_TIMES_NS: Final = (11, 12, 13)


def check_layouts(*, of_package: bool = False) -> None:
    """Write, dispose and unregister one instance, discover a writer and its type, and compare every byte.

    It uses a domain of its own that talks to nobody, takes some milliseconds and leaves nothing behind.

    Args:
        of_package: also of a topic of the package cyclonedds, for one who uses those of an application.

    Raises:
        UnsupportedCyclone: `cyclonedds` is missing or not of the supported range, or a layout differs; or
            the compiled library cannot be used; or OSPLTOOL_DDSC names a library that cannot be used.
    """
    from engine import native

    try:
        native.library()
    except native.NoLibrary as error:
        raise UnsupportedCyclone(str(error)) from None
    from engine.dds import abi

    if abi.OTHER and of_package:
        raise UnsupportedCyclone(
            f"{abi.CHOICE} names {abi.OTHER}, but topics of the package cyclonedds are in its own copy of"
            f" Cyclone DDS; unset {abi.CHOICE} for an application that uses them"
        )
    crash = ""
    if abi.IS_UNTRIED and not trial.is_under_way:
        crash = trial.how_it_crashes(abi.NAME, f"import {__name__}; {__name__}.check_layouts()")
    try:
        difference = crash or _found_difference(of_package)
    except DdsError as error:
        raise UnsupportedCyclone(_unexpected(str(error)), may_pass=True) from error
    if difference:
        raise UnsupportedCyclone(_unexpected(difference))


def _unexpected(difference: str) -> str:
    from engine.dds import abi

    return f"{abi.NAME} does not behave as expected on this machine: {difference}"


def _found_difference(of_package: bool) -> str:
    """What is not as expected; empty when all is well."""
    from engine.dds.own_types import SelfCheck
    from engine.dds.participant import NodeParticipant, free_domain_id
    from engine.dds.topics import Topic
    from engine.dds.uri import private_uri

    with (
        free_domain_id() as domain_id,
        NodeParticipant(domain_id, private_uri(), "selfcheck", os.urandom(16)) as participant,
    ):
        topic = Topic.of_class(participant, _TOPIC, SelfCheck)
        difference = _tap_difference(participant, topic) or _discovery_difference(participant, topic)
        if difference or not of_package:
            return difference
        entity = create_package_topic(participant.entity, f"{_TOPIC}_package", topic.type)
        return _tap_difference(participant, Topic(participant, entity, topic.name, topic.type))


def _tap_difference(participant: NodeParticipant, topic: Topic) -> str:
    from engine.dataset.sample import DATA, DISPOSE, UNREGISTER
    from engine.dds import abi
    from engine.dds.capture_reader import CaptureReader
    from engine.dds.qos import EndpointQos
    from engine.dds.writer import RawWriter
    from engine.dds.writer_names import WRITER_GONE

    tap = CaptureReader(participant, topic, limit=8)
    writer = RawWriter(participant, topic, EndpointQos(history_depth=0, autodispose=False))
    whole = b"\0\1\0\0" + (7).to_bytes(4, "little") + b"\2\0\0\0x\0\0\0"
    key = (7).to_bytes(4, "little")
    key_only = b"\0\1\0\0" + key
    writer.write(whole, _TIMES_NS[0])
    writer.dispose(key_only, _TIMES_NS[1])
    writer.unregister(key_only, _TIMES_NS[2])
    sequence = abi.sequence_of(writer.entity)
    writer.close()
    if sequence != len(_TIMES_NS):
        return f"a writer of {len(_TIMES_NS)} samples is at number {sequence}"
    found = tap.drain()
    expected = [
        captured_sample(_TIMES_NS[0], writer.guid, DATA, key, whole),
        captured_sample(_TIMES_NS[1], writer.guid, DISPOSE, key, key_only),
        captured_sample(_TIMES_NS[2], writer.guid, UNREGISTER, key, key_only),
        captured_sample(0, writer.guid, WRITER_GONE, b"", b""),
    ]
    return "" if found == expected else f"a tap gave {found} where {expected} was written"


def _discovery_difference(participant: NodeParticipant, topic: Topic) -> str:
    from engine.dataset.groups import DurabilityKind
    from engine.dds.discovery import Discovery, EndpointSeen
    from engine.dds.qos import EndpointQos
    from engine.dds.typeinfo import resolve_type
    from engine.dds.writer import RawWriter

    qos = EndpointQos(
        durability=DurabilityKind.TRANSIENT,
        history_depth=3,
        by_source_timestamp=True,
        exclusive=True,
        partitions=("a", "b"),
        representations=(0,),
        service_cleanup_delay_ns=5,
        service_history_depth=4,
    )
    writer = RawWriter(participant, topic, qos)
    found = [one for one in Discovery(participant).take() if isinstance(one, EndpointSeen)]
    mine = next((one for one in found if one.guid == writer.guid), None)
    if mine is None or mine.type is None or (mine.topic, mine.endpoint_qos) != (topic.name, qos):
        return f"discovery told {mine} where {qos} was offered"
    resolution = resolve_type(participant, mine.type, attempts=1)
    if resolution.type != topic.type:
        return f"discovery told the type {resolution} where it was {topic.type}"
    return ""


# Types are few and made once; the bound is for a stranger that announces types without end.
_REMEMBERED_TYPES: Final = 4096


class _OpaqueType:
    """A substitute for a Python type class: Cyclone's type support reads only these attributes.

    Cyclone DDS compares types by calling into Python, unless it gets the same object; `_opaque_type`
    therefore makes one object for each description.
    """

    def __init__(self, description: TypeDescription) -> None:
        from engine.dds import abi

        self._description = description
        self.__idl__ = types.SimpleNamespace(
            idl_transformed_typename=description.name,
            data_type_props=abi.KEYED if description.keyed else 0,
            supported_versions=abi.BOTH_REPRESENTATIONS,
            _xt_bytedata=(description.information, description.mapping),
            populate=lambda: None,
            fill_type_data=lambda: None,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _OpaqueType) and other._description == self._description

    def __hash__(self) -> int:
        return hash(self._description)


@functools.lru_cache(maxsize=_REMEMBERED_TYPES)
def _opaque_type(description: TypeDescription) -> _OpaqueType:
    return _OpaqueType(description)


def create_package_topic(participant: int, topic_name: str, description: TypeDescription) -> int:
    """Make a topic with the type support of the package cyclonedds; return the entity.

    Applications of the client library have such topics.

    Args:
        participant: the entity in whose domain it is.
        topic_name: the topic's name.
        description: its type.

    Raises:
        DdsError: Cyclone DDS refuses the type, for example a recursive one.
    """
    # Private to the package, as are the attributes of a type above: only who uses its topics needs it.
    from cyclonedds import _clayer

    action = f"create the topic '{topic_name}' of type '{description.name}'"
    try:
        entity = _clayer.ddspy_topic_create(participant, topic_name, _opaque_type(description), None, None)
    except (RuntimeError, TypeError, ValueError) as error:
        raise DdsError(-1, f"{action} ({error})") from error
    topic: int = check(entity, action)
    return topic
