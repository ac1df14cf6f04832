"""Scheduling elements of a file in terms of Linux, and whether Linux supports them (guide 5.5).

`Realtime` is SCHED_FIFO with the priority of the file (1 to 99). `Timeshare` is SCHED_OTHER, in which a
higher priority means a lower *nice* value: priority 5 is nice -5, priority -5 is nice 5. `Default` keeps the
class of the process. A `Relative` priority is added to that of the process, an `Absolute` one is not. A
thread without a Scheduling element has the scheduling of the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from engine.config.settings import (
    ALIGNEE,
    ALIGNER,
    HEARTBEAT,
    PERSISTENT,
    SERVICE,
    WATCHDOG,
    Configuration,
    Scheduling,
    SchedulingClass,
)

_OTHER, _FIFO, _RR = 0, 1, 2
"""Numbers of Linux's policies: a file may be checked on a system that has no names for them."""
_NAMES: Final = {_FIFO: "SCHED_FIFO", _RR: "SCHED_RR", _OTHER: "SCHED_OTHER"}
_LEAST_PRIORITY, _MOST_PRIORITY = 1, 99
_LEAST_NICE, _MOST_NICE = -20, 19


class ThreadScheduling(msgspec.Struct, frozen=True):
    """Scheduling of a thread by the kernel; `priority` is that of a real-time policy and 0 otherwise."""

    policy: int
    priority: int
    nice: int

    def as_asked(self, asked: Scheduling) -> ThreadScheduling:
        """Return the scheduling that an element requests in a process with this one."""
        policy = {
            SchedulingClass.DEFAULT: self.policy,
            SchedulingClass.TIMESHARE: _OTHER,
            SchedulingClass.REALTIME: _FIFO,
        }[asked.scheduling_class]
        if policy in (_FIFO, _RR):
            priority = asked.priority if asked.is_absolute else self.priority + asked.priority
            return ThreadScheduling(policy, priority, self.nice)
        nice = -asked.priority if asked.is_absolute else self.nice - asked.priority
        return ThreadScheduling(policy, 0, nice)

    @property
    def fault(self) -> str:
        """Reason why Linux does not support it; empty if it does."""
        if self.policy in (_FIFO, _RR):
            if not _LEAST_PRIORITY <= self.priority <= _MOST_PRIORITY:
                name = _NAMES[self.policy]
                return f"{name} has the priorities {_LEAST_PRIORITY} to {_MOST_PRIORITY}, not {self.priority}"
        elif not _LEAST_NICE <= self.nice <= _MOST_NICE:
            return f"nice is {_LEAST_NICE} to {_MOST_NICE}, not {self.nice}"
        return ""

    def __str__(self) -> str:
        policy = _NAMES.get(self.policy, str(self.policy))
        return f"{policy} priority {self.priority}" if self.priority else f"{policy} nice {self.nice}"


ORDINARY: Final = ThreadScheduling(_OTHER, 0, 0)
"""Default scheduling of a process."""


def _asked_by(configuration: Configuration) -> dict[str, Scheduling]:
    """Return the Scheduling elements for a node, by schema path, that of the whole process first."""
    service = configuration.domain.service(configuration.service)
    persistent = configuration.persistent
    found = {
        SERVICE: service.scheduling if service else None,
        HEARTBEAT: configuration.network.heartbeat_scheduling,
        ALIGNER: configuration.alignment.aligner_scheduling,
        ALIGNEE: configuration.alignment.alignee_scheduling,
        PERSISTENT: persistent.scheduling if persistent else None,
        WATCHDOG: configuration.watchdog.scheduling,
    }
    return {path: asked for path, asked in found.items() if asked is not None}


def schedules(
    configuration: Configuration, process: ThreadScheduling
) -> Iterator[tuple[str, Scheduling, ThreadScheduling, str]]:
    """Apply the Scheduling elements in a process with the given scheduling, that of the process itself first.

    Each result has schema path, element, the scheduling of its threads, and the fault that prevents the
    requested one, if any.
    """
    base = process
    for path, asked in _asked_by(configuration).items():
        wanted = base.as_asked(asked)
        fault = wanted.fault
        used = base if fault else wanted
        yield path, asked, used, fault
        if path == SERVICE:
            base = used
