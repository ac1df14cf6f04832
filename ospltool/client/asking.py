"""Questions to the durability services, and their answers."""

from __future__ import annotations

import contextlib
import time
import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from engine.dds.client_protocol import extensions
from engine.dds.client_protocol.extensions import PendingAddition, StateAddition, StateRequestAddition
from engine.dds.client_protocol.messages import RequestId, StateRequest, Time
from engine.dds.errors import DdsTimeout
from ospltool.client.errors import Closed, SecretMismatch, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from engine.dds.client_protocol.messages import StateAnswer
    from ospltool.client.session import Session

# Chosen: the client asks again after it, so one service that hangs delays an answer by no more.
HOLD_S: Final = 1.0
"""Most seconds that a service waits for the answer to become yes; then it is asked again."""
# Beyond the time that a service holds a request: its way and a turn of a busy node.
GRACE_S: Final = 1.5
"""Further seconds in which an answer may come."""
# A refusal comes at once; without a pause a client would ask hundreds of times a second.
PAUSE_S: Final = 0.1

_NOTHING: Final[Mapping[str, bytes]] = types.MappingProxyType({})
NO_ADDITION: Final = StateRequestAddition()

Answers = dict[bytes, "StateAnswer"]
"""Answers by the service's GUID prefix."""


def is_ours(state: StateAnswer) -> bool:
    """Return whether an answer is of an ospltool node."""
    return extensions.NAME in state.extensions


def added(state: StateAnswer) -> StateAddition:
    """Return the addition of an ospltool node to its answer; one without content for another product."""
    return extensions.unpack(state.extensions, StateAddition) or extensions.NOTHING


def name_of(state: StateAnswer) -> str:
    """Return the name of the node, or its id if it tells none."""
    return printable(added(state).name or state.server.hex())


def ask(
    session: Session,
    topic: str,
    partitions: Sequence[str],
    deadline_s: float,
    *,
    hold_s: float = 0.0,
    servers: tuple[bytes, ...] = (),
    enough: Callable[[Answers], bool] | None = None,
    blocks: Mapping[str, bytes] = _NOTHING,
    addition: StateRequestAddition = NO_ADDITION,
) -> Answers:
    """Ask all services, or `servers` only; return the answers that came in time.

    Args:
        session: the client's session.
        topic: name of the topic.
        partitions: names of partitions; empty for the default partition.
        deadline_s: when to stop waiting for answers, on the monotonic clock.
        hold_s: most seconds that a service may wait for a better answer.
        servers: ids of the services that must answer; empty for all.
        enough: tells whether the answers so far suffice.
        blocks: binary additions to the request.
        addition: what the request says besides.
    """
    request = state_request(
        topic, partitions, hold_s=hold_s, servers=servers, blocks=blocks, addition=addition
    )
    with session.lock:
        session.check()
        try:
            number = session.ask(request)
        except DdsTimeout:  # a service accepts nothing; it vanishes when its lease expires
            return {}

    def is_done() -> bool:
        answers = dict(session.answers(number))
        if enough is not None and enough(answers):
            return True
        if servers:
            return len(answers) >= len(servers)
        return session.state_services() <= answers.keys() | session.refusing().keys()

    try:
        session.wait_until(is_done, deadline_s)
        with session.lock:
            return dict(session.answers(number))
    finally:
        with session.lock:
            session.forget(number)


def refusals(session: Session) -> dict[str, str]:
    """Return why services that are there refuse this client for the secret of the domain, by name."""
    with session.lock:
        return dict(sorted(session.refusing().values()))


def require_willing(session: Session) -> None:
    """Require that a service does not refuse this client; call it if none has answered.

    Raises:
        SecretMismatch: all that are there do.
    """
    if (fault := mismatch(session)) is not None:
        raise fault


def mismatch(session: Session) -> SecretMismatch | None:
    """Return the error of a client that all services that are there refuse; None if one does not."""
    with session.lock:
        refusing = session.refusing()
        if not refusing or not session.state_services() <= refusing.keys():
            return None
    told = refused_text(dict(sorted(refusing.values())))
    return SecretMismatch(f"no durability service answers this client: {told}")


def refused_text(refused: Mapping[str, str]) -> str:
    """Return in words which services refuse, and why; each reason once."""
    named: dict[str, list[str]] = {}
    for name, why in refused.items():
        named.setdefault(why, []).append(name)
    return "; ".join(
        f"{', '.join(names)} refuse{'s' if len(names) == 1 else ''} it: {why}" for why, names in named.items()
    )


def state_request(
    topic: str,
    partitions: Sequence[str],
    *,
    hold_s: float = 0.0,
    servers: tuple[bytes, ...] = (),
    blocks: Mapping[str, bytes] = _NOTHING,
    addition: StateRequestAddition = NO_ADDITION,
) -> StateRequest:
    """Return a state request, which gets its id when it is sent.

    `topic`, `partitions`, `hold_s`, `servers`, `blocks` and `addition` are as for `ask`.
    """
    return StateRequest(
        RequestId(b"", 0),
        topic,
        tuple(partitions) or ("",),
        servers,
        Time.of_ns(round(hold_s * 1e9)),
        {**extensions.pack(addition), **blocks},
    )


def pause(session: Session, deadline_s: float) -> None:
    """Wait a moment between questions that were answered at once."""
    session.wait_until(lambda: False, min(deadline_s, time.monotonic() + PAUSE_S))


PENDING_S: Final = 1.0
"""Seconds between two notices while something is pending."""
# Half of the time after which a writer counts as silent (`engine.runtime.pending_writers.SILENT_S`): one
# notice may be lost.
IDLE_S: Final = 5.0
"""Seconds between two notices while nothing is."""
# As long as tombstones wait for a fellow (`core.settings.absence_bound_s`): its samples survive a restart
# of the application.
JOURNAL_WAIT_S: Final = 86_400.0
"""Seconds for which nodes wait for a silent writer that has a journal."""
# Chosen: without a journal they are lost with the process, and a cut that lasts longer is rare.
MEMORY_WAIT_S: Final = 600.0
"""Seconds for which nodes wait for a silent writer without a journal, which may be cut off."""


class PendingNotice:
    """Tells all nodes, again and again, since when samples of a writer may still be handed over.

    Args:
        session: the client's session.
        topic: name of the writer's topic.
        partitions: its partitions.
        identity: names the writer, or its journal in every run.
        wait_s: seconds for which nodes wait for the writer when it is silent.
    """

    def __init__(
        self, session: Session, topic: str, partitions: Sequence[str], identity: str, wait_s: float
    ) -> None:
        self._session = session
        self._topic = topic
        self._partitions = tuple(partitions)
        self._identity, self._wait_s = identity, wait_s
        self._due_s = 0.0
        self._told: frozenset[bytes] = frozenset()

    @property
    def left_s(self) -> float:
        """Seconds until it is due."""
        return self._due_s - time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether to tell again: some time has passed, or there is a new node."""
        return self.left_s <= 0 or not self._session.state_services() <= self._told

    def send(self, since_ns: int | None, *, is_idle: bool = False) -> None:
        """Tell the nodes.

        Args:
            since_ns: source time of the earliest sample that may be handed over, nanoseconds since 1970 UTC;
                None if there will be no more.
            is_idle: nothing is pending now.
        """
        pending = PendingAddition(self._identity, since_ns, self._wait_s)
        with self._session.lock, contextlib.suppress(DdsTimeout):  # a service that accepts nothing vanishes
            self._session.check()
            self._told = self._session.state_services()
            self._due_s = time.monotonic() + (IDLE_S if is_idle else PENDING_S)
            request = state_request(
                self._topic, self._partitions, addition=StateRequestAddition(pending=pending)
            )
            self._session.forget(self._session.ask(request))

    def end(self) -> None:
        """Tell the nodes that nothing will be handed over any more, if they can be reached."""
        # The session may have ended first; then nodes notice the silence.
        with contextlib.suppress(Closed):
            self.send(None)
