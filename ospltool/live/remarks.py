"""Remarks from events of nodes, which hold until the node revokes them, restarts, or time is up."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from engine.core.untrusted import Newest
from engine.runtime.monitor import NodeEvent, NodeSnapshot, Run
from engine.runtime.past import IN_ORDER
from engine.tracing.catalogue import catalogue
from ospltool.live.nodes import Node

# More than a node keeps of its own events (`engine.runtime.past`).
MAX_REMARKS: Final = 500
"""Remarks kept of one node; the oldest are forgotten. No node pushes out what others told."""
# Twice `model.MAX_NODES`: nodes that come back have new ids.
MAX_TELLERS: Final = 2_000
"""Nodes of which remarks are kept; those that told first stay."""

LEAST_STALL_NS: Final = 3_000_000_000
"""A shorter stall is not remarked: the node has not even missed a heartbeat."""

_DIGITS: Final = re.compile(r"\b\d+\.\d{3,9}(?= seconds\b)")
"""Seconds in a message of a node, of which people need one decimal."""

_LONGEST_S: Final = 1e9
"""Thirty years; nothing lasts longer."""

MINUTE_NS: Final = 60_000_000_000

# Long enough to be read; the history keeps it.
RESTARTED_NS: Final = 5_000_000_000
"""Time for which the restart of a node is told."""


class RemarkSubject(enum.StrEnum):
    """Subject of a remark."""

    PRESSURE = "writers are held back"
    STUCK = "a thread does not proceed"
    STALLED = "it stood still"
    RESTARTED = "it failed and is another process now"
    UNSUPPORTED = "it hears another version of the protocol"
    LATE = "heartbeats of a fellow are late"
    FILTER = "a content filter does not fit"
    IGNORED = "a setting has no effect"
    IDENTITY = "another node has its id"
    DISK = "its disk refuses"
    RESTORED = "its store was put back from a copy"
    COUNTERS = "it refuses the counters of a fellow"
    DELETION = "a deletion does not count, or not so far"


_OPENING: Final = {
    "capture.back-pressure": RemarkSubject.PRESSURE,
    "watch.progress-lost": RemarkSubject.STUCK,
    "watch.stalled": RemarkSubject.STALLED,
    "message.unsupported": RemarkSubject.UNSUPPORTED,
    "fellow.late": RemarkSubject.LATE,
    "filter.refused": RemarkSubject.FILTER,
    "filter.ignored": RemarkSubject.IGNORED,
    "lifecycle.setting-ignored": RemarkSubject.IGNORED,
    "lifecycle.setting-unknown": RemarkSubject.IGNORED,
    "identity.shared": RemarkSubject.IDENTITY,
    "store.degraded": RemarkSubject.DISK,
    "store.outdated": RemarkSubject.RESTORED,
    "fellow.out-of-range": RemarkSubject.COUNTERS,
    "delete.bounded": RemarkSubject.DELETION,
    "delete.future": RemarkSubject.DELETION,
    "delete.refused": RemarkSubject.DELETION,
}
_CLOSING: Final = {
    "capture.relieved": RemarkSubject.PRESSURE,
    "watch.progress-back": RemarkSubject.STUCK,
    "identity.unique": RemarkSubject.IDENTITY,
    "store.recovered": RemarkSubject.DISK,
    "fellow.in-range": RemarkSubject.COUNTERS,
}
_SUBJECTS: Final = {
    RemarkSubject.STUCK: "activity",
    RemarkSubject.FILTER: "group",
    RemarkSubject.UNSUPPORTED: "sender",
    RemarkSubject.LATE: "fellow",
    RemarkSubject.IDENTITY: "fellow",
    RemarkSubject.COUNTERS: "fellow",
}
"""The field of the event that tells remarks of one topic apart."""

_LASTS_NS: Final = {
    RemarkSubject.STALLED: 5_000_000_000,
    RemarkSubject.LATE: MINUTE_NS,
    RemarkSubject.DELETION: 10 * MINUTE_NS,
    RemarkSubject.RESTARTED: RESTARTED_NS,
    RemarkSubject.RESTORED: 10 * MINUTE_NS,
}

_OF_DATA: Final = frozenset((RemarkSubject.RESTORED, RemarkSubject.DELETION))
"""What a start of the node does not change."""


@dataclasses.dataclass(frozen=True, slots=True)
class Remark:
    """One fact that a node reported. `time_ns` is by its clock, as in its events; RESTARTED: the feed's."""

    node: str
    topic: RemarkSubject
    subject: str
    time_ns: int
    text: str
    samples: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """RESTARTED: the samples of each name-space before the failure."""
    last_ns: int = 0
    """RESTARTED: when the process that failed was heard last, by the feed's clock."""
    began_ns: int = 0
    """By the node's clock. STALLED: since when it stood still. RESTARTED: when the process that failed told
    its state last; 0 if it had told that its supervisor was gone."""

    def holds(self, now_ns: int) -> bool:
        """Return whether the remark is recent enough to matter."""
        lasts_ns = _LASTS_NS.get(self.topic)
        return lasts_ns is None or now_ns - self.time_ns < lasts_ns

    def is_before(self, run: NodeSnapshot) -> bool:
        """Return whether it is about an earlier run of the node, and not about its data."""
        return self.topic not in _OF_DATA and self.time_ns < run.started_ns


class Remarks:
    """The remarks of all nodes that hold."""

    def __init__(self) -> None:
        self._remarks: dict[str, dict[tuple[RemarkSubject, str], Remark]] = {}

    def present(self, node: str, now_ns: int, ahead_ns: int = 0) -> Iterator[Remark]:
        """Yield the remarks of one node that hold now, oldest first.

        Args:
            node: its id.
            now_ns: the moment, by the feed's clock.
            ahead_ns: by how much the node's clock is ahead of that.
        """
        for one in self._remarks.get(node, {}).values():
            if one.holds(now_ns + ahead_ns * (one.topic is not RemarkSubject.RESTARTED)):
                yield one

    def apply(self, event: NodeEvent) -> None:
        """Take in one event; most change nothing."""
        topic = _OPENING.get(event.event) or _CLOSING.get(event.event)
        if topic is None:
            return
        found = catalogue().match(event.text)
        fields = found[1] if found else {}
        subject = event.text if topic is RemarkSubject.IGNORED else fields.get(_SUBJECTS.get(topic, ""), "")
        if event.event in _CLOSING:
            theirs = self._remarks.get(event.node, {})
            for key in [one for one in theirs if one[0] is topic and subject in ("", one[1])]:
                del theirs[key]
            return
        lasted_ns = _seconds_ns(fields.get("elapsed_ns", "")) if topic is RemarkSubject.STALLED else 0
        if topic is RemarkSubject.STALLED and lasted_ns < LEAST_STALL_NS:
            return
        self._note(
            Remark(
                event.node,
                topic,
                subject,
                event.time_ns,
                _DIGITS.sub(lambda found: f"{float(found[0]):.1f}", event.text),
                began_ns=event.time_ns - lasted_ns,
            )
        )

    def resume(self, looked_ns: int, now_ns: int) -> None:
        """Take in that nobody looked from a moment until now: restarts since then are news now."""
        for theirs in self._remarks.values():
            for key, one in theirs.items():
                if one.topic is RemarkSubject.RESTARTED and one.time_ns > looked_ns:
                    theirs[key] = dataclasses.replace(one, time_ns=now_ns)

    def restarted(self, before: Node, time_ns: int) -> None:
        """Note that a node runs in a new process although the former one did not end in order.

        Args:
            before: what was known of the process that failed.
            time_ns: when the new process was heard first.
        """
        last_ns = before.heard_ns
        samples = {space.name: space.count for space in before.snapshot.name_spaces}
        away = f"not heard for {max(0, time_ns - last_ns) / 1e9:.1f} s"
        began, ended = clock(last_ns), clock(time_ns)
        self._note(
            Remark(
                before.id,
                RemarkSubject.RESTARTED,
                "",
                time_ns,
                f"{away}, at {ended} UTC" if began == ended else f"{away}, from {began} to {ended} UTC",
                samples,
                last_ns,
                began_ns=0 if before.lost_supervisor else before.snapshot.time_ns,
            )
        )

    def learn(self, node: str, runs: Iterable[Run]) -> None:
        """Forget that a node failed if it remembers that it ended in order, which the watch has missed.

        Args:
            node: its id.
            runs: its processes, as it remembers them.
        """
        theirs, key = self._remarks.get(node, {}), (RemarkSubject.RESTARTED, "")
        told = theirs.get(key)
        if told is not None and told.began_ns and ended_in_order(runs, told.began_ns):
            del theirs[key]

    def settle(self, snapshot: NodeSnapshot) -> None:
        """Forget what an earlier run of the node told, but for what is about its data."""
        theirs = self._remarks.get(snapshot.id, {})
        for key in [key for key, one in theirs.items() if one.is_before(snapshot)]:
            del theirs[key]

    def _note(self, remark: Remark) -> None:
        if remark.node not in self._remarks and len(self._remarks) >= MAX_TELLERS:
            return
        theirs = self._remarks.setdefault(remark.node, Newest(MAX_REMARKS))
        key = remark.topic, remark.subject
        if key in theirs and remark.topic not in _LASTS_NS:
            return  # keep the first: it tells since when
        theirs[key] = remark


def ended_in_order(runs: Iterable[Run], time_ns: int) -> bool:
    """Return whether the process that ran at a moment, by the clock of its node, has ended in order."""
    return any(run.started_ns <= time_ns <= run.ended_ns and run.end == IN_ORDER for run in runs)


def clock(time_ns: int) -> str:
    """Return the time of day of a moment, in UTC."""
    return datetime.datetime.fromtimestamp(time_ns // 1_000_000_000, datetime.UTC).strftime("%H:%M:%S")


def _seconds_ns(text: str) -> int:
    """Return the nanoseconds in a text of a node; 0 for what is none, such as "inf"."""
    try:
        seconds = float(text)
    # A text of another version, or of a forger: no duration is known.
    except ValueError:
        return 0
    return int(seconds * 1e9) if 0 <= seconds < _LONGEST_S else 0
