"""The decisions of the supervisor, as a state machine without clock, process or signal.

The node renews a lease. If it is silent for longer than Domain/Lease/ExpiryTime, or ends without a request,
the FailureAction of its Domain/Service entry applies:

- skip: the supervisor leaves it alone; a node that has ended stays ended.
- kill: the supervisor kills it.
- restart: the supervisor kills it and starts it again, at most `RESTART_LIMIT` times in `RESTART_WINDOW_S`.
- systemhalt: the supervisor stops everything of this domain on this machine, itself included.

A node that is told to stop has the ServiceTerminatePeriod for it, and is killed after that. A node that ends
with `EXIT_CONFIGURATION` would do so again and is never restarted, nor is one that cannot be started at all.

    STARTING --left INIT--> RUNNING --stop--> STOPPING --exit--> ENDED
        |                      |                 ^
        +------failure---------+--systemhalt-----+
                |
                +-- restart --> RESTARTING --delay over--> STARTING
                +-- otherwise --> KILLING --exit--> DIED
"""

from __future__ import annotations

import collections
import enum
from collections.abc import Callable
from typing import Final

import msgspec

START_GRACE_S: Final = 120.0
"""Limit from the start of a node to its first renewal, if ExpiryTime is shorter.

A machine that starts many programs at once is slow, and a node killed at its start begins from zero.
"""

STOOD_STILL_S: Final = 1.0
"""A timer that is this much too late tells of the supervisor, not of the node."""

# With pauses of 0.25 to 4 s, five starts take some 8 s: a fault that passes in seconds is outlived, a
# permanent one is not repeated all day.
RESTART_LIMIT: Final = 5
RESTART_WINDOW_S: Final = 60.0
"""A node that ends more often than that will not run without a person."""
# Chosen: short, since most causes have gone with the process.
_FIRST_DELAY_S: Final = 0.25
# Five starts must fit into `RESTART_WINDOW_S`, or the limit would never be reached.
_LONGEST_DELAY_S: Final = 4.0
"""The pause doubles up to this, so that a fault that passes in seconds costs few starts."""

EXIT_ENDED: Final = 0
EXIT_DIED: Final = 1
"""The supervisor ended because its node did, not because somebody asked for it."""
# As argparse, grep and diff say it of wrong arguments.
EXIT_CONFIGURATION: Final = 2
"""Exit code of a node that another start would not mend; `python -m engine` has the same three codes."""

INITIAL_STATE: Final = "INIT"
"""The service state of a node that is not running yet."""


class Action(enum.StrEnum):
    """FailureAction, by the names of the configuration."""

    SKIP = "skip"
    KILL = "kill"
    RESTART = "restart"
    SYSTEM_HALT = "systemhalt"


class NodePhase(enum.StrEnum):
    """Phase of a supervised node."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    RESTARTING = "restarting"
    KILLING = "being killed"
    ENDED = "ended"
    DIED = "died"


FINAL: Final = frozenset({NodePhase.ENDED, NodePhase.DIED})


class SupervisorAction(enum.Enum):
    """Action of the supervisor."""

    START = "start the node"
    TERMINATE = "tell the node to stop"
    KILL = "end the node by force"
    END = "end yourself"


class SupervisionRules(msgspec.Struct, frozen=True):
    """The supervisor's settings; times in seconds."""

    expiry_s: float
    terminate_period_s: float
    action: Action

    @property
    def first_lease_s(self) -> float:
        """Limit for the first renewal."""
        return max(self.expiry_s, START_GRACE_S)


class SupervisionPolicy:
    """Decides for one node. Every call takes the monotonic time and returns the commands, in order.

    Attributes:
        phase: the node's phase.
        reason: reason for the phase, for people; empty while the node runs and responds.
        failure: the last failure, also after recovery.
        failures: number of failures.
        has_run: whether the node, at any of its starts, has got beyond INIT.
        restarts: number of restarts.
        is_unresponsive: whether its lease has expired and it was left alone (skip).
        exit_code: exit code of the supervisor, once the phase is final.
    """

    def __init__(self, rules: SupervisionRules) -> None:
        self.rules = rules
        self.phase = NodePhase.STARTING
        self.reason = ""
        self.failure = ""
        self.failures = 0
        self.has_run = False
        self.restarts = 0
        self.is_unresponsive = False
        self.exit_code = EXIT_ENDED
        self._final_phase = NodePhase.ENDED
        self._deadline: float | None = None
        self._start_times: collections.deque[float] = collections.deque(maxlen=RESTART_LIMIT)

    def begin(self, now: float) -> list[SupervisorAction]:
        """Start the node, for the first time or again."""
        self.phase = NodePhase.STARTING
        self.is_unresponsive = False
        self._deadline = now + self.rules.first_lease_s
        return [SupervisorAction.START]

    def renewed(self, now: float, state: str) -> list[SupervisorAction]:
        """Take in a renewal of the lease, in this service state."""
        if self.phase is NodePhase.STARTING and state not in ("", INITIAL_STATE):
            self.phase = NodePhase.RUNNING
            self.has_run = True
            self.reason = ""
        if self.phase in (NodePhase.STARTING, NodePhase.RUNNING):
            if self.is_unresponsive:
                self.is_unresponsive = False
                self.reason = ""
            self._deadline = now + self.rules.expiry_s
        return []

    def exited(self, now: float, exit_code: int, cause: str = "") -> list[SupervisorAction]:
        """Take in the end of the node process.

        Args:
            now: monotonic time.
            exit_code: the exit code, negative for a signal.
            cause: the node's last message.
        """
        how = f"killed by signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
        if self.phase is NodePhase.STOPPING:
            if exit_code:
                self.reason = f"{self.reason}; the node ended with {how}".removeprefix("; ")
            return self._end(self._final_phase, self.exit_code)
        if self.phase is NodePhase.KILLING:
            return self._restart(now)
        if exit_code == EXIT_ENDED:
            self.reason = "the node ended by itself, in order"
            return self._end(NodePhase.ENDED, EXIT_ENDED)
        if exit_code == EXIT_CONFIGURATION:
            self._fail(f"the node cannot run: {cause}" if cause else "the node cannot run; its log says why")
            return self._end(NodePhase.DIED, EXIT_CONFIGURATION)
        self._fail(f"the node ended unexpectedly ({how})" + (f": {cause}" if cause else ""))
        return self._restart(now)

    def start_failed(self, now: float, cause: str, *, is_permanent: bool) -> list[SupervisorAction]:
        """Take in that the node process could not be started, and why; not tried again if `is_permanent`.

        Args:
            now: monotonic time.
            cause: the reason.
            is_permanent: another attempt would end in the same way.
        """
        self._fail(f"the node could not be started: {cause}")
        if is_permanent:
            return self._end(NodePhase.DIED, EXIT_CONFIGURATION)
        return self._restart(now)

    def stop(self, now: float, reason: str) -> list[SupervisorAction]:
        """Stop the node, unless it is stopping already."""
        if self.phase in (NodePhase.STARTING, NodePhase.RUNNING):
            self.reason = reason
            self.phase = NodePhase.STOPPING
            self._deadline = now + self.rules.terminate_period_s
            return [SupervisorAction.TERMINATE]
        if self.phase is NodePhase.RESTARTING:
            self.reason = reason
            return self._end(NodePhase.ENDED, EXIT_ENDED)
        return []

    def timer(self, now: float, cause: Callable[[], str] = lambda: "") -> list[SupervisorAction]:
        """Return the commands that are due; none before `next_timer`.

        `cause` tells what kept the node from renewing its lease; empty if unknown.

        A call that comes much too late means that the supervisor itself stood still, maybe with the node (a
        suspended machine, Ctrl+Z): it begins to wait for a renewal of the lease again.
        """
        if self._deadline is None or now < self._deadline:
            return []
        if self.phase in (NodePhase.STARTING, NodePhase.RUNNING) and now - self._deadline > STOOD_STILL_S:
            self._deadline = now + self.rules.expiry_s
            return []
        self._deadline = None
        if self.phase is NodePhase.RESTARTING:
            return self.begin(now)
        if self.phase is NodePhase.STOPPING:
            self.reason = f"the node did not end within {self.rules.terminate_period_s:g} s and was killed"
            self.exit_code = EXIT_DIED
            return [SupervisorAction.KILL]
        return self._expire(now, cause())

    def next_timer(self) -> float | None:
        """Return the time for the next call of `timer`, None for never."""
        return self._deadline

    def _expire(self, now: float, cause: str) -> list[SupervisorAction]:
        limit_s = self.rules.first_lease_s if self.phase is NodePhase.STARTING else self.rules.expiry_s
        self._fail(f"the node did not renew its lease within {limit_s:g} s" + (f": {cause}" if cause else ""))
        match self.rules.action:
            case Action.SKIP:
                self.is_unresponsive = True
                return []
            case Action.SYSTEM_HALT:
                self.phase = NodePhase.STOPPING
                self._final_phase = NodePhase.DIED
                self.exit_code = EXIT_DIED
                self._deadline = now + self.rules.terminate_period_s
                return [SupervisorAction.TERMINATE]
            case Action.KILL | Action.RESTART:
                self.phase = NodePhase.KILLING
                return [SupervisorAction.KILL]

    def _fail(self, how: str) -> None:
        self.reason = self.failure = how
        self.failures += 1

    def _restart(self, now: float) -> list[SupervisorAction]:
        """Start the node again after a pause, if the FailureAction is that, and not too often."""
        if self.rules.action is not Action.RESTART:
            return self._end(NodePhase.DIED, EXIT_DIED)
        recent = sum(now - start < RESTART_WINDOW_S for start in self._start_times)
        if recent >= RESTART_LIMIT:
            self.reason += (
                f"; it was started {RESTART_LIMIT} times again within {RESTART_WINDOW_S:g} s, no more"
            )
            return self._end(NodePhase.DIED, EXIT_DIED)
        self._start_times.append(now)
        self.restarts += 1
        self.phase = NodePhase.RESTARTING
        self._deadline = now + min(_FIRST_DELAY_S * 2**recent, _LONGEST_DELAY_S)
        return []

    def _end(self, phase: NodePhase, exit_code: int) -> list[SupervisorAction]:
        self.phase = phase
        self.exit_code = exit_code
        self._deadline = None
        assert phase in FINAL, "only a node that has ended for good ends its supervisor"
        return [SupervisorAction.END]
