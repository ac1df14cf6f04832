"""Scheduling of the threads of a node, those of Cyclone DDS included (deployment guide 5.5).

Linux schedules threads, so class and priority are set for each thread of the process, found in
/proc/self/task: threads of Python by their Python name, native ones by the name that they gave themselves.
`Realtime` is SCHED_FIFO with the priority of the file (1 to 99). `Timeshare` is SCHED_OTHER, in which a
higher priority means a lower *nice* value: priority 5 is nice -5, priority -5 is nice 5. `Default` keeps the
class of the process. A `Relative` priority is added to that of the process, an `Absolute` one is taken as it
is.
A thread for which the file says nothing runs as the process does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from engine.config.schema import documented
from engine.config.settings import SchedulingClass

if TYPE_CHECKING:
    from engine.config.settings import Configuration, Scheduling
    from engine.tracing.tracer import Tracer

SERVICE: Final = "Domain/Service/Scheduling"
HEARTBEAT: Final = "DurabilityService/Network/Heartbeat/Scheduling"
ALIGNER: Final = "DurabilityService/Network/Alignment/AlignerScheduling"
ALIGNEE: Final = "DurabilityService/Network/Alignment/AligneeScheduling"
PERSISTENT: Final = "DurabilityService/Persistent/Scheduling"
WATCHDOG: Final = "DurabilityService/Watchdog/Scheduling"

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
"""Which setting applies to the threads whose names begin so.

Alignee: what receives from fellows and takes it in. Aligner: what sends sets to fellows, readers and clients.
Heartbeat: what sends heartbeats and other small messages, and the timed events of Cyclone DDS. The guide
gives the statusThread to Watchdog, the schema what sends heartbeats to Heartbeat; here the status is the
heartbeat. All other threads follow Domain/Service/Scheduling.
"""

_TASKS: Final = Path("/proc/self/task")
_NAME_CHARS: Final = 15
_NAMES: Final = {os.SCHED_FIFO: "SCHED_FIFO", os.SCHED_RR: "SCHED_RR", os.SCHED_OTHER: "SCHED_OTHER"}
_LEAST_NICE, _MOST_NICE = -20, 19
_RIGHTS: Final = (
    "the node needs CAP_SYS_NICE, or limits that allow it (ulimit -r for Realtime, -e for Timeshare)"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Schedule:
    """How the kernel schedules a thread; `priority` is that of a real-time policy and 0 otherwise."""

    policy: int
    priority: int
    nice: int

    @classmethod
    def of_thread(cls, tid: int) -> Schedule:
        """How a thread is scheduled now."""
        priority = os.sched_getparam(tid).sched_priority
        return cls(os.sched_getscheduler(tid), priority, os.getpriority(os.PRIO_PROCESS, tid))

    def as_asked(self, asked: Scheduling) -> Schedule:
        """What a Scheduling element asks for in a process that is scheduled as this says."""
        policy = {
            SchedulingClass.DEFAULT: self.policy,
            SchedulingClass.TIMESHARE: os.SCHED_OTHER,
            SchedulingClass.REALTIME: os.SCHED_FIFO,
        }[asked.scheduling_class]
        if policy in (os.SCHED_FIFO, os.SCHED_RR):
            priority = asked.priority if asked.is_absolute else self.priority + asked.priority
            return Schedule(policy, priority, self.nice)
        nice = -asked.priority if asked.is_absolute else self.nice - asked.priority
        return Schedule(policy, 0, nice)

    @property
    def fault(self) -> str:
        """Why Linux has no such schedule; empty where it has."""
        if self.policy in (os.SCHED_FIFO, os.SCHED_RR):
            low, high = os.sched_get_priority_min(self.policy), os.sched_get_priority_max(self.policy)
            if not low <= self.priority <= high:
                return f"{_NAMES[self.policy]} has the priorities {low} to {high}, not {self.priority}"
        elif not _LEAST_NICE <= self.nice <= _MOST_NICE:
            return f"nice is {_LEAST_NICE} to {_MOST_NICE}, not {self.nice}"
        return ""

    def apply(self, tid: int) -> None:
        """Schedule a thread so.

        Raises:
            OSError: the kernel refuses; nothing or only a part was changed.
        """
        now = Schedule.of_thread(tid)
        if (now.policy, now.priority) != (self.policy, self.priority):
            os.sched_setscheduler(tid, self.policy, os.sched_param(self.priority))
        if now.nice != self.nice:
            os.setpriority(os.PRIO_PROCESS, tid, self.nice)

    def __str__(self) -> str:
        policy = _NAMES.get(self.policy, str(self.policy))
        return f"{policy} priority {self.priority}" if self.priority else f"{policy} nice {self.nice}"


class Threads:
    """All threads of this process: gives each its name for `top -H`, and its scheduling.

    Args:
        configuration: of the node.
        tracer: where it says what it did, and what the system does not permit.
    """

    def __init__(self, configuration: Configuration, tracer: Tracer) -> None:
        self._tracer = tracer
        self._refused: set[str] = set()
        self._known: set[int] = set()
        self._unnamed: set[int] = set()
        persistent = configuration.persistent
        service = configuration.domain.service(configuration.service)
        asked = {
            HEARTBEAT: configuration.network.heartbeat_scheduling,
            ALIGNER: configuration.alignment.aligner_scheduling,
            ALIGNEE: configuration.alignment.alignee_scheduling,
            PERSISTENT: persistent.scheduling if persistent else None,
            WATCHDOG: configuration.watchdog.scheduling,
        }
        process = Schedule.of_thread(0)
        base = self._possible(SERVICE, service.scheduling if service else None, process)
        self._wanted = {name: self._possible(name, one, base) for name, one in asked.items()}
        self._wanted[SERVICE] = base
        self._asked = {name for name, one in self._wanted.items() if one != process}

    def _possible(self, setting: str, asked: Scheduling | None, base: Schedule) -> Schedule:
        """What is asked for; `base`, with a warning, where Linux has no such schedule."""
        wanted = base.as_asked(asked) if asked else base
        if asked and wanted.fault:
            self._tracer.event(
                "lifecycle.scheduling-impossible",
                place=f"{asked.origin.file}:{asked.origin.line}" if asked.origin.line else str(asked.origin),
                setting=documented(f"{setting}/Priority"),
                cause=wanted.fault,
                used=base,
            )
            return base
        return wanted

    def look(self) -> None:
        """Name and schedule the threads that have come since the last look."""
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
                comm = _TASKS / str(tid) / "comm"
                name = python.get(tid)
                if name is None:
                    name = comm.read_text("utf-8", "replace").strip()
                    if name == process and tid not in self._unnamed:
                        later.add(tid)  # a native thread names itself once it runs
                        continue
                elif name != "MainThread":  # the name of the main thread is that of the process
                    comm.write_text(name[:_NAME_CHARS], "utf-8")
                if self._asked:
                    self._schedule(tid, name)
        self._known -= later
        self._unnamed = later

    def _schedule(self, tid: int, name: str) -> None:
        begins = next((one for one in SETTING_OF if name.startswith(one)), "")
        setting = SETTING_OF.get(begins, SERVICE)
        wanted = self._wanted[setting]
        try:
            wanted.apply(tid)
        except ProcessLookupError:
            raise
        except OSError as error:
            if setting in self._asked - self._refused:
                self._refused.add(setting)
                cause = f"{error.strerror}: {_RIGHTS}" if isinstance(error, PermissionError) else str(error)
                self._tracer.event(
                    "lifecycle.scheduling-refused", setting=setting, thread=name, wanted=wanted, cause=cause
                )
        else:
            self._tracer.event("lifecycle.scheduled", thread=name, tid=tid, wanted=wanted, setting=setting)
