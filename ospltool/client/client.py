"""What an application asks of the durability services besides data."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any, Self

from cyclonedds.domain import DomainParticipant
from cyclonedds.pub import DataWriter

from engine.dds.client_protocol import endpoints
from engine.dds.client_protocol.messages import Completeness
from ospltool.client import asking, errors
from ospltool.client.asking import added, ask, pause
from ospltool.client.session import Session
from ospltool.client.subscribing import Errand
from ospltool.client.surveys import CountedQuestion, NamedQuestion, StoredAt, Survey, Written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.dds.client_protocol.messages import State
    from ospltool.client.surveys import Question


@dataclasses.dataclass(frozen=True, slots=True)
class GroupCompleteness:
    """What one service has of one group.

    Attributes:
        service: its id, in hexadecimal digits.
        service_name: the name of the node; empty where the service is of another product.
        partition, topic: the group.
        completeness: of what the service keeps.
        filtered: whether a content filter of the service withholds a part (//OpenSplice/Domain/Filters).
    """

    service: str
    service_name: str
    partition: str
    topic: str
    completeness: Completeness
    filtered: bool = False


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

        The topic may be an expression with `*` and `?`.
        A service that is there but does not answer in time is left out. Services of another product answer an
        expression for one group only; they are asked for each group that discovery knows.

        Raises:
            NoService: there is no service in time.
        """
        deadline_s = time.monotonic() + timeout_s
        self.session.wait_for_services(deadline_s)
        half_s = (time.monotonic() + deadline_s) / 2
        states = [*ask(self.session, topic, partitions, half_s).values()]
        if any(not added(state) for state in states):
            states += self._resolved(topic, tuple(partitions) or ("",), deadline_s)
        found = {
            GroupCompleteness(
                state.server.hex(),
                str(added(state).get("name", "")),
                group.partition,
                group.topic,
                Completeness(min(group.completeness, Completeness.COMPLETE)),
                place in _places(added(state).get("filtered")),
            )
            for state in states
            for place, group in enumerate(state.groups)
        }
        return tuple(sorted(found, key=lambda one: (one.partition, one.service, one.topic)))

    def _resolved(self, topic: str, partitions: Sequence[str], deadline_s: float) -> list[State]:
        """What services of another product say of each group that an expression stands for."""
        with self.session.lock:
            groups = {one for each in partitions for one in self.session.groups(topic, each)}
        states: list[State] = []
        for of, partition in sorted(groups):
            answer_s = min(deadline_s, time.monotonic() + asking.GRACE_S)
            answers = ask(self.session, of, (partition,), answer_s)
            states += [state for state in answers.values() if not added(state)]
        return states

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
            UnsupportedService: only services of another product are there; OpenSplice deletes nothing for
                clients. Nothing has been deleted.
            DurabilityTimeout: no node has confirmed in time; data may have been deleted all the same. A node
                that is Lazy or no aligner deletes nothing: the others would bring it back.
        """
        deadline_s = time.monotonic() + timeout_s
        self.session.wait_for_services(deadline_s)
        order = {
            "partition": partition_expression,
            "topic": topic_expression,
            "until_ns": time.time_ns() if until_ns is None else until_ns,
        }
        reasons: set[str] = set()
        while time.monotonic() < deadline_s:
            answer_s = min(deadline_s, time.monotonic() + asking.GRACE_S)
            known = ask(self.session, topic_expression, (partition_expression,), answer_s)
            if (
                known
                and not any(map(added, known.values()))
                and known.keys() >= self.session.state_services()
            ):
                raise errors.UnsupportedService(
                    "only durability services of another product were found: they delete nothing for clients"
                )
            for node in sorted(state.server for state in known.values() if added(state)):
                confirmed = ask(
                    self.session,
                    topic_expression,
                    (partition_expression,),
                    min(deadline_s, time.monotonic() + asking.GRACE_S),
                    servers=(node,),
                    values={"delete": order},
                )
                if any(added(state).get("deleted") for state in confirmed.values()):
                    return
                reasons |= {str(reason) for one in confirmed.values() if (reason := added(one).get("reason"))}
            pause(self.session, deadline_s)
        why = f": {'; '.join(sorted(reasons))}" if reasons else ""
        raise errors.DurabilityTimeout(f"no node has confirmed that it deletes historical data{why}")

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
        self, written: DataWriter[Any] | Written, timeout_s: float, *, nodes: int = 1
    ) -> tuple[StoredAt, ...]:
        """Wait until samples are stored on every node that must store them.

        Each node answers for the samples themselves, from its set and its disk: a sample counts when it is in
        the node's complete set (or newer samples have taken its place there) and, where policy and writer
        say PERSISTENT, on its disk. A node must store a topic and partition when one of its name-spaces
        contains them, its policy keeps them, and it has begun to (a Lazy node that nobody asked has not).
        Nodes that do not serve clients cannot be asked, and are not waited for. It does not matter whether
        readers have acknowledged.

        Args:
            written: samples by name, which `DurableWriter.write` returns. Or a writer of this process: its
                samples are known by their number only, so a node must have captured all of them since its
                start, or have of this writer what such a node has. The writer must not be written to
                meanwhile.
            timeout_s: how long at most; above 0.
            nodes: how many nodes must have stored them at least, in each partition; at least 1. Nodes that
                keep PERSISTENT samples in memory, because their policy says so, do not count. Nor do nodes
                that give nothing away: those that are no aligners of the name-space, and those whose set a
                merge policy left different from the others.

        Returns:
            The nodes that have.

        Raises:
            NoService: there is no service in time.
            GroupNotFound: there are services, but none must store it.
            NotStored: not in time; `missing` says which samples, where and why.
            OutdatedService: a node that must store it is of a version that cannot answer for samples.
            PreconditionNotMet: the writer is VOLATILE or TRANSIENT_LOCAL, or has been deleted.
            ValueError: `nodes` is below 1, or `timeout_s` is not above 0.
        """
        if nodes < 1:
            raise ValueError(f"nodes must be at least 1, not {nodes}: no node is no storage")
        if not timeout_s > 0:
            raise ValueError(f"timeout_s must be above 0, not {timeout_s}: an answer takes time")
        deadline_s = time.monotonic() + timeout_s
        self.session.wait_for_services(deadline_s)
        questions: list[Question] = (
            list(NamedQuestion.parts(written)) if isinstance(written, Written) else [CountedQuestion(written)]
        )
        stored: dict[str, StoredAt] = {}
        for number, question in enumerate(questions):
            found = {one.service: one for one in self._wait_for(question, nodes, deadline_s)}
            stored = found if not number else {key: found[key] for key in stored.keys() & found.keys()}
        return tuple(sorted(stored.values(), key=lambda one: one.service_name))

    def _wait_for(self, question: Question, nodes: int, deadline_s: float) -> list[StoredAt]:
        """Wait until the answer to one question is yes."""
        found = Survey()
        while True:
            services = self.session.state_services()
            now_s = time.monotonic()
            left_s = max(0.0, deadline_s - now_s)
            answers = ask(
                self.session,
                question.topic,
                question.partitions,
                min(deadline_s, now_s + asking.HOLD_S + asking.GRACE_S),
                hold_s=min(asking.HOLD_S, left_s / 2),  # the answer must still be in time
                blocks=question.blocks(),
                values=question.values(),
            )
            if left_s < asking.HOLD_S + asking.GRACE_S:  # too little to call anybody silent
                answers = {**{one: found.answers[one] for one in services & found.answers.keys()}, **answers}
            if answers or not found.answers:
                found = Survey.of(question, services, answers)
            missing = found.missing(nodes)
            if not missing:
                return found.stored()
            if time.monotonic() >= deadline_s:
                break
            pause(self.session, deadline_s)
        where = f"topic '{question.topic}' in {', '.join(map(repr, question.partitions))}"
        if found.services <= found.answers.keys() and not found.required:
            raise errors.GroupNotFound(f"no node stores {where}")
        raise errors.NotStored(f"{where} is not stored everywhere: {'; '.join(map(str, missing))}", missing)

    def close(self) -> None:
        """End it, and its readers with it. Idempotent."""
        self.session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _places(told: object) -> set[int]:
    """Whole numbers that a service told; another product, or an older release, tells none."""
    return {one for one in told if isinstance(one, int)} if isinstance(told, list) else set()
