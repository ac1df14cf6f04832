"""What the supervisors of this machine, and what they left, tell of nodes: in the past tense, with its time.

An incident keeps the cause that was told when the node is back, so no sentence may become untrue then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from engine.supervisor.node_status import Condition, NodeStatus, status_of
from engine.supervisor.policy import EXIT_CONFIGURATION, NodePhase
from engine.supervisor.rundir import RunDirectory, RunDirectoryError, location
from ospltool.health.codes import continue_them
from ospltool.live.remarks import clock
from ospltool.live.supervision import SupervisorReport

_TROUBLE: Final = frozenset({Condition.RESTARTING, Condition.UNRESPONSIVE, Condition.DIED})

_SEEN: Final = {
    Condition.RESTARTING: "it had failed",
    Condition.UNRESPONSIVE: "it did not respond",
    Condition.DIED: "it had died",
    Condition.STOPPED: "it did not run",
    Condition.STOPPING: "it was stopping",
}
"""What was seen of a node whose condition is worth telling."""

_NEXT: Final = {
    Condition.RESTARTING: "Wait: its supervisor starts it again. Its ospl-error.log tells the failure.",
    Condition.STOPPING: "Wait: its supervisor ends it by force if it does not end by itself.",
    Condition.DIED: "Start it again on its host: `ospltool start` with its configuration.",
}
"""Advice for conditions of which the supervisor, or its absence, tells what happens next."""

CANNOT_RUN: Final = (
    "Do first what the reason says (`ospltool status` on its host); started as it is, the node ends again."
)
ORPHAN: Final = (
    "It ends by itself, as its supervisor does not run; then start it again with `ospltool start`."
)


class SupervisorWatch:
    """The reports of this user's supervisors on the nodes of a domain.

    Args:
        environ: says where the run directory is.
        domain_id: DDS domain.
        wall_ns: the wall clock, nanoseconds since 1970 UTC.
    """

    def __init__(
        self, environ: Mapping[str, str], domain_id: int, wall_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self._environ = environ
        self._domain_id = domain_id
        self._wall_ns = wall_ns
        self._seen_ns: dict[tuple[str, str], int] = {}

    def reports(self) -> dict[str, SupervisorReport]:
        """Return the reports by name of the node; none without any supervisor."""
        try:
            directories = RunDirectory(location(self._environ)).nodes()
        # Another user's, or none: then nothing is known of supervisors, which is no fault of the system.
        except (RunDirectoryError, OSError):
            return {}
        found: dict[str, tuple[int, NodeStatus]] = {}
        for directory in directories:
            status = status_of(directory)
            if status is None or status.record.domain_id != self._domain_id:
                continue
            name, changed_ns = status.record.domain_name, status.record.changed_ns
            if name not in found or found[name][0] < changed_ns:
                found[name] = changed_ns, status
        return self._told([status for _, status in found.values()])

    def _told(self, found: list[NodeStatus]) -> dict[str, SupervisorReport]:
        """Return the reports, each dated from when it was seen first in this form."""
        before, self._seen_ns = self._seen_ns, {}
        reports = {}
        for status in found:
            seen = _seen(status)
            key = (status.record.domain_name, seen)
            self._seen_ns[key] = before.get(key, self._wall_ns())
            reports[status.record.domain_name] = report(status, self._seen_ns[key])
        return reports


def report(status: NodeStatus, seen_ns: int) -> SupervisorReport:
    """Return the report on a node.

    Args:
        status: what supervisor and node left.
        seen_ns: when the node was seen first in this state, nanoseconds since 1970 UTC.
    """
    record = status.record
    starting = status.condition is Condition.STARTING and not (status.store_problem or record.failed_ns)
    runs = record.node is not None and record.node.is_alive()
    is_dead = (status.condition in (Condition.DIED, Condition.RESTARTING) and not runs) or _has_vanished(
        status
    )
    is_coming = status.condition is Condition.RESTARTING
    text = _text(status, seen_ns)
    return SupervisorReport(
        text,
        in_order=_is_ended(status),
        is_starting=starting,
        is_trouble=status.condition in _TROUBLE,
        is_dead=is_dead,
        never_ran=record.phase is NodePhase.DIED and not record.has_run,
        next=_next(status) if text else "",
        is_coming=is_coming,
        store=record.store,
        pid=record.node.pid if record.node is not None and runs else 0,
        stopped=tuple(_stopped(status).values()),
        ended_ns=_ended_ns(status) if is_dead or _is_ended(status) else 0,
        started_ns=record.started_ns,
        failed_ns=record.failed_ns if is_coming or record.restarts else 0,
        failure=_failure(status),
        waits_for_room=status.waits_for_room,
        stuck=status.stuck if runs else "",
        unwatched=_unwatched(status, seen_ns) if runs else "",
        seen_ns=seen_ns,
    )


def _stopped(status: NodeStatus) -> dict[str, int]:
    """Return the stopped processes of a node that does not respond for that reason, by what they are."""
    if status.condition is not Condition.UNRESPONSIVE:
        return {}
    processes = {"its process": status.record.node, "its supervisor": status.record.supervisor}
    return {name: one.pid for name, one in processes.items() if one is not None and one.is_stopped()}


def _next(status: NodeStatus) -> str:
    """Return the advice that fits what is wrong with the node; empty for that of the code."""
    record = status.record
    if status.is_orphan:
        return ORPHAN
    stopped = _stopped(status)
    if stopped:
        return continue_them(" and ".join(stopped), stopped.values())
    if status.condition is Condition.DIED and record.exit_code == EXIT_CONFIGURATION:
        return CANNOT_RUN
    if status.waits_for_room:
        return f"Make room on the disk of {record.store}. The node goes on by itself."
    return _NEXT.get(status.condition, "")


def _text(status: NodeStatus, seen_ns: int) -> str:
    """Return what is wrong with the node now, or how it ended; empty for nothing unusual."""
    is_by_supervisor = not status.is_unsupervised and status.record.failure == status.reason
    if status.condition in (Condition.RESTARTING, Condition.DIED) and is_by_supervisor:
        return _failure(status)
    if _is_ended(status):
        reason = f": {status.reason}" if status.reason else ""
        return f"it ended in order at {clock(status.record.changed_ns)} UTC{reason}"
    seen = _seen(status)
    return f"seen on its host at {clock(seen_ns)} UTC: {seen}" if seen else ""


def _unwatched(status: NodeStatus, seen_ns: int) -> str:
    """Return why nobody watches a node that runs; empty if its supervisor does."""
    seen = "its supervisor was killed" if status.is_orphan else ""
    if status.record.supervisor.is_stopped():
        seen = "its supervisor was stopped (SIGSTOP, or a debugger)"
    return f"seen on its host at {clock(seen_ns)} UTC: {seen}" if seen else ""


def _is_ended(status: NodeStatus) -> bool:
    return status.condition is Condition.STOPPED and status.record.phase is NodePhase.ENDED


def _failure(status: NodeStatus) -> str:
    """Return the last failure of the node that its supervisor saw; empty for none."""
    record = status.record
    if not (record.failure and record.failed_ns):
        return ""
    again = f" (restart {record.restarts})" if record.restarts else ""
    return f"its supervisor saw at {clock(record.failed_ns)} UTC: {record.failure}{again}"


def _has_vanished(status: NodeStatus) -> bool:
    """Return whether the process of a node has ended and its supervisor, which is stopped, does not know."""
    node = status.record.node
    return status.condition is Condition.UNRESPONSIVE and node is not None and not node.is_alive()


def _seen(status: NodeStatus) -> str:
    """Return what is wrong with the node; that a node that runs has a store that refuses, it tells itself."""
    told = ["its process had ended" if _has_vanished(status) else _SEEN.get(status.condition, "")]
    if status.condition in _SEEN:
        told.append(status.reason)
    if status.condition is Condition.STOPPING and status.record.node and status.record.node.is_stopped():
        told.append("its process was stopped (SIGSTOP, or a debugger)")
    if status.waits_for_room:
        told.append(f"it waited for room to open its store: {status.store_problem}")
    elif status.store_problem and status.condition in _SEEN:
        told.append(f"its store refused: {status.store_problem}")
    if status.stuck:
        told.append(f"{status.stuck} did not proceed")
    if status.waits_for:
        told.append(f"it waited: {status.waits_for}")
    return ", ".join(filter(None, told))


def _ended_ns(status: NodeStatus) -> int:
    """Return when a dead node ended, as its supervisor saw it, else as it said itself; 0 if unknown."""
    if _has_vanished(status):
        return 0
    if status.is_unsupervised:  # the state of a node that is dead is there only if it is its last one
        is_last = status.state and status.state_since_ns >= status.record.started_ns
        return status.state_since_ns if is_last and not status.is_orphan else 0
    is_restarting = status.condition is Condition.RESTARTING
    return status.record.failed_ns if is_restarting else status.record.changed_ns
