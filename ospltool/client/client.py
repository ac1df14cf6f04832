"""What an application asks of the durability services besides data."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any, Final, Self

from cyclonedds.domain import DomainParticipant
from cyclonedds.pub import DataWriter
from cyclonedds.qos import Policy

from engine.dds.client_protocol import endpoints, extensions
from engine.dds.client_protocol.messages import Completeness, RequestId, StateRequest, Time
from ospltool.client import errors
from ospltool.client.session import PREFIX_BYTES, Session
from ospltool.client.subscribing import Errand

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.dds.client_protocol.messages import State

HOLD_S: Final = 1.0
"""How long a service may hold a question until the answer is yes; then it is asked again."""
GRACE_S: Final = 1.5
PAUSE_S: Final = 0.1


@dataclasses.dataclass(frozen=True, slots=True)
class GroupCompleteness:
    """What one service has of one group; `service` is its id in hexadecimal digits."""

    service: str
    service_name: str
    partition: str
    topic: str
    completeness: Completeness


@dataclasses.dataclass(frozen=True, slots=True)
class Written:
    """What must be stored.

    Attributes:
        topic: the topic's name.
        partitions: where it was written, expressions allowed; none is the default one.
        writer: the writer's GUID, 16 bytes; empty for any writer.
        until_ns: source time of the newest sample that must be stored; None for what had arrived at each
            service when it was asked.
    """

    topic: str
    partitions: tuple[str, ...] = ()
    writer: bytes = b""
    until_ns: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class StoredAt:
    """A service that has stored it, by id and name."""

    service: str
    service_name: str


class DurabilityClient:
    """A client of the durability services of one domain. Methods may be called from any thread.

    It has a participant of its own, which nodes know for a client: they leave the history of its readers to
    the library. It uses the Cyclone DDS domain of the application.

    Args:
        where: a domain id, or a participant of `cyclonedds` whose domain it is.
        partition: //OpenSplice/DurabilityService/ClientDurability/EntityNames/Partition of the services.
        uri: Cyclone DDS settings, for a process that has not used the domain before; None for
            CYCLONEDDS_URI, or loopback without it.

    Raises:
        UnsupportedCyclone: the installed cyclonedds is another version than the one supported.
        DdsError: the participant cannot be made.
    """

    def __init__(
        self,
        where: DomainParticipant | int = 0,
        *,
        partition: str = endpoints.PARTITION,
        uri: str | None = None,
    ) -> None:
        domain_id = where if isinstance(where, int) else where.domain_id
        self.session = Session(domain_id, partition, uri)

    def wait_for_service(self, timeout_s: float) -> None:
        """Wait until a durability service is there that serves clients.

        Raises:
            NoService: there is none in time.
        """
        self.session.wait_for_services(time.monotonic() + timeout_s)

    def durability_state(
        self, topic: str, partitions: Sequence[str] = (), *, timeout_s: float = 5.0
    ) -> tuple[GroupCompleteness, ...]:
        """How complete the groups of a topic are at every service (durabilityStateRequest, guide 5.5.24).

        A service that is there but does not answer in time is left out.

        Raises:
            NoService: there is no service in time.
        """
        deadline_s = time.monotonic() + timeout_s
        self.session.wait_for_services(deadline_s)
        answers = self._ask(topic, partitions, deadline_s, servers=(), hold_s=0.0)
        found = [
            GroupCompleteness(
                state.server.hex(),
                str((_added(state) or {}).get("name", "")),
                group.partition,
                group.topic,
                Completeness(min(group.completeness, Completeness.COMPLETE)),
            )
            for state in answers.values()
            for group in state.groups
        ]
        return tuple(sorted(found, key=lambda one: (one.partition, one.service)))

    def delete_historical_data(
        self,
        partition_expression: str,
        topic_expression: str,
        *,
        until_ns: int | None = None,
        timeout_s: float = 5.0,
    ) -> None:
        """Delete the historical data of all groups that match, on every node (guide 5.5.18).

        What readers have already got stays with them. Samples with a source time after `until_ns` stay;
        older ones that arrive later are not taken in any more.

        Args:
            partition_expression: which partitions; `*` and `?` allowed.
            topic_expression: which topics; likewise.
            until_ns: source time, now unless given; never later than now.
            timeout_s: how long to look for a node that does it. It tells the others.

        Raises:
            NoService: there is no service in time.
            DurabilityTimeout: no node has confirmed in time; data may have been deleted all the same.
        """
        deadline_s = time.monotonic() + timeout_s
        self.session.wait_for_services(deadline_s)
        order = {
            "partition": partition_expression,
            "topic": topic_expression,
            "until_ns": time.time_ns() if until_ns is None else until_ns,
        }
        while time.monotonic() < deadline_s:
            known = self._ask(topic_expression, (partition_expression,), deadline_s, servers=(), hold_s=0.0)
            for node in sorted(state.server for state in known.values() if _added(state) is not None):
                confirmed = self._ask(
                    topic_expression,
                    (partition_expression,),
                    min(deadline_s, time.monotonic() + GRACE_S),
                    servers=(node,),
                    hold_s=0.0,
                    delete=order,
                )
                if any((_added(state) or {}).get("deleted") for state in confirmed.values()):
                    return
            self._pause(deadline_s)
        raise errors.DurabilityTimeout("no node has confirmed that it deletes historical data")

    def register_durable_subscription(
        self,
        topic: str,
        name: str,
        *,
        quorum: int = 1,
        partitions: Sequence[str] = (),
        timeout_s: float = 5.0,
    ) -> None:
        """Create a durable subscription at every persistence service that is there, if it is not there yet.

        From now on, samples of the topic are kept until `quorum` readers of this name have acknowledged them;
        it begins with the last values. Of two quorums the smaller counts.

        Args:
            topic: what its readers read.
            name: of the durable subscription.
            quorum: readers that must acknowledge a sample.
            partitions: expressions allowed; none is the default one.
            timeout_s: how long at most.

        Raises:
            InvalidSubscription: a name, or the quorum, is out of range.
            NoPersistenceService: there is none in time.
            DurabilityTimeout: some have not confirmed in time; the others know it all the same.
        """
        self._run(topic, name, quorum, partitions, timeout_s, deletes=False)

    def delete_durable_subscription(
        self, topic: str, name: str, *, partitions: Sequence[str] = (), timeout_s: float = 5.0
    ) -> None:
        """Delete a durable subscription at every persistence service; end its readers before.

        They tell those that are away. Arguments and errors are those of `register_durable_subscription`.
        """
        self._run(topic, name, 1, partitions, timeout_s, deletes=True)

    def _run(
        self,
        topic: str,
        name: str,
        quorum: int,
        partitions: Sequence[str],
        timeout_s: float,
        *,
        deletes: bool,
    ) -> None:
        deadline_s = time.monotonic() + timeout_s
        errand = Errand(self.session, topic, tuple(partitions), name, quorum, deletes=deletes)
        try:
            if not self.session.wait_until(lambda: errand.deciding.is_heard, deadline_s):
                what = f"durable subscription '{name}'"
                if errand.deciding.is_alone:
                    raise errors.NoPersistenceService(f"{what}: no persistence service was found")
                raise errors.DurabilityTimeout(f"{what}: a persistence service has not confirmed in time")
        finally:
            errand.close()

    def wait_for_durable(
        self, written: DataWriter | Written, timeout_s: float, *, nodes: int = 1
    ) -> tuple[StoredAt, ...]:
        """Wait until what was written is stored on every node that must store it.

        A node must store a group when one of its name-spaces contains it, its policy keeps it, and it has
        begun to (a Lazy node that nobody asked has not). It has stored a sample when the sample is in its
        complete set and, where policy and writer say PERSISTENT, on its disk. Nodes that do not serve
        clients cannot be asked, and are not waited for.

        Args:
            written: a writer of this process: its samples are first acknowledged by all readers that it
                matches. Or what a writer anywhere wrote, up to a source time.
            timeout_s: how long at most.
            nodes: how many nodes must have stored it at least.

        Returns:
            The nodes that have.

        Raises:
            NoService: there is no service in time.
            GroupNotFound: there are services, but none must store it.
            NotStored: not in time; the text names the nodes that miss it, and why.
        """
        deadline_s = time.monotonic() + timeout_s
        self.session.wait_for_services(deadline_s)
        writer = written if isinstance(written, DataWriter) else None
        if isinstance(written, DataWriter):
            if not written.wait_for_acks(max(1, round((deadline_s - time.monotonic()) * 1e9))):
                raise errors.NotStored("readers have not acknowledged everything that was written")
            written = _written_by(written)
        found = _Survey()
        while True:
            services = self.session.state_services()
            now_s = time.monotonic()
            left_s = max(0.0, deadline_s - now_s)
            answers = self._ask(
                written.topic,
                written.partitions,
                min(deadline_s, now_s + HOLD_S + GRACE_S),
                servers=(),
                hold_s=min(HOLD_S, left_s / 2),  # the answer must still be in time
                stored={"writer": written.writer.hex(), "until_ns": written.until_ns},
            )
            if left_s < HOLD_S + GRACE_S:  # too little to call somebody silent who answered before
                answers = {**{one: found.answers[one] for one in services & found.answers.keys()}, **answers}
            if answers or not found.answers:
                found = _Survey(services, answers, None if writer is None else _matched_with(writer))
            if not found.missing(nodes):
                return tuple(StoredAt(one.server.hex(), _name(one)) for one in found.required)
            if time.monotonic() >= deadline_s:
                break
            self._pause(deadline_s)
        if found.services <= found.answers.keys() and not found.required:
            raise errors.GroupNotFound(f"no node stores topic '{written.topic}' in {written.partitions}")
        raise errors.NotStored(
            f"topic '{written.topic}' is not stored everywhere: {'; '.join(found.missing(nodes))}"
        )

    def _ask(
        self,
        topic: str,
        partitions: Sequence[str],
        deadline_s: float,
        *,
        servers: tuple[bytes, ...],
        hold_s: float,
        **added: object,
    ) -> dict[bytes, State]:
        """Ask services; returns the answers that came in time, by the service's GUID prefix."""
        session = self.session

        def make(request: RequestId) -> StateRequest:
            return StateRequest(
                request,
                topic,
                tuple(partitions) or ("",),
                servers,
                Time.of_ns(round(hold_s * 1e9)),
                extensions.pack(**added),
            )

        with session.lock:
            session.check()
            number = session.ask(make)
        try:
            session.wait_until(lambda: self._all_answered(number, len(servers)), deadline_s)
            with session.lock:
                return dict(session.answers(number))
        finally:
            with session.lock:
                session.forget(number)

    def _pause(self, deadline_s: float) -> None:
        """Between questions that were answered at once."""
        self.session.wait_until(lambda: False, min(deadline_s, time.monotonic() + PAUSE_S))

    def _all_answered(self, number: int, addressed: int) -> bool:
        answered = {service for service, _ in self.session.answers(number)}
        return len(answered) >= addressed if addressed else self.session.state_services() <= answered

    def close(self) -> None:
        """End it, and its readers with it. Idempotent."""
        self.session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclasses.dataclass(frozen=True, slots=True)
class _Survey:
    """What the services said about what is stored.

    `matched` are the processes whose readers match the writer, where it is one of this process.
    """

    services: frozenset[bytes] = frozenset()
    answers: dict[bytes, State] = dataclasses.field(default_factory=dict)
    matched: frozenset[bytes] | None = None

    @property
    def required(self) -> list[State]:
        """The answers of nodes that must store it."""
        return [state for state in self.answers.values() if (_added(state) or {}).get("required")]

    def missing(self, nodes: int) -> list[str]:
        """What is missing, in words."""
        silent = len(self.services - self.answers.keys())
        found = [f"{silent} services do not answer"] if silent else []
        if len(self.required) < nodes:
            found.append(f"{len(self.required)} nodes store it, {nodes} are wanted")
        for service, state in self.answers.items():
            added = _added(state) or {}
            if not added.get("required"):
                continue
            if not added.get("stored"):
                found.append(f"{_name(state)}: {added.get('reason')}")
            elif self.matched is not None and service not in self.matched:
                found.append(f"{_name(state)}: its reader does not match the writer")
        return found


def _matched_with(writer: DataWriter) -> frozenset[bytes]:
    """GUID prefixes of the processes whose readers match a writer."""
    data = (writer.get_matched_subscription_data(one) for one in writer.get_matched_subscriptions())
    return frozenset(one.participant_key.bytes[:PREFIX_BYTES] for one in data if one is not None)


def _added(state: State) -> dict[str, Any] | None:
    return extensions.unpack(state.extensions)


def _name(state: State) -> str:
    added = _added(state) or {}
    return str(added.get("name", state.server.hex()))


def _written_by(writer: DataWriter) -> Written:
    qos = writer.get_parent().get_qos()
    partitions = tuple(qos[Policy.Partition].partitions) if Policy.Partition in qos else ()
    return Written(writer.topic.name, partitions, bytes(writer.guid.bytes))
