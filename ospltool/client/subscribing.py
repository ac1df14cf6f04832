"""The reader's side of a durable subscription: its protocol with persistence services."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, make_sample
from engine.dds.errors import DdsError
from engine.dds.subscription_endpoints import StateWriter, open_answers, reader_id
from engine.dds.writer import stamp_ns
from engine.persistence.core.messages import (
    MessageFault,
    OriginalSample,
    SubscriberAnswer,
    decode,
    encode,
)
from engine.persistence.core.positions import position_of
from engine.persistence.core.subscriber import Subscriber
from engine.persistence.core.subscription_ledger import MAX_NAME_CHARS, MAX_QUORUM
from ospltool.client.errors import DurabilityTimeout, InvalidSubscription, NoPersistenceService
from ospltool.client.session import Session, SessionPart

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.dataset.sample import Sample
    from ospltool.client.samples import ReceivedSample

MEMBER: Final = "reader"
"""Default member name of a reader."""

_GUID_BYTES: Final = 16


class ReaderSubscription:
    """The durable subscription of one reader. All methods are called under the session's lock.

    Args:
        session: provides participant and thread.
        topic, partitions: topic and partitions of the reader.
        name, quorum: name and quorum of the durable subscription.
        member: the reader's name in it; required for quorums above 1.

    Raises:
        InvalidSubscription: a name, or the quorum, is out of range.
    """

    def __init__(
        self,
        session: Session,
        topic: str,
        partitions: tuple[str, ...],
        name: str,
        quorum: int,
        member: str | None,
    ) -> None:
        check_subscription(topic, name, quorum)
        if quorum > 1 and member is None:
            raise InvalidSubscription(
                f"durable subscription '{name}' has a quorum of {quorum}: give each of its readers a member "
                "name that it keeps when it starts again, or it would count twice"
            )
        _check_name("member", member or MEMBER)
        self._open(session, Subscriber(topic, partitions, name, quorum, member or MEMBER))

    def _open(self, session: Session, deciding: Subscriber) -> None:
        self.deciding = deciding
        self.malformed = 0
        self._session = session
        reader = reader_id(session.id, next(session.numbers))
        self._answers = open_answers(session.participant, session.signal, reader)
        self._states = StateWriter(session.participant, session.signal, reader)

    # What the reader asks and tells.

    def is_new(self, sample: Sample) -> bool:
        """Return whether a live sample comes for the first time."""
        if not sample.status & (DATA | DISPOSE):
            return True  # services do not keep a mere unregister
        return self.deciding.arrived(*identity(sample))

    def acknowledge(self, samples: Iterable[tuple[str, int]]) -> None:
        """Acknowledge samples that the application has processed."""
        self.deciding.acknowledge(samples)
        self._session.signal.set()

    def not_answered(self, what: str) -> DurabilityTimeout:
        """Return the exception for services that have not done something in time."""
        if self.deciding.is_alone:
            return NoPersistenceService(f"{what}: no persistence service was found")
        return DurabilityTimeout(f"{what} did not happen in time")

    @property
    def due_s(self) -> float | None:
        """Time at which `hear` is due."""
        return self.deciding.due_s

    def take_malformed(self) -> int:
        """Return the number of malformed answers since the last call."""
        found, self.malformed = self.malformed, 0
        return found

    def hear(self, now: float) -> list[Sample]:
        """Send the reader's state if it is due; return new samples from services."""
        found: list[Sample] = []
        answers = [each for each in self._answers.take() if each.payload is not None]
        self.deciding.present((guid.hex() for guid in self._states.services()), now)
        for received in answers:
            try:
                answer = decode(received.payload or b"", SubscriberAnswer)
                samples = [_of_dataset(each) for each in answer.samples]
            except (MessageFault, ValueError):
                self.malformed += 1
                continue
            found += [each for each in samples if self.deciding.arrived(*identity(each))]
            self.deciding.answer(received.participant.hex(), answer, now)
        state = self.deciding.turn(now)
        if state is not None:
            with contextlib.suppress(DdsError):  # a service is behind; the next state repeats everything
                self._states.write(encode(state), stamp_ns())
        return found

    def close(self) -> None:
        """Close writer and reader, which services notice. Idempotent."""
        self._states.close()
        self._answers.close()


def identity(sample: Sample) -> tuple[str, int]:
    """Return the identity of a sample for services."""
    status = sample.status & ~UNREGISTER
    return sample.writer.hex(), position_of(sample.key, sample.source_time_ns, status, sample.payload)


def identity_of_received(sample: ReceivedSample[Any]) -> tuple[str, int]:
    """Return the identity of a sample that the application has received."""
    has_data = sample.data is not None or sample.problem
    status = (DATA if has_data else 0) | (DISPOSE if sample.is_dispose else 0)
    return identity(make_sample(sample.source_time_ns, sample.writer, status, sample.key, sample.cdr))


def _of_dataset(sample: OriginalSample) -> Sample:
    writer = bytes.fromhex(sample.writer)
    if len(writer) != _GUID_BYTES:
        raise ValueError("no GUID of a writer")
    return make_sample(sample.source_time_ns, writer, sample.status, sample.key, sample.payload)


def check_subscription(topic: str, name: str, quorum: int) -> None:
    """Refuse values that services would refuse.

    Raises:
        InvalidSubscription: a name, or the quorum, is out of range.
    """
    _check_name("topic", topic)
    _check_name("name", name)
    if not 1 <= quorum <= MAX_QUORUM:
        raise InvalidSubscription(f"the quorum of durable subscription '{name}' is {quorum}; the least is 1")


def _check_name(what: str, text: str) -> None:
    if not 0 < len(text) <= MAX_NAME_CHARS or not text.isprintable():
        raise InvalidSubscription(
            f"the {what} of a durable subscription is 1 to {MAX_NAME_CHARS} printable characters"
        )


class SubscriptionChange(ReaderSubscription, SessionPart):
    """Creates or deletes a durable subscription without reading.

    Args:
        session: provides participant and thread.
        topic, partitions, name, quorum: of the durable subscription.
        deletes: delete the durable subscription.
    """

    def __init__(
        self,
        session: Session,
        topic: str,
        partitions: tuple[str, ...],
        name: str,
        quorum: int,
        *,
        deletes: bool,
    ) -> None:
        check_subscription(topic, name, quorum)
        deciding = Subscriber(topic, partitions, name, quorum, MEMBER, asks=False, deletes=deletes)
        with session.lock:
            session.check()
            self._open(session, deciding)
            session.join(self)

    def turn(self, now: float) -> None:
        """Send the state."""
        self.hear(now)

    def close(self) -> None:
        """End the errand."""
        with self._session.lock:
            self._session.leave(self)
            super().close()
