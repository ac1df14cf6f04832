"""Writers of serialized samples with given source timestamps; the calls release the interpreter lock."""

from __future__ import annotations

import array
import ctypes
import functools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from engine import native
from engine.dataset.sample import DATA, DISPOSE, KEY_HEADER, UNREGISTER
from engine.dds import abi
from engine.dds.errors import TIMEOUT, check
from engine.dds.participant import NodeParticipant
from engine.dds.qos import EndpointQos, endpoint_qos
from engine.dds.topics import Topic
from engine.dds.waiting import Signal

# 32 KiB for the call; readers beyond it would not be waited for.
_MAX_MATCHES: Final = 4096
"""Readers that are asked for at once; the array for their handles is made before their number is known."""
LATEST_NS: Final = (1 << 32) * 1_000_000_000 - 1
"""The last source time that Cyclone DDS writes, in 2106: RTPS counts seconds in 32 bits, from 1970 on."""


def stamp_ns() -> int:
    """Return the present as the source time of a protocol message: a wrong clock must not end its writer."""
    return min(max(0, time.time_ns()), LATEST_NS)


def key_payload(key: bytes) -> bytes:
    """Make the payload of a dispose or unregister from the XCDR2 key bytes of an instance.

    A captured dispose has its own payload. This is for an instance whose dispose was not captured: the key
    bytes are the key fields serialized as XCDR2, so the header says XCDR2, whichever representation the
    instance's samples have.
    """
    return KEY_HEADER + key


@functools.cache
def compiled() -> ctypes.CDLL:
    """Return the compiled library, whose calls give up the interpreter lock."""
    library = native.unlocked()
    library.write_many.restype = ctypes.c_int64
    pointers = [ctypes.c_void_p] * 4
    library.write_many.argtypes = [ctypes.c_int32, *pointers, ctypes.c_int64, ctypes.c_void_p]
    return library


@functools.cache
def _address_of_write() -> int | None:
    function: Any = abi.write_at
    return ctypes.cast(function, ctypes.c_void_p).value


class RawWriter:
    """Writes CDR bytes, header included, unchanged.

    Several threads may use a writer; samples of one thread keep their order. A reliable KEEP_ALL writer
    blocks while its readers are behind, for up to `qos.blocking_ns`.

    Args:
        participant: where the writer lives.
        topic: from `open_topic`.
        qos: its policies, partitions included.
    """

    def __init__(self, participant: NodeParticipant, topic: Topic, qos: EndpointQos) -> None:
        self._participant = participant
        self.topic = topic
        self.qos = qos
        self._publisher = participant.create_publisher(qos)
        self._lock = threading.Lock()  # of two threads that close, one deletes
        self._closed = False
        self._action = f"write to topic '{topic.name}'"
        with endpoint_qos(qos) as c_qos:
            code = abi.create_writer(self._publisher, topic.entity, c_qos, None)
        if code < 0:
            abi.delete(self._publisher)
        self.entity: int = check(code, f"create a writer of topic '{topic.name}'")
        self.guid = abi.guid_of(self.entity)
        participant.adopt(self.entity, self)

    def write(self, payload: bytes, source_time_ns: int) -> None:
        """Write a whole sample.

        Raises:
            DdsTimeout: readers were behind for longer than `qos.blocking_ns`; the sample was not written.
            DdsError: the payload is not of the topic's type (BAD_PARAMETER), or the writer is closed.
        """
        sample = abi.SampleBytes(payload, len(payload))
        check(abi.write_at(self.entity, ctypes.byref(sample), source_time_ns), self._action)

    def write_many(self, payloads: Sequence[bytes], times_ns: Sequence[int]) -> int:
        """Write whole samples in order, as many as readers are not behind for; return how many.

        Args:
            payloads: the samples, one or more.
            times_ns: their source times.

        Raises:
            DdsTimeout, DdsError: as for `write`, and none was written.
        """
        code = ctypes.c_int32()
        sizes, times = array.array("Q", map(len, payloads)), array.array("q", times_ns)
        done: int = compiled().write_many(
            *(self.entity, _address_of_write()),
            *((ctypes.c_char_p * len(payloads))(*payloads), sizes.buffer_info()[0], times.buffer_info()[0]),
            *(len(payloads), ctypes.byref(code)),
        )
        if not done:
            check(code.value, self._action)
        return done

    def dispose(self, payload: bytes, source_time_ns: int) -> None:
        """Dispose the instance whose key-only payload is given; errors as for `write`."""
        sample = abi.SampleBytes(payload, len(payload))
        check(abi.dispose_at(self.entity, ctypes.byref(sample), source_time_ns), self._action)

    def writedispose(self, payload: bytes, source_time_ns: int) -> None:
        """Write a whole sample and dispose its instance in one; errors as for `write`."""
        sample = abi.SampleBytes(payload, len(payload))
        check(abi.writedispose_at(self.entity, ctypes.byref(sample), source_time_ns), self._action)

    def unregister(self, payload: bytes, source_time_ns: int) -> None:
        """Unregister the instance whose key-only payload is given; errors as for `write`."""
        sample = abi.SampleBytes(payload, len(payload))
        check(abi.unregister_at(self.entity, ctypes.byref(sample), source_time_ns), self._action)

    def put(self, status: int, key: bytes, payload: bytes, source_time_ns: int) -> None:
        """Write a captured sample; errors as for `write`.

        A sample that is both a dispose and an unregister is written as a dispose followed by an unregister.

        Args:
            status: bits of `engine.dataset.sample`.
            key: the instance's key bytes, used for an unregister that comes with data.
            payload: CDR with its header; the key only without `DATA`.
            source_time_ns: the sample's timestamp.
        """
        if status & DATA:
            (self.writedispose if status & DISPOSE else self.write)(payload, source_time_ns)
        elif status & DISPOSE:
            self.dispose(payload, source_time_ns)
        if status & UNREGISTER:
            self.unregister(key_payload(key) if status & DATA else payload, source_time_ns)

    def flush(self) -> None:
        """Send the samples that are collected for a network message."""
        abi.write_flush(self.entity)

    def wait_for_acks(self, timeout_s: float) -> bool:
        """Wait until all matched reliable readers have acknowledged everything; return False if not in time.

        Raises:
            DdsError: the writer is closed.
        """
        code = abi.wait_for_acks(self.entity, round(max(0.0, timeout_s) * 1e9))
        return _reached(code, f"wait for acknowledgements of topic '{self.topic.name}'")

    def matched(self) -> set[int]:
        """Return the instance handles of the matched readers, at most 4096."""
        handles = (ctypes.c_uint64 * _MAX_MATCHES)()
        count = check(abi.matched_subscriptions(self.entity, handles, _MAX_MATCHES), self._action)
        return set(handles[: min(count, _MAX_MATCHES)])

    def matched_guids(self) -> set[bytes]:
        """Return the GUIDs of the matched readers, in network order."""
        return set(self.matched_readers())

    def matched_readers(self) -> dict[bytes, bytes]:
        """Return reader GUID to participant GUID of the matched readers, in network order."""
        found = {}
        for handle in self.matched():
            data = abi.matched_subscription_data(self.entity, handle)
            if data:
                endpoint = abi.BuiltinEndpoint.from_address(data)
                found[bytes(endpoint.key)] = bytes(endpoint.participant_key)
                abi.free_endpoint(data)
        return found

    def wait_matched(self, count: int, timeout_s: float) -> bool:
        """Wait until at least `count` readers match; return False if not in time."""
        return self.wait_until(lambda: len(self.matched()) >= count, timeout_s)

    def wait_for_readers(self, readers: set[bytes], timeout_s: float) -> bool:
        """Wait until all of these readers, by GUID, match; return False if not in time."""
        return self.wait_until(lambda: readers <= self.matched_guids(), timeout_s)

    def wait_until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until the condition holds, checking it whenever a reader comes, goes or is refused."""
        statuses = abi.PUBLICATION_MATCHED | abi.OFFERED_INCOMPATIBLE_QOS
        taken = ctypes.c_uint32()

        def check_again() -> bool:
            abi.take_status(self.entity, ctypes.byref(taken), statuses)
            return condition()

        with Signal(self._participant) as signal:
            signal.attach(self.entity, statuses)
            return signal.wait_until(check_again, timeout_s)

    def incompatible_policy(self) -> tuple[int, int]:
        """Return the number of readers with incompatible QoS, and the id of the last policy at fault."""
        status = abi.IncompatibleQosStatus()
        check(abi.offered_incompatible(self.entity, ctypes.byref(status)), self._action)
        return status.total_count, status.last_policy_id

    def close(self) -> None:
        """Delete the writer; readers then see its instances without a writer. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        abi.delete(self._publisher)
        self._participant.disown(self.entity)


def _reached(code: int, action: str) -> bool:
    if code == TIMEOUT:
        return False
    check(code, action)
    return True
