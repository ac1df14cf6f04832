"""The data of a node for consoles: snapshots of its state, its traced events, and its past."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Final

from engine import native
from engine.dds.channel import ChannelTopic
from engine.runtime import monitor
from engine.runtime.node_snapshot import Identity, snapshot
from engine.tracing.version import product_version

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.config.settings import Configuration
    from engine.node.wire import DdsWire
    from engine.runtime.past import Past
    from engine.runtime.ports import Clock
    from engine.runtime.runtime import Runtime
    from engine.runtime.startup import StoredContent
    from engine.tracing.record import EventRecord

MONITOR_TOPIC: Final = "d_monitor"
EVENTS_TOPIC: Final = "d_monitorEvents"
PAST_TOPIC: Final = "d_past"
TOPICS: Final = (
    ChannelTopic(MONITOR_TOPIC, is_state=True, reads=False),
    ChannelTopic(EVENTS_TOPIC, is_state=False, reads=False),
    ChannelTopic(PAST_TOPIC, is_state=True, reads=False),
)
"""The topics for consoles."""
SNAPSHOT_PAUSE_S: Final = 0.25
PAST_PAUSE_S: Final = 1.0
"""Least time between two publications of the past; consoles that are connected get the events anyway."""


class Showing:
    """Publishes snapshots, events and the past.

    Args:
        runtime: has the state.
        wire: publishes it.
        identity: the facts of the process that do not change.
        clock: the node's.
        disk_bytes: returns the size of the store on disk.
        past: remembered events.

    Attributes:
        due_s: time of the next snapshot, monotonic.
    """

    def __init__(
        self,
        runtime: Runtime,
        wire: DdsWire,
        identity: Identity,
        clock: Clock,
        disk_bytes: Callable[[], int],
        past: Past,
    ) -> None:
        self._runtime = runtime
        self._wire = wire
        self._identity = identity
        self._clock = clock
        self._disk_bytes = disk_bytes
        self._past = past
        self._past_due_s = 0.0
        self._past_shown = -1
        self.due_s = 0.0

    def show(self, now: float) -> None:
        """Publish a snapshot."""
        self.due_s = now + max(SNAPSHOT_PAUSE_S, self._runtime.settings.heartbeat_period_s)
        if self._wire.monitor_dropped:
            self._runtime.counters["monitor_dropped"] = self._wire.monitor_dropped
        shown = snapshot(
            self._runtime,
            self._identity,
            now,
            self._clock.wall_ns(),
            self._wire.deliveries(),
            self._disk_bytes(),
            self._wire.unkept(),
        )
        self._wire.publish(MONITOR_TOPIC, monitor.encode(shown))
        self._past.masters(shown)
        if now >= self._past_due_s and self._past.revision != self._past_shown:
            self._past_due_s, self._past_shown = now + PAST_PAUSE_S, self._past.revision
            self._wire.publish(PAST_TOPIC, monitor.encode(self._past.shown(shown.id, shown.name)))

    def event(self, record: EventRecord) -> None:
        """Publish an event; the tracer calls this on the thread that traces."""
        event = monitor.NodeEvent(
            node=self._runtime.settings.node,
            node_name=self._runtime.settings.name,
            number=record.sequence,
            time_ns=record.time_ns,
            state=record.state,
            thread=record.event.thread,
            level=record.event.level.name,
            event=record.event.id,
            text=record.text,
        )
        self._wire.publish(EVENTS_TOPIC, monitor.encode(event))


def capture_of_process() -> monitor.CaptureView:
    """What takes samples in, in this process."""
    reason = native.absence()
    return monitor.CaptureView("python" if reason else "compiled", reason)


def identity_of(
    configuration: Configuration, store_kind: str, found: StoredContent, started_ns: int
) -> Identity:
    """Return the facts of the process and its configuration that do not change.

    Args:
        configuration: the node's.
        store_kind: `memory` or `sqlite`.
        found: the content of the store.
        started_ns: start of the node, nanoseconds since 1970 UTC.
    """
    persistent = configuration.persistent
    return Identity(
        host=socket.gethostname(),
        pid=os.getpid(),
        domain_id=configuration.domain.id,
        configuration=configuration.path,
        version=product_version(),
        started_ns=started_ns,
        store_kind=store_kind,
        store_path=persistent.store_directory if persistent else "",
        store_findings=found.report.findings,
        has_disk=store_kind != "memory",
        capture=capture_of_process(),
    )
