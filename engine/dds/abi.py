"""The C functions and memory layouts of Cyclone DDS that this package uses.

Calls through `ctypes.CDLL` release the interpreter lock, so a blocking call stops only the thread that made
it.

The layouts below are of Cyclone DDS 11.0.1 on 64-bit little-endian machines. `engine.dds.selfcheck` proves
them before a node relies on them. A library that is not the tested one is first opened and checked in another
process (`engine.dds.trial`).
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import struct
import sys
from collections.abc import Callable
from typing import Any, Final

from engine.dds import trial
from engine.dds.errors import UnsupportedCyclone
from engine.dds.wheel import installed_version

TESTED: Final = "11.0.1"
"""The release of the package cyclonedds with which everything is tested."""
RANGE: Final = "cyclonedds>=11.0.1,<11.1"
"""The releases that may be used: those of one series, which keep their layouts or fail the self-check."""
_FIRST, _PAST = (11, 0, 1), (11, 1)

CHOICE: Final = "OSPLTOOL_DDSC"
"""Environment variable with the path of a library of Cyclone DDS; without it, that of the package."""

INFINITE_NS: Final = 0x7FFFFFFFFFFFFFFF
"""DDS_INFINITY as duration and DDS_NEVER as time."""

BUILTIN_PARTICIPANT: Final = 0x7FFF0001
BUILTIN_TOPIC: Final = 0x7FFF0002
BUILTIN_PUBLICATION: Final = 0x7FFF0003
BUILTIN_SUBSCRIPTION: Final = 0x7FFF0004

# Values of dds.h.
ALIVE: Final = 16
"""DDS_ALIVE_INSTANCE_STATE; every other instance state means that no writer holds it."""

# dds_status_id_t: the position in that enumeration is the bit.
OFFERED_INCOMPATIBLE_QOS: Final = 1 << 3
DATA_AVAILABLE: Final = 1 << 8
PUBLICATION_MATCHED: Final = 1 << 11
SUBSCRIPTION_MATCHED: Final = 1 << 12
"""DDS statuses as masks."""

FIND_GLOBAL: Final = 0
"""DDS_FIND_SCOPE_GLOBAL: remote participants are asked for types, too."""
FIND_LOCAL: Final = 1
"""DDS_FIND_SCOPE_LOCAL_DOMAIN: types that are known in the domain."""

KEYED: Final = 1 << 12
"""DDS_DATA_TYPE_CONTAINS_KEY."""
BOTH_REPRESENTATIONS: Final = 0b101
"""XCDR1 and XCDR2, as flags of representations."""


def _is_in_range(version: str) -> bool:
    numbers = version.split(".")
    return all(map(str.isdecimal, numbers)) and _FIRST <= tuple(map(int, numbers)) < _PAST


def _supported() -> str:
    """Return the version of the package."""
    version = installed_version()
    if version is None:
        raise UnsupportedCyclone(f"the package cyclonedds is not installed; install '{RANGE}'")
    if not _is_in_range(version):
        raise UnsupportedCyclone(
            f"cyclonedds {version} is installed, but the memory layouts of {TESTED} are needed;"
            f" install '{RANGE}'"
        )
    return version


def _load() -> tuple[ctypes.CDLL, str]:
    """Open the library, and tell its path if it is not the wheel's.

    The wheel's is opened by a second handle, which keeps our argument types apart from the wheel's.
    """
    if sys.byteorder != "little" or struct.calcsize("P") != 8:
        raise UnsupportedCyclone("the memory layouts of Cyclone DDS are known for 64-bit little-endian only")
    from cyclonedds.internal import DDS

    ours = DDS._dll_handle._name
    wanted = os.environ.get(CHOICE, "")
    if not wanted or os.path.realpath(wanted) == os.path.realpath(ours):
        return ctypes.CDLL(ours), ""
    if not wanted.isprintable():  # bytes that are no text have become lone surrogates, which no log takes
        raise UnsupportedCyclone(f"{CHOICE} names {wanted!a}, which is not text")
    path = pathlib.Path(wanted)
    if trial.is_relative(wanted):
        raise UnsupportedCyclone(f"{CHOICE} names {wanted}; write the whole path, which begins with /")
    if path.exists() and not path.is_file():
        raise UnsupportedCyclone(f"{CHOICE} names {wanted}, which is not a file")
    if not trial.is_under_way:
        crash = trial.how_it_crashes(f"{CHOICE} names {wanted}, which", f"import {__name__}")
        if crash:
            raise UnsupportedCyclone(
                f"{CHOICE} names {wanted}, which cannot be used: {crash}; the file may be cut off or damaged"
            )
    try:
        return ctypes.CDLL(wanted), wanted
    except OSError as error:
        raise UnsupportedCyclone(f"{CHOICE} names {wanted}, which cannot be opened: {error}") from None


_version: Final = _supported()
_library, OTHER = _load()
"""The library, and its path if it is not that of the package cyclonedds."""
PATH: Final[str] = _library._name
"""Where the library is."""
NAME: Final = OTHER or f"cyclonedds {_version}"
"""What the library is called in messages."""
IS_UNTRIED: Final = bool(OTHER) or _version != TESTED
"""Whether another process must try the library first, because wrong layouts can crash."""

_entity = ctypes.c_int32
_code = ctypes.c_int32
_pointer = ctypes.c_void_p
_duration = ctypes.c_int64
_text = ctypes.c_char_p
_flag = ctypes.c_bool


def _without(name: str) -> UnsupportedCyclone:
    return UnsupportedCyclone(f"the library of Cyclone DDS, {NAME}, has no {name}, which nodes need")


def _function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    function = getattr(_library, name, None)
    if function is None:
        raise _without(name)
    function.restype = result
    function.argtypes = list(arguments)
    return function  # type: ignore[no-any-return]  # a ctypes function pointer, typed by the lines above


def address_by_name(name: str) -> int:
    """Return the address of a function or a variable of the library.

    Raises:
        UnsupportedCyclone: it has none of this name.
    """
    try:
        return ctypes.addressof(ctypes.c_char.in_dll(_library, name))
    except ValueError:
        raise _without(name) from None


def address_of(function: Callable[..., Any]) -> int:
    """Return the machine address of a function of this module."""
    return ctypes.cast(function, _pointer).value or 0  # type: ignore[arg-type]  # it is a ctypes function


class SampleInfo(ctypes.Structure):
    """dds_sample_info_t."""

    _fields_ = [
        ("sample_state", ctypes.c_uint),
        ("view_state", ctypes.c_uint),
        ("instance_state", ctypes.c_uint),
        ("valid_data", ctypes.c_bool),
        ("source_timestamp", ctypes.c_int64),
        ("instance_handle", ctypes.c_uint64),
        ("publication_handle", ctypes.c_uint64),
        ("disposed_generation_count", ctypes.c_uint32),
        ("no_writers_generation_count", ctypes.c_uint32),
        ("sample_rank", ctypes.c_uint32),
        ("generation_rank", ctypes.c_uint32),
        ("absolute_generation_rank", ctypes.c_uint32),
    ]


class BuiltinParticipant(ctypes.Structure):
    """dds_builtintopic_participant_t."""

    _fields_ = [("key", ctypes.c_uint8 * 16), ("qos", _pointer)]


class BuiltinEndpoint(ctypes.Structure):
    """dds_builtintopic_endpoint_t."""

    _fields_ = [
        ("key", ctypes.c_uint8 * 16),
        ("participant_key", ctypes.c_uint8 * 16),
        ("participant_handle", ctypes.c_uint64),
        ("topic_name", _text),
        ("type_name", _text),
        ("qos", _pointer),
    ]


class BuiltinTopic(ctypes.Structure):
    """dds_builtintopic_topic_t."""

    _fields_ = [("key", ctypes.c_uint8 * 16), ("topic_name", _text), ("type_name", _text), ("qos", _pointer)]


class Blob(ctypes.Structure):
    """struct dds_type_meta_ser: serialized type information or type mapping."""

    _fields_ = [("data", _pointer), ("size", ctypes.c_uint32)]


class TopicDescriptor(ctypes.Structure):
    """dds_topic_descriptor_t."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("align", ctypes.c_uint32),
        ("flagset", ctypes.c_uint32),
        ("nkeys", ctypes.c_uint32),
        ("typename", _text),
        ("keys", _pointer),
        ("nops", ctypes.c_uint32),
        ("ops", _pointer),
        ("meta", _text),
        ("type_information", Blob),
        ("type_mapping", Blob),
        ("restrict_data_representation", ctypes.c_uint32),
    ]


class SampleBytes(ctypes.Structure):
    """What writers take: `struct given` of cyclone.h, and ddspy_sample_container_t of the package."""

    _fields_ = [("buffer", _text), ("length", ctypes.c_size_t)]


class IncompatibleQosStatus(ctypes.Structure):
    """dds_offered_incompatible_qos_status_t."""

    _fields_ = [
        ("total_count", ctypes.c_uint32),
        ("total_count_change", ctypes.c_int32),
        ("last_policy_id", ctypes.c_uint32),
    ]


# struct ddsi_serdata: kind at 16 (1 key only, 2 data), source time at 32, status at 40. Behind it are two
# (address, size) pairs: the CDR with its header at 64, the XCDR2 key bytes at 80. So has `struct sample` of
# cyclone.h them, and ddspy_serdata of the package, which applications use.
SERDATA_BYTES: Final = 96
SERDATA: Final = struct.Struct("<16xi12xqI20xQQQQ")


class ReaderCacheOps(ctypes.Structure):
    """struct dds_rhc_ops: the functions of a reader history cache."""

    _fields_ = [
        ("store", _pointer),
        ("unregister_writer", _pointer),
        ("relinquish", _pointer),
        ("free", _pointer),
        ("peek", _pointer),
        ("read", _pointer),
        ("take", _pointer),
        ("add_condition", _pointer),
        ("remove_condition", _pointer),
        ("associate", _pointer),
    ]


class ReaderCache(ctypes.Structure):
    """struct dds_rhc: begins with the pointer to its functions."""

    _fields_ = [("ops", _pointer)]


create_domain = _function("dds_create_domain", _entity, ctypes.c_uint32, _text)
create_participant = _function("dds_create_participant", _entity, ctypes.c_uint32, _pointer, _pointer)
create_participant_as = _function(
    "dds_create_participant_guid", _entity, ctypes.c_uint32, _pointer, _pointer, ctypes.c_uint32, _text
)
create_subscriber = _function("dds_create_subscriber", _entity, _entity, _pointer, _pointer)
create_publisher = _function("dds_create_publisher", _entity, _entity, _pointer, _pointer)
create_reader = _function("dds_create_reader", _entity, _entity, _entity, _pointer, _pointer)
create_reader_with_cache = _function(
    "dds_create_reader_rhc", _entity, _entity, _entity, _pointer, _pointer, _pointer
)
create_topic = _function(
    "dds_create_topic_sertype", _entity, _entity, _text, _pointer, _pointer, _pointer, _pointer
)
create_writer = _function("dds_create_writer", _entity, _entity, _entity, _pointer, _pointer)
delete = _function("dds_delete", _code, _entity)
get_guid = _function("dds_get_guid", _code, _entity, _pointer)

create_waitset = _function("dds_create_waitset", _entity, _entity)
create_guard = _function("dds_create_guardcondition", _entity, _entity)
waitset_attach = _function("dds_waitset_attach", _code, _entity, _entity, ctypes.c_ssize_t)
waitset_detach = _function("dds_waitset_detach", _code, _entity, _entity)
waitset_wait = _function("dds_waitset_wait", _code, _entity, _pointer, ctypes.c_size_t, _duration)
set_guard = _function("dds_set_guardcondition", _code, _entity, _flag)
take_status = _function("dds_take_status", _code, _entity, _pointer, ctypes.c_uint32)
read_guard = _function("dds_read_guardcondition", _code, _entity, _pointer)
take_guard = _function("dds_take_guardcondition", _code, _entity, _pointer)
set_status_mask = _function("dds_set_status_mask", _code, _entity, ctypes.c_uint32)

take = _function("dds_take", _code, _entity, _pointer, _pointer, ctypes.c_size_t, ctypes.c_uint32)
return_loan = _function("dds_return_loan", _code, _entity, _pointer, ctypes.c_int32)

write_at = _function("dds_write_ts", _code, _entity, _pointer, ctypes.c_int64)
dispose_at = _function("dds_dispose_ts", _code, _entity, _pointer, ctypes.c_int64)
writedispose_at = _function("dds_writedispose_ts", _code, _entity, _pointer, ctypes.c_int64)
unregister_at = _function("dds_unregister_instance_ts", _code, _entity, _pointer, ctypes.c_int64)
write_flush = _function("dds_write_flush", _code, _entity)
wait_for_acks = _function("dds_wait_for_acks", _code, _entity, _duration)
_pin = _function("dds_entity_pin", _code, _entity, ctypes.POINTER(_pointer))
_unpin = _function("dds_entity_unpin", None, _pointer)
matched_subscriptions = _function("dds_get_matched_subscriptions", _code, _entity, _pointer, ctypes.c_size_t)
matched_publications = _function("dds_get_matched_publications", _code, _entity, _pointer, ctypes.c_size_t)
matched_subscription_data = _function("dds_get_matched_subscription_data", _pointer, _entity, ctypes.c_uint64)
matched_publication_data = _function("dds_get_matched_publication_data", _pointer, _entity, ctypes.c_uint64)
free_endpoint = _function("dds_builtintopic_free_endpoint", None, _pointer)
offered_incompatible = _function(
    "dds_get_offered_incompatible_qos_status", _code, _entity, ctypes.POINTER(IncompatibleQosStatus)
)

endpoint_type = _function(
    "dds_builtintopic_get_endpoint_type_info", _code, _pointer, ctypes.POINTER(_pointer)
)
duplicate_type = _function("ddsi_typeinfo_dup", _pointer, _pointer)
read_type = _function("ddsi_typeinfo_deser", _pointer, _text, ctypes.c_uint32)
free_type = _function("dds_free_typeinfo", _code, _pointer)
type_identifier = _function("ddsi_typeinfo_typeid", _pointer, _pointer, ctypes.c_int)
type_identifier_hash = _function("ddsi_typeid_get_equivalence_hash", None, _pointer, _pointer)
type_identifier_fini = _function("ddsi_typeid_fini", None, _pointer)
create_descriptor = _function(
    "dds_create_topic_descriptor", _code, ctypes.c_int, _entity, _pointer, _duration, ctypes.POINTER(_pointer)
)
delete_descriptor = _function("dds_delete_topic_descriptor", None, _pointer)

serdata_ref = _function("ddsi_serdata_ref", _pointer, _pointer)
serdata_unref = _function("ddsi_serdata_unref", None, _pointer)
sertype_of = _function("dds_get_entity_sertype", _code, _entity, ctypes.POINTER(_pointer))
sertype_unref = _function("ddsi_sertype_unref", None, _pointer)
_serdata_from = _function("ddsi_serdata_from_sample", _pointer, _pointer, ctypes.c_int, _pointer)

release = _function("dds_free", None, _pointer)
create_qos = _function("dds_create_qos", _pointer)
delete_qos = _function("dds_delete_qos", None, _pointer)

_int = ctypes.c_int
_int32 = ctypes.c_int32
_out = ctypes.c_void_p  # the address of a variable to fill

qset_userdata = _function("dds_qset_userdata", None, _pointer, _text, ctypes.c_size_t)
qset_transport_priority = _function("dds_qset_transport_priority", None, _pointer, _int32)
qset_entity_name = _function("dds_qset_entity_name", None, _pointer, _text)
qset_durability = _function("dds_qset_durability", None, _pointer, _int)
qset_history = _function("dds_qset_history", None, _pointer, _int, _int32)
qset_resource_limits = _function("dds_qset_resource_limits", None, _pointer, _int32, _int32, _int32)
qset_presentation = _function("dds_qset_presentation", None, _pointer, _int, _flag, _flag)
qset_deadline = _function("dds_qset_deadline", None, _pointer, _duration)
qset_latency_budget = _function("dds_qset_latency_budget", None, _pointer, _duration)
qset_ownership = _function("dds_qset_ownership", None, _pointer, _int)
qset_ownership_strength = _function("dds_qset_ownership_strength", None, _pointer, _int32)
qset_liveliness = _function("dds_qset_liveliness", None, _pointer, _int, _duration)
qset_partition = _function("dds_qset_partition", None, _pointer, ctypes.c_uint32, _pointer)
qset_reliability = _function("dds_qset_reliability", None, _pointer, _int, _duration)
qset_destination_order = _function("dds_qset_destination_order", None, _pointer, _int)
qset_writer_lifecycle = _function("dds_qset_writer_data_lifecycle", None, _pointer, _flag)
qset_writer_batching = _function("dds_qset_writer_batching", None, _pointer, _flag)
qset_representation = _function("dds_qset_data_representation", None, _pointer, ctypes.c_uint32, _pointer)
qset_type_consistency = _function(
    "dds_qset_type_consistency", None, _pointer, _int, _flag, _flag, _flag, _flag, _flag
)
qset_durability_service = _function(
    "dds_qset_durability_service", None, _pointer, _duration, _int, _int32, _int32, _int32, _int32
)

qget_userdata = _function("dds_qget_userdata", _flag, _pointer, _out, _out)
qget_transport_priority = _function("dds_qget_transport_priority", _flag, _pointer, _out)
qget_entity_name = _function("dds_qget_entity_name", _flag, _pointer, _out)
qget_property = _function("dds_qget_prop", _flag, _pointer, _text, _out)
qget_durability = _function("dds_qget_durability", _flag, _pointer, _out)
qget_history = _function("dds_qget_history", _flag, _pointer, _out, _out)
qget_resource_limits = _function("dds_qget_resource_limits", _flag, _pointer, _out, _out, _out)
qget_presentation = _function("dds_qget_presentation", _flag, _pointer, _out, _out, _out)
qget_deadline = _function("dds_qget_deadline", _flag, _pointer, _out)
qget_latency_budget = _function("dds_qget_latency_budget", _flag, _pointer, _out)
qget_lifespan = _function("dds_qget_lifespan", _flag, _pointer, _out)
qget_ownership = _function("dds_qget_ownership", _flag, _pointer, _out)
qget_ownership_strength = _function("dds_qget_ownership_strength", _flag, _pointer, _out)
qget_liveliness = _function("dds_qget_liveliness", _flag, _pointer, _out, _out)
qget_partition = _function("dds_qget_partition", _flag, _pointer, _out, _out)
qget_reliability = _function("dds_qget_reliability", _flag, _pointer, _out, _out)
qget_destination_order = _function("dds_qget_destination_order", _flag, _pointer, _out)
qget_writer_lifecycle = _function("dds_qget_writer_data_lifecycle", _flag, _pointer, _out)
qget_representation = _function("dds_qget_data_representation", _flag, _pointer, _out, _out)
qget_durability_service = _function(
    "dds_qget_durability_service", _flag, _pointer, _out, _out, _out, _out, _out, _out
)


_PARTICIPANT_ENTITY: Final = b"\x00\x00\x01\xc1"


def participant_of(guid: bytes) -> bytes:
    """Return the GUID of an endpoint's participant (RTPS 2.5, 9.3.1)."""
    return guid[:12] + _PARTICIPANT_ENTITY


def guid_of(entity: int) -> bytes:
    """Return the GUID of a local entity, 16 bytes in network order; empty if the entity was deleted."""
    guid = (ctypes.c_uint8 * 16)()
    return bytes(guid) if get_guid(entity, guid) == 0 else b""


_KEY_KIND, _DATA_KIND = 1, 2


def as_written(entity: int, payload: bytes, *, is_key: bool = False) -> tuple[bytes, bytes] | None:
    """Return key bytes and CDR of a sample as a reader would receive it; None if it is malformed.

    Args:
        entity: a topic, writer or reader of the sample's type.
        payload: CDR with its header.
        is_key: whether `payload` is the key only, as for a dispose.
    """
    sertype = _pointer()
    if sertype_of(entity, ctypes.byref(sertype)) != 0:
        return None
    sample = SampleBytes(payload, len(payload))
    serdata = _serdata_from(sertype, _KEY_KIND if is_key else _DATA_KIND, ctypes.byref(sample))
    if not serdata:
        return None
    try:
        return content_of(serdata)
    finally:
        serdata_unref(serdata)


_WRITER_AT: Final = 632
"""Offset in struct dds_writer of the address of its struct ddsi_writer."""
_SEQUENCE_AT: Final = 288
"""Offset in struct ddsi_writer of the number of its last sample."""


def sequence_of(writer: int) -> int:
    """Return how often a local writer wrote, disposed or unregistered; -1 if it was deleted.

    Cyclone DDS has no call for this; `engine.dds.selfcheck` proves the layout.
    """
    entity = _pointer()
    if _pin(writer, ctypes.byref(entity)) != 0 or not entity.value:
        return -1
    try:
        inner = ctypes.c_uint64.from_address(entity.value + _WRITER_AT).value
        return ctypes.c_int64.from_address(inner + _SEQUENCE_AT).value
    finally:
        _unpin(entity)


def content_of(serdata: int) -> tuple[bytes, bytes]:
    """Copy key bytes and CDR of a sample from C memory."""
    fields = SERDATA.unpack(ctypes.string_at(serdata, SERDATA_BYTES))
    data, size, key, key_size = fields[3:]
    return ctypes.string_at(key, key_size) if key_size else b"", ctypes.string_at(data, size)


def take_c_string(pointer: ctypes.c_void_p) -> str:
    """Copy a string that C allocated for us, and free it."""
    if not pointer.value:
        return ""
    try:
        return ctypes.string_at(pointer.value).decode("utf-8", "replace")
    finally:
        release(pointer)
