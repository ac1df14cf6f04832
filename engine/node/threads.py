"""Scheduling of the threads of a node, those of Cyclone DDS included (deployment guide 5.5).

Linux schedules threads, so the node sets class and priority of each thread in /proc/self/task: it knows
Python's threads by their Python name, native ones by the name that they gave themselves.
`engine.config.scheduling` explains class and priority.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from engine.config.scheduling import ThreadScheduling, schedules
from engine.config.schema import documented
from engine.config.settings import ALIGNEE, ALIGNER, HEARTBEAT, PERSISTENT, SERVICE, WATCHDOG

if TYPE_CHECKING:
    from engine.config.settings import Configuration
    from engine.tracing.tracer import Tracer

SETTING_OF: Final = {
    "MainThread": ALIGNEE,
    "dds-pump": ALIGNEE,
    "recv": ALIGNEE,
    "dq.": ALIGNEE,
    "worker": ALIGNER,
    "historicalData": ALIGNER,
    "heartbeat": HEARTBEAT,
    "sender": HEARTBEAT,
    "tev": HEARTBEAT,
    "persistentData": PERSISTENT,
    "watch": WATCHDOG,
}
"""Setting for the threads whose names have this prefix.

Alignee: threads that receive from fellows. Aligner: threads that send sets to fellows, readers and clients.
Heartbeat: threads that send heartbeats and other small messages, and the timed events of Cyclone DDS. The
guide assigns the statusThread to Watchdog, the schema the sender of heartbeats to Heartbeat; here the status
is the heartbeat. All other threads follow Domain/Service/Scheduling.
"""

_TASKS: Final = Path("/proc/self/task")
LOOKS: Final = 10
"""How many looks have one at all threads among them; the others notice only another number of threads."""
_RIGHTS: Final = (
    "the node needs CAP_SYS_NICE, or limits that allow it (ulimit -r for Realtime, -e for Timeshare)"
)


def schedule_of(tid: int) -> ThreadScheduling:
    """Return the scheduling of a thread; 0 is the calling one."""
    priority = os.sched_getparam(tid).sched_priority
    return ThreadScheduling(os.sched_getscheduler(tid), priority, os.getpriority(os.PRIO_PROCESS, tid))


def _apply(wanted: ThreadScheduling, tid: int) -> None:
    """Set the scheduling of a thread.

    Raises:
        OSError: the kernel refuses; a part may have been changed.
    """
    now = schedule_of(tid)
    if (now.policy, now.priority) != (wanted.policy, wanted.priority):
        os.sched_setscheduler(tid, wanted.policy, os.sched_param(wanted.priority))
    if now.nice != wanted.nice:
        os.setpriority(os.PRIO_PROCESS, tid, wanted.nice)


class Threads:
    """The threads of this process; it gives each its scheduling.

    Args:
        configuration: the node's.
        tracer: takes the events of changes and refusals.
    """

    def __init__(self, configuration: Configuration, tracer: Tracer) -> None:
        self._tracer = tracer
        self._refused: set[str] = set()
        self._known: set[int] = set()
        self._unnamed: set[int] = set()
        self._count = self._looks = 0
        process = schedule_of(0)
        self._wanted: dict[str, ThreadScheduling] = {}
        self._origins: dict[str, str] = {}
        for path, asked, used, fault in schedules(configuration, process):
            self._wanted[path], self._origins[path] = used, str(asked.origin)
            if fault:
                tracer.event(
                    "lifecycle.scheduling-impossible",
                    place=asked.origin,
                    setting=documented(f"{path}/Priority"),
                    cause=fault,
                    used=used,
                )
        self._base = self._wanted.get(SERVICE, process)
        self._asked = {path for path, used in self._wanted.items() if used != process}

    def schedule_new(self) -> None:
        """Schedule the threads that started since the last call."""
        count = _TASKS.stat().st_nlink  # 2 more than the threads; to list them takes the kernel a millisecond
        self._looks = (self._looks + 1) % LOOKS
        if count == self._count and self._looks and not self._unnamed:
            return
        self._count = count
        found = {int(path.name) for path in _TASKS.iterdir()}
        new = found - self._known
        self._known = found
        if not new:
            return
        later: set[int] = set()
        process = (_TASKS / str(os.getpid()) / "comm").read_text("utf-8", "replace").strip()
        python = {thread.native_id: thread.name for thread in threading.enumerate()}
        for tid in sorted(new):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                name = python.get(tid)
                if name is None:
                    name = (_TASKS / str(tid) / "comm").read_text("utf-8", "replace").strip()
                    if name == process and tid not in self._unnamed:
                        later.add(tid)  # a native thread names itself once it runs
                        continue
                if self._asked:
                    self._schedule(tid, name)
        self._known -= later
        self._unnamed = later

    def _schedule(self, tid: int, name: str) -> None:
        begins = next((one for one in SETTING_OF if name.startswith(one)), "")
        setting = SETTING_OF.get(begins, SERVICE)
        wanted = self._wanted.get(setting, self._base)
        if wanted == self._base:  # the thread gets the scheduling of the whole process
            setting = SERVICE
        try:
            _apply(wanted, tid)
        except ProcessLookupError:
            raise
        except OSError as error:
            if setting in self._asked - self._refused:
                self._refused.add(setting)
                cause = f"{error.strerror}: {_RIGHTS}" if isinstance(error, PermissionError) else str(error)
                self._tracer.event(
                    "lifecycle.scheduling-refused",
                    place=self._origins[setting],
                    setting=documented(setting),
                    thread=name,
                    wanted=wanted,
                    cause=cause,
                )
        else:
            self._tracer.event("lifecycle.scheduled", thread=name, tid=tid, wanted=wanted, setting=setting)
