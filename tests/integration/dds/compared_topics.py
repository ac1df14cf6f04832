"""Topics made by public functions beside those of the Python package: the same bytes; what the key costs.

`python -m tests.integration.dds.compared_topics` prints nanoseconds of processor time for two calls from
Python: one that makes the key, and one that forgets it.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from typing import Any, Final

from cyclonedds.internal import DDS

from benchmarks.load_type import Load
from engine.dataset.groups import TypeDescription
from engine.dds.abi import SampleBytes
from engine.dds.participant import NodeParticipant, free_domain_id
from engine.dds.topics import description_of, open_topic
from engine.dds.uri import private_uri
from tests.integration.dds.public_api import LOCAL
from tests.integration.untyped import descriptor_of, made

DATA: Final = 2
"""SDK_DATA of enum ddsi_serdata_kind."""
CALLS: Final = 50_000
_Pointer = ctypes.c_void_p


class _Piece(ctypes.Structure):
    """ddsrt_iovec_t."""

    _fields_ = [("base", _Pointer), ("size", ctypes.c_size_t)]


class Compared:
    """A type with a topic of each kind."""

    def __init__(self, library: Any, participant: NodeParticipant, type_: TypeDescription) -> None:
        self.library = library
        for name in ("from_sample", "from_ser_iov", "to_untyped", "ref"):
            getattr(library, f"ddsi_serdata_{name}").restype = _Pointer
        library.ddsi_typeinfo_deser.restype = _Pointer
        topic = type_.name.replace("::", "_")
        self._package = self._type_of(open_topic(participant, topic, type_).entity)
        entity, stub = participant.entity, descriptor_of(type_)
        made(library.dds_create_topic(entity, ctypes.byref(stub), f"{topic}_stub".encode(), None, None))
        size = ctypes.c_uint32(len(type_.information))
        told = _Pointer(library.ddsi_typeinfo_deser(type_.information, size))
        descriptor, never = _Pointer(), ctypes.c_int64(0)
        made(library.dds_create_topic_descriptor(LOCAL, entity, told, never, ctypes.byref(descriptor)))
        self._public = self._type_of(
            made(library.dds_create_topic(entity, descriptor, f"{topic}_public".encode(), None, None))
        )

    def _type_of(self, topic: int) -> _Pointer:
        found = _Pointer()
        made(self.library.dds_get_entity_sertype(topic, ctypes.byref(found)))
        return found

    def package(self, payload: bytes) -> int:
        """A sample of the package's topic."""
        sample = SampleBytes(payload, len(payload))
        found = self.library.ddsi_serdata_from_sample(self._package, DATA, ctypes.byref(sample))
        return found or 0

    def public(self, payload: bytes) -> int:
        """A sample of the other one."""
        size = ctypes.c_size_t(len(payload))
        piece = _Piece(ctypes.cast(ctypes.c_char_p(payload), _Pointer), size)
        own = self.library.ddsi_serdata_from_ser_iov
        return own(self._public, DATA, ctypes.c_size_t(1), ctypes.byref(piece), size) or 0

    def key(self, sample: int) -> int:
        """The key of a sample, as a sample."""
        found: int = self.library.ddsi_serdata_to_untyped(_Pointer(sample))
        return found

    def again(self, sample: int) -> int:
        """The same sample, which costs no more than the call."""
        found: int = self.library.ddsi_serdata_ref(_Pointer(sample))
        return found

    def forget(self, sample: int) -> None:
        self.library.ddsi_serdata_unref(_Pointer(sample))


def own_library() -> Any:
    """The library of the package, with argument types of its own."""
    return ctypes.CDLL(DDS._dll_handle._name)


def _cost_ns(function: Callable[..., object], argument: object) -> int:
    began = time.process_time_ns()
    for _ in range(CALLS):
        function(argument)
    return (time.process_time_ns() - began) // CALLS


def main() -> None:
    """Print what the key of a sample costs, and what two calls cost that do as good as nothing."""
    library = own_library()
    with free_domain_id() as domain, NodeParticipant(domain, private_uri(), "cost", os.urandom(16)) as one:
        compared = Compared(library, one, description_of(Load))

        def measured(make: Callable[[Any], int]) -> Callable[[Any], None]:
            return lambda argument: compared.forget(make(argument))

        payload = b"\0\1\0\0" + (7).to_bytes(4, "little") + (88).to_bytes(4, "little") + bytes(88)
        sample = compared.public(payload)
        figures = {
            "key": _cost_ns(measured(compared.key), sample),
            "two calls": _cost_ns(measured(compared.again), sample),
        }
        print(figures)


if __name__ == "__main__":
    main()
