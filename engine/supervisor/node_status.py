"""State of a node, from the last reports of node and supervisor and from which of the two still run."""

from __future__ import annotations

import datetime
import enum
from typing import Final

import msgspec

from engine.supervisor.policy import FINAL, INITIAL_STATE, NodePhase
from engine.supervisor.rundir import NodeDirectory, RunRecord
from engine.tracing.escaping import escape

OPERATIONAL_STATE: Final = "COMPLETE"


class Condition(enum.StrEnum):
    """Condition of a node. The value completes the sentence `system with domain name "x" …`."""

    OPERATIONAL = "is operational"
    STARTING = "is starting"
    RESTARTING = "is being restarted"
    UNRESPONSIVE = "does not respond"
    STOPPING = "is stopping"
    STOPPED = "is not running"
    DIED = "has died"


ALIVE: Final = frozenset(
    {
        Condition.OPERATIONAL,
        Condition.STARTING,
        Condition.RESTARTING,
        Condition.UNRESPONSIVE,
        Condition.STOPPING,
    }
)
"""The conditions of a node that has a supervisor."""

RESPONDING: Final = ALIVE - {Condition.UNRESPONSIVE}
"""The conditions of a node that shows no fault."""

_STOPPABLE: Final = frozenset({Condition.OPERATIONAL, Condition.STARTING, Condition.UNRESPONSIVE})
"""The conditions that a stopped process of the node explains, or contradicts."""

_LAST_STATES: Final = ("TERMINATING", "TERMINATED")
"""States in the last report of a node that has ended."""


class NodeStatus(msgspec.Struct, frozen=True):
    """One node of this machine."""

    directory: NodeDirectory
    """Its directory below the run directory."""
    record: RunRecord
    """The supervisor's last report."""
    condition: Condition
    """Its condition."""
    state: str
    """Its service state; empty if this run never reported one, or died without a last report."""
    state_since_ns: int
    """Begin of that state, nanoseconds since 1970 UTC; 0 if unknown."""
    reason: str
    """Reason for the condition; may be empty."""
    is_unsupervised: bool = False
    """Whether its supervisor was killed."""
    is_orphan: bool = False
    """Whether its supervisor is gone and the node still runs; it is about to end."""
    store_problem: str = ""
    """Reason why its store refuses data, or cannot be opened for lack of room; empty for none."""
    unstored: int = 0
    """Number of samples in memory only, while the store refuses."""
    waits_for: str = ""
    """Obstacle to being operational that does not end by itself; empty for none."""
    parts: str = ""
    """Name-spaces of which it has only a part, in words; empty for none."""
    refused: str = ""
    """Groups of which it keeps nothing because of a content filter, in words; empty for none."""
    stuck: str = ""
    """Threads, or its supervisor, that do not proceed as its deadlock watch sees them; empty for none."""

    @property
    def waits_for_room(self) -> bool:
        """Whether it cannot open its store for lack of room, and tries again until it can."""
        return bool(self.store_problem) and self.state == INITIAL_STATE

    @property
    def sentence(self) -> str:
        """The status in the words of `ospl status`."""
        name = escape(self.record.domain_name)  # a line end in it would begin another sentence
        return f'ospltool system with domain name "{name}" {self.predicate}'

    @property
    def predicate(self) -> str:
        """The sentence without its subject: the condition, and all that is wrong or was."""
        state = f" ({self.state})" if self.condition is Condition.STARTING and self.state else ""
        store = self._store_words() or (f", but waits: {self.waits_for}" if self.waits_for else "")
        reason = f"{'; ' if store else ': '}{self.reason}" if self.reason else ""
        past = self._past_words()
        stuck = f"{self.stuck} does not proceed" if self.stuck else ""
        parts = "".join(f"; {each}" for each in (stuck, self.parts, self.refused) if each)
        return f"{self.condition}{state}{store}{reason}{parts}{past}"

    def _past_words(self) -> str:
        """Return the last failure of a recovered node, with its time."""
        record = self.record
        if not record.failed_ns or self.reason:
            return ""
        times = "once" if record.restarts == 1 else f"{record.restarts} times"
        restarts = f"restarted {times}, " if record.restarts else ""
        moment = datetime.datetime.fromtimestamp(record.failed_ns // 1_000_000_000, datetime.UTC)
        return f"; {restarts}last failure {moment:%Y-%m-%d %H:%M:%S} UTC: {record.failure}"

    def _store_words(self) -> str:
        if not self.store_problem:
            return ""
        if self.waits_for_room:
            return f", but waits for room to open its store: {self.store_problem}"
        count = f"{self.unstored} sample{' is' if self.unstored == 1 else 's are'} in memory only"
        return f", but its store refuses: {self.store_problem}" + (f"; {count}" if self.unstored else "")


def status_of(directory: NodeDirectory) -> NodeStatus | None:
    """Return the status of a node; None if its supervisor left no readable report."""
    record = directory.record()
    if record is None:
        return None
    said = directory.state()
    is_supervised = record.supervisor.is_alive() and record.phase not in FINAL
    is_orphan = not is_supervised and record.node is not None and record.node.is_alive()
    reason = record.reason
    is_unsupervised = not is_supervised and record.phase not in FINAL
    if is_unsupervised:
        reason = "its supervisor was killed" + (", the node is ending" if is_orphan else "")
    is_said_by_it = record.node is not None and said.get("pid") == record.node.pid and record.node.is_alive()
    state, since_ns = _text(said.get("state")), said.get("time_ns")
    if not is_said_by_it:
        said = {}
        if state not in _LAST_STATES:
            state, since_ns = "", 0  # of an earlier run, or of a dead one
    condition = _condition(record, state, is_supervised=is_supervised)
    stopped = _stopped(record) if condition in _STOPPABLE else ""
    if stopped:
        condition, reason = Condition.UNRESPONSIVE, stopped
    return NodeStatus(
        directory=directory,
        record=record,
        condition=condition,
        state=state,
        state_since_ns=since_ns if isinstance(since_ns, int) else 0,
        reason=reason,
        is_unsupervised=is_unsupervised,
        is_orphan=is_orphan,
        store_problem=_text(said.get("problem")),
        unstored=unstored if isinstance(unstored := said.get("unstored"), int) else 0,
        waits_for=_text(said.get("waits")),
        parts=_text(said.get("parts")),
        refused=_text(said.get("refused")),
        stuck=_text(said.get("stuck")),
    )


def _text(value: object) -> str:
    """Return a text that can be printed, also one that names a path of bytes that are not UTF-8."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else ""


def _stopped(record: RunRecord) -> str:
    """Name the stopped processes of a node; empty for none. Its lease may end only much later."""
    processes = {"the node process": record.node, "its supervisor": record.supervisor}
    names = [name for name, one in processes.items() if one is not None and one.is_stopped()]
    if not names:
        return ""
    alone = ", nobody watches the node" if "its supervisor" in names else ""
    verb = "are" if len(names) > 1 else "is"
    return f"{' and '.join(names)} {verb} stopped (SIGSTOP, or a debugger){alone}"


def _condition(record: RunRecord, state: str, *, is_supervised: bool) -> Condition:
    if not is_supervised:
        return Condition.STOPPED if record.phase is NodePhase.ENDED else Condition.DIED
    if record.is_unresponsive:
        return Condition.UNRESPONSIVE
    if record.phase is NodePhase.RUNNING and state == OPERATIONAL_STATE:
        return Condition.OPERATIONAL
    return {
        NodePhase.STOPPING: Condition.STOPPING,
        NodePhase.RESTARTING: Condition.RESTARTING,
        NodePhase.KILLING: Condition.RESTARTING,
    }.get(record.phase, Condition.STARTING)
