"""Questions to the durability services, and what comes back in time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from engine.dds.client_protocol import extensions
from engine.dds.client_protocol.messages import RequestId, StateRequest, Time
from engine.dds.errors import DdsTimeout

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from engine.dds.client_protocol.messages import State
    from ospltool.client.session import Session

HOLD_S: Final = 1.0
"""How long a service may hold a question until the answer is yes; then it is asked again."""
GRACE_S: Final = 1.5
"""How much later than that an answer may come."""
PAUSE_S: Final = 0.1

Answers = dict[bytes, "State"]
"""By the service's GUID prefix."""


def added(state: State) -> dict[str, Any]:
    """What a node of this product adds to its answer."""
    return extensions.unpack(state.extensions) or {}


def name_of(state: State) -> str:
    """The name of the node, its id where it tells none."""
    return printable(added(state).get("name", state.server.hex()))


def printable(text: object) -> str:
    """A text of a node without control characters, for messages."""
    return "".join(char if char.isprintable() else "?" for char in str(text))


def ask(
    session: Session,
    topic: str,
    partitions: Sequence[str],
    deadline_s: float,
    *,
    hold_s: float = 0.0,
    servers: tuple[bytes, ...] = (),
    enough: Callable[[Answers], bool] | None = None,
    blocks: Mapping[str, bytes] | None = None,
    values: Mapping[str, object] | None = None,
) -> Answers:
    """Ask all services, or `servers` only; returns the answers that came in time.

    Args:
        session: the client's.
        topic: what is asked about.
        partitions: likewise; none is the default one.
        deadline_s: when to go on without those that have not answered, on the monotonic clock.
        hold_s: how long a service may wait for a better answer.
        servers: ids of those that shall answer.
        enough: whether the others need not be waited for.
        blocks: additions in binary form.
        values: our addition.
    """

    def make(request: RequestId) -> StateRequest:
        return StateRequest(
            request,
            topic,
            tuple(partitions) or ("",),
            servers,
            Time.of_ns(round(hold_s * 1e9)),
            {**extensions.pack(**(values or {})), **(blocks or {})},
        )

    with session.lock:
        session.check()
        try:
            number = session.ask(make)
        except DdsTimeout:  # a service takes nothing; it is gone when its lease has expired
            return {}

    def is_done() -> bool:
        answers = dict(session.answers(number))
        if enough is not None and enough(answers):
            return True
        if servers:
            return len(answers) >= len(servers)
        return session.state_services() <= answers.keys()

    try:
        session.wait_until(is_done, deadline_s)
        with session.lock:
            return dict(session.answers(number))
    finally:
        with session.lock:
            session.forget(number)


def pause(session: Session, deadline_s: float) -> None:
    """Between questions that were answered at once."""
    session.wait_until(lambda: False, min(deadline_s, time.monotonic() + PAUSE_S))
