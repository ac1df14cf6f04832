"""Topics with the type support of the compiled library (`types.c` of `engine.native`).

It needs public functions of Cyclone DDS only, and finds them by name. Its samples have their bytes where
`abi.SERDATA` says.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import struct
import threading
from typing import TYPE_CHECKING, Final, NamedTuple

from engine import native
from engine.dds import abi
from engine.dds.errors import DdsError, check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine.dataset.groups import TypeDescription

_DATA: Final = ("dds_cdrstream_default_allocator",)
_FUNCTIONS: Final = (
    "ddsi_sertype_v0",
    "ddsi_sertype_init_props",
    "ddsi_sertype_fini",
    "ddsi_typeinfo_deser",
    "ddsi_typeinfo_free",
    "ddsi_typeinfo_typeid",
    "ddsi_typemap_deser",
    "ddsi_serdata_init",
    "dds_cdrstream_desc_from_topic_desc",
    "dds_cdrstream_desc_fini",
    "dds_stream_normalize",
    "dds_stream_extract_key_from_data",
    "dds_stream_extract_key_from_key",
    "dds_stream_extract_keyBE_from_key",
    "ddsrt_md5_init",
    "ddsrt_md5_append",
    "ddsrt_md5_finish",
)
"""What `types.c` calls, in its order, after the data."""

_pointer = ctypes.c_void_p
_text, _size, _flag = ctypes.c_char_p, ctypes.c_uint32, ctypes.c_bool
_lock = threading.Lock()
# As many as types.c remembers.
_REFUSED_WRITERS: Final = 256
_REFUSAL: Final = struct.Struct("<16sQI4s")
"""struct refusal of types.c."""


@functools.cache
def _library() -> ctypes.PyDLL:
    library = native.library()
    library.types_open.restype = ctypes.c_bool
    library.types_open.argtypes = [_pointer, ctypes.c_uint64]
    library.type_make.restype = _pointer
    library.type_make.argtypes = [
        *(_text, _text, _size, _text, _size),
        *(ctypes.c_uint64, ctypes.c_uint32, _flag, _flag),
    ]
    library.type_is_known.restype = ctypes.c_bool
    library.type_is_known.argtypes = [_pointer]
    library.type_describe.restype = None
    library.type_describe.argtypes = [_pointer, _pointer]
    library.types_refused.restype = library.types_refusals.restype = ctypes.c_uint64
    addresses = [abi.address_by_name(name) for name in (*_DATA, *_FUNCTIONS)]
    taken = library.types_open((_pointer * len(addresses))(*addresses), len(addresses))
    assert taken, "types.c has other functions"
    return library


class Refusal(NamedTuple):
    """The samples of one writer that Cyclone DDS received and that are not values of their type."""

    writer: bytes
    """Its GUID, 16 bytes in network order."""
    samples: int
    """Their number since this process started."""
    size: int
    """Bytes of the last one, with its encapsulation header."""
    header: bytes
    """The encapsulation header of the last one, 4 bytes."""

    @property
    def text(self) -> str:
        """The reason, for people."""
        what = "1 sample is no value" if self.samples == 1 else f"{self.samples:,} samples are no values"
        return f"{what} of its type (the last has {self.size} bytes, encapsulation 0x{self.header[:2].hex()})"


class Refusals:
    """What the type support of this process has refused, as news."""

    def __init__(self) -> None:
        self._total = 0
        self._counts: dict[bytes, int] = {}

    def news(self, is_known: Callable[[bytes], bool]) -> list[tuple[Refusal, int]]:
        """Take the writers with samples that were refused since the last call, and the number of these.

        Only of the last 256 writers. `is_known` tells which writers the caller knows; others wait.
        """
        library = _library()
        if (total := library.types_refused()) == self._total:
            return []
        buffer = ctypes.create_string_buffer(_REFUSED_WRITERS * _REFUSAL.size)
        used = library.types_refusals(buffer) * _REFUSAL.size
        found = [Refusal(*fields) for fields in _REFUSAL.iter_unpack(buffer.raw[:used])]
        known = [one for one in found if is_known(one.writer)]
        if len(known) == len(found):
            self._total = total
        before, now = self._counts, {one.writer: one.samples for one in found}
        self._counts = {guid: count for guid, count in before.items() if guid in now}
        self._counts |= {one.writer: one.samples for one in known}
        news = [(one, one.samples - before.get(one.writer, 0)) for one in known]
        return [(one, count) for one, count in news if count > 0]


def create(participant: int, topic_name: str, description: TypeDescription) -> int:
    """Make a topic; return the entity.

    Args:
        participant: the entity in whose domain it is.
        topic_name: the topic's name.
        description: its type; of one that is known by its name, nothing else is announced.

    Raises:
        DdsError: Cyclone DDS refuses the type, for example a recursive one.
    """
    action = f"create the topic '{topic_name}' of type '{description.name}'"
    library = _library()
    type_ = _pointer(
        library.type_make(
            description.name.encode(),
            *(description.information, len(description.information)),
            *(description.mapping, len(description.mapping)),
            *(abi.KEYED if description.keyed else 0, abi.BOTH_REPRESENTATIONS),
            *(description.keyed, description.is_untyped),
        )
    )
    if not type_.value:
        raise MemoryError
    with _lock:  # an equal type is one for all topics of a domain, and gets its layout before it is used
        entity = abi.create_topic(participant, topic_name.encode(), ctypes.byref(type_), None, None, None)
        if entity < 0:
            abi.sertype_unref(type_)
        topic: int = check(entity, action)
        try:
            if not library.type_is_known(type_):
                with _descriptor(participant, description, action) as descriptor:
                    library.type_describe(type_, descriptor)
        except DdsError:
            abi.delete(topic)
            raise
    return topic


@contextlib.contextmanager
def _descriptor(participant: int, description: TypeDescription, action: str) -> Iterator[ctypes.c_void_p]:
    """The descriptor of a type that is known in the domain."""
    reference = abi.read_type(description.information, len(description.information))
    descriptor = _pointer()
    code = abi.create_descriptor(abi.FIND_LOCAL, participant, reference, 0, ctypes.byref(descriptor))
    abi.free_type(reference)
    check(code, action)
    try:
        yield descriptor
    finally:
        abi.delete_descriptor(descriptor)
