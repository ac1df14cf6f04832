"""Capture: a reader that sees every write, dispose and unregister, each with its own timestamp and writer.

An ordinary reader keeps, of a dispose, only the state it leads to. The tap therefore replaces the reader's
history cache (struct dds_rhc) by functions of its own, which put everything in a queue.

Nothing is ordered, filtered or dropped here: history depth, ownership, destination order and lifespan are
the business of whoever drains the queue.
"""

from __future__ import annotations

import _thread
import ctypes
import threading
from collections import deque
from typing import Final, NamedTuple

from engine.dataset.groups import KEEP_ALL
from engine.dds import abi
from engine.dds.errors import check
from engine.dds.participant import NodeParticipant
from engine.dds.qos import BOTH_REPRESENTATIONS, EndpointQos, endpoint_qos
from engine.dds.topics import Topic
from engine.dds.waiting import Signal

WRITER_GONE: Final = 8
"""Status bit of a record that is no sample: the writer was deleted or lost. `payload` is `AUTODISPOSE` when
its instances count as disposed."""

AUTODISPOSE: Final = b"\x01"

ANY_PARTITION: Final = ("*",)


class Captured(NamedTuple):
    """One thing that a writer did; the fields in the order that `make_sample` takes.

    Attributes:
        source_time_ns: the writer's source timestamp; 0 with `WRITER_GONE`.
        writer: the writer's GUID, 16 bytes, network order.
        status: `DATA`, `DISPOSE`, `UNREGISTER` of `engine.dataset.sample`, or `WRITER_GONE`.
        key: XCDR2 key bytes; empty for a topic without keys.
        payload: CDR with its header; the key only when `status` lacks `DATA`.
    """

    source_time_ns: int
    writer: bytes
    status: int
    key: bytes
    payload: bytes
