"""The threads of Cyclone DDS in the deadlock watch.

They cannot be asked to beat, but the kernel counts how often each of them ran. A thread whose count has not
moved since the last look is given something to do: this process sends itself a message that every participant
receives and throws away, the end of a participant that there never was. It passes through the threads that
receive (`recv`) and through the one that carries out discovery (`dq.builtins`). Timed events (`tev`) run by
themselves with each announcement of the participant (SPDPInterval).

`gc` and `dq.user` are not watched: the one runs when something has ended, the other not at all, because
samples are delivered on the threads that receive them.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from engine.dds.ports import udp_addresses

if TYPE_CHECKING:
    from engine.dds.activity import ThreadActivities, Work

PROBED: Final = ("recv", "dq.builtins")
"""Beginnings of the names of the threads that the message passes through."""
TIMED: Final = "tev"
"""Beginning of the name of the thread that runs with each announcement."""
# Two may be late on a loaded machine; the third is a thread that stands still. More delays the alarm by an
# announcement each.
_MISSED: Final = 3
"""Announcements that a timed thread may miss."""
# TASK_COMM_LEN of the kernel, less the zero at the end.
_NAME_CHARS: Final = 15
# Not measured: the names are a file for each thread. A thread that replaced another is noticed after ten
# looks.
LOOKS: Final = 10
"""How many looks have one at the names of all threads among them: one may end while another begins."""

_ANY, _LOOPBACK = "0.0.0.0", "127.0.0.1"  # noqa: S104  # of sockets that are bound already
_TASKS: Final = Path("/proc/self/task")
_PREFIX: Final = b"ospl-is-well"
_PARTICIPANT: Final = _PREFIX + b"\x00\x00\x01\xc1"
_HEADER: Final = b"RTPS\x02\x01\x01\x10" + _PREFIX
_READER, _WRITER = b"\x00\x01\x00\xc7", b"\x00\x01\x00\xc2"  # of participants (DDSI-RTPS 9.3.1.3)


def _ended_participant() -> bytes:
    """Return the message: DATA of the discovery of participants, disposed and unregistered, with its key."""
    status = struct.pack("<HH", 0x71, 4) + b"\x00\x00\x00\x03" + struct.pack("<HH", 1, 0)
    key = b"\x00\x03\x00\x00" + struct.pack("<HH", 0x50, 16) + _PARTICIPANT + struct.pack("<HH", 1, 0)
    data = struct.pack("<HH", 0, 16) + _READER + _WRITER + struct.pack("<iI", 0, 1) + status + key
    little_endian, inline_qos, only_key = 0x01, 0x02, 0x08
    return _HEADER + struct.pack("<BBH", 0x15, little_endian | inline_qos | only_key, len(data)) + data


MESSAGE: Final = _ended_participant()


class LibraryThreads:
    """The threads of Cyclone DDS in this process; `sample` lets the activity of each that ran beat.

    Args:
        activities: gets an activity for each thread.
        announced_s: longest time from one announcement of the participant to the next.
    """

    def __init__(self, activities: ThreadActivities, announced_s: float) -> None:
        self._activities = activities
        self._timed_s = _MISSED * announced_s
        self._works: dict[int, Work | None] = {}  # None: one that is not watched
        self._probed: set[int] = set()
        self._runs: dict[int, int | None] = {}
        self._count = self._looks = 0

    def sample(self) -> None:
        """Look at all threads, and give something to do to those that have not run since the last call."""
        self._find()
        is_quiet = False
        for tid, work in self._works.items():
            if work is None:
                continue
            runs = _runs(tid)
            if runs is None or runs != self._runs.get(tid):
                self._beat(tid, work)
            else:
                is_quiet = is_quiet or tid in self._probed
            self._runs[tid] = runs
        if is_quiet and not _send_to_self():
            for tid in self._probed:  # they cannot be asked, and may have nothing to do
                self._beat(tid, self._works[tid])

    @staticmethod
    def _beat(tid: int, work: Work | None) -> None:
        if work is not None:
            work.beat()
            work.tid = tid

    def _find(self) -> None:
        """Add threads that began, remove those that ended, and name those of Python for `top -H`."""
        count = _TASKS.stat().st_nlink  # to list them takes the kernel a millisecond
        self._looks = (self._looks + 1) % LOOKS
        if count == self._count and self._looks:
            return
        self._count = count
        there = {int(path.name) for path in _TASKS.iterdir()}
        for tid in self._works.keys() - there:
            work = self._works.pop(tid)
            self._probed.discard(tid)
            self._runs.pop(tid, None)
            if work is not None:
                self._activities.end(work)
        ours = {thread.native_id: thread.name for thread in threading.enumerate()}
        for tid in there & ours.keys() - {os.getpid()}:  # the name of the main thread is that of the process
            with contextlib.suppress(OSError):  # it has ended meanwhile
                (_TASKS / str(tid) / "comm").write_text(ours[tid][:_NAME_CHARS], "utf-8")
        for tid in there - self._works.keys() - ours.keys():
            name = _name(tid)
            if name is None or name == _name(os.getpid()):
                self._count = 0  # it has not named itself yet
            elif name.startswith(PROBED):
                self._probed.add(tid)
                self._works[tid] = self._activities.work(f"{name} of Cyclone DDS")
            elif name.startswith(TIMED):
                self._works[tid] = self._activities.work(f"{name} of Cyclone DDS", idle_s=self._timed_s)
            else:
                self._works[tid] = None


def _name(tid: int) -> str | None:
    with contextlib.suppress(OSError):  # it has ended meanwhile
        return (_TASKS / str(tid) / "comm").read_text("utf-8", "replace").strip()
    return None


def _runs(tid: int) -> int | None:
    """Return how often a thread ran; None if the kernel does not tell, or the thread has ended."""
    # The thread may end between the list and this look, in the middle of which procfs gives a short line.
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int((_TASKS / str(tid) / "schedstat").read_text().split()[2])
    return None


def _send_to_self() -> bool:
    """Send the message to every UDP socket of this process; return whether that was possible."""
    is_sent = False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        for address, port in udp_addresses().values():
            if port:
                try:
                    one.sendto(MESSAGE, (_LOOPBACK if address == _ANY else address, port))
                    is_sent = True
                except OSError:  # the interface is down: what waits there hears nothing else either
                    return False
    return is_sent
