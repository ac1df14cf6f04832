"""Requests of an application to the durability services, besides data."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import TYPE_CHECKING, Any, Final, Self

from cyclonedds.domain import DomainParticipant
from cyclonedds.pub import DataWriter
from cyclonedds.qos import Policy

from engine.dds.client_protocol import endpoints
from engine.dds.client_protocol.extensions import DeletionOrder, StateRequestAddition
from engine.dds.client_protocol.messages import Completeness
from engine.dds.participant import Tag, TagRole
from ospltool.client import asking, errors
from ospltool.client.asking import added, ask, is_ours, name_of, pause
from ospltool.client.session import Session
from ospltool.client.subscribing import SubscriptionChange
from ospltool.client.surveys import CountedQuestion, NamedQuestion, StoredAt, Survey, Written

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.dds.client_protocol.messages import StateAnswer
    from ospltool.client.asking import Answers
    from ospltool.client.surveys import Question


# Discovery of a process takes a second or two. Longer delays each answer where a node hangs.
SETTLE_S: Final = 2.0
"""Most seconds to wait for nodes that others know and that this client has not discovered yet."""
# A look costs microseconds, and a match takes some tens of milliseconds.
MATCH_LOOK_S: Final = 0.01
"""Pause between two looks at the readers of a writer: its status and listener are the application's."""
_KEEPERS: Final = (TagRole.NODE, TagRole.PERSISTENCE)


def wait_until_kept(writer: DataWriter[Any], nodes: int = 1, timeout_s: float = 10.0) -> frozenset[str]:
    """Wait until nodes capture what an ordinary writer writes from now on.

    A node has a reader where it keeps data, and nowhere else; its USER_DATA says which node it is. The nodes
    need not serve clients. Persistence services count, too. A node that was killed counts until its lease
    is over. What a node captures is in its memory; see `DurabilityClient.wait_for_durable`.

    Args:
        writer: a writer of `cyclonedds`.
        nodes: least number of different nodes; at least 1.
        timeout_s: most seconds to wait.

    Returns:
        The ids of all nodes that capture it, each 32 hexadecimal digits.

    Raises:
        DurabilityTimeout: fewer nodes capture it when the time is over.
    """
    if nodes < 1:
        raise errors.PreconditionNotMet(f"nodes must be at least 1, not {nodes}")
    until_s = time.monotonic() + timeout_s
    while len(found := _keepers(writer)) < nodes:
        if time.monotonic() >= until_s:
            raise errors.DurabilityTimeout(
                f"{len(found)} of {nodes} nodes capture what the writer of topic {writer.topic.name!r} writes"
            )
        time.sleep(MATCH_LOOK_S)
    return found


def _keepers(writer: DataWriter[Any]) -> frozenset[str]:
    found = set()
    with contextlib.suppress(IndexError):  # of cyclonedds 11.0.1, if one more reader matches during the call
        for handle in writer.get_matched_subscriptions():
            reader = writer.get_matched_subscription_data(handle)  # None if it has just gone
            user_data = reader.qos[Policy.Userdata] if reader else None
            tag = Tag.decode(user_data.data) if user_data else None
            if tag is not None and tag.role in _KEEPERS:
                found.add(tag.node_id.hex())
    return frozenset(found)


@dataclasses.dataclass(frozen=True, slots=True)
class Deletion:
    """A deletion that was carried out.

    Attributes:
        until_ns: source time up to which it reaches.
        slow: node whose clock bounds it, because it is behind the time that was given; empty if none does.
        node: node that has it on its disk, and tells its fellows.
        refused: nodes that refuse this client for the secret of the domain, each with the reason: they do not
            communicate with that node either, so nothing is deleted there.
        confirmed: nodes that have deleted.
        unconfirmed: other nodes that `node` knows, also those that it has lost: they delete when they hear of
            it from a node that has.
        kept: the matching groups of the nodes that have confirmed, after the deletion.
    """

    until_ns: int
    slow: str = ""
    node: str = ""
    refused: Mapping[str, str] = dataclasses.field(default_factory=dict)
    confirmed: tuple[str, ...] = ()
    unconfirmed: tuple[str, ...] = ()
    kept: tuple[GroupCompleteness, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class GroupCompleteness:
    """The completeness of one group at one service.

    Attributes:
        service: id of the service, in hexadecimal digits.
        service_name: name of the node; empty for a service of another product.
        partition, topic: the group.
        completeness: completeness of the service's set.
        filtered: whether a content filter of the service withholds samples (//OpenSplice/Domain/Filters).
        samples: number of samples that the service keeps; None if it does not say.
    """

    service: str
    service_name: str
    partition: str
    topic: str
    completeness: Completeness
    filtered: bool = False
    samples: int | None = None


class DurabilityClient:
    """A client of the durability services of one domain. Methods may be called from any thread.

    It has a separate participant, which nodes recognize as a client: they leave the history of its readers
    to the library. It uses the Cyclone DDS domain of the application.

    Args:
        where: a domain id, or a participant of `cyclonedds` whose domain it is.
        partition: //OpenSplice/DurabilityService/ClientDurability/EntityNames/Partition of the services.
        uri: Cyclone DDS settings, for a process that has not used the domain before; None for
            CYCLONEDDS_URI, or loopback without it.
        secret: path of the file with the secret of the domain; None for OSPLTOOL_DOMAIN_SECRET, or none.

    Raises:
        SecretError: that file cannot be used.
        UnsupportedCyclone: the installed cyclonedds is another version than the one supported.
        DdsError: the participant cannot be made.
    """

    def __init__(
        self,
        where: DomainParticipant | int = 0,
        *,
        partition: str = endpoints.PARTITION,
        uri: str | None = None,
        secret: str | None = None,
    ) -> None:
        domain_id = where if isinstance(where, int) else where.domain_id
        self.session = Session(domain_id, partition, uri, secret)
        self.unanswered: tuple[str, ...] = ()
        """Names of the nodes that services know and that did not answer the last `durability_state`."""

    @property
    def refusing(self) -> dict[str, str]:
        """Nodes that are there and refuse this client for the secret of the domain, each with the reason."""
        return asking.refusals(self.session)

    def wait_for_service(self, timeout_s: float) -> None:
        """Wait until a durability service that serves clients is found.

        Raises:
            NoService: there is none in time.
        """
        self.session.wait_for_services(time.monotonic() + timeout_s)

    def durability_state(
        self, topic: str, partitions: Sequence[str] = (), *, timeout_s: float = 5.0
    ) -> tuple[GroupCompleteness, ...]:
        """Ask every service for the completeness of a topic's groups (durabilityStateRequest, guide 5.5.24).

        The topic may be an expression with `*` and `?`. A service that does not answer in time is left out.
        Services of another product answer an expression for one group only; they are asked for each
        discovered group. No partitions means the default one. `unanswered` names nodes that did not
        answer and that others know.

        Raises:
            NoService: there is no service in time.
            DurabilityTimeout: none of them has answered in time, so nothing is known.
            SecretMismatch: all services refuse this client.
        """
        deadline_s = time.monotonic() + timeout_s
        self.session.wait_for_services(deadline_s)
        half_s = (time.monotonic() + deadline_s) / 2
        answers, self.unanswered = self._survey(topic, partitions, half_s)
        if not answers:  # the other half is for a service that is slow to answer, or to say that it refuses
            answers, self.unanswered = self._survey(topic, partitions, deadline_s)
        states = [*answers.values()]
        if not states:
            asking.require_willing(self.session)
            with self.session.lock:
                names = ", ".join(sorted(map(self.session.name_of, self.session.state_services())))
            raise errors.DurabilityTimeout(
                f"no service has answered in time{names and f' ({names})'}; it may stand still, or have "
                "another secret of the domain"
            )
        if not all(map(is_ours, states)):
            states += self._resolved(topic, tuple(partitions) or ("",), deadline_s)
        return _completeness(states)

    def _survey(
        self, topic: str, partitions: Sequence[str], deadline_s: float, until_ns: int | None = None
    ) -> tuple[Answers, tuple[str, ...]]:
        """Ask all services, also those that are discovered meanwhile; return answers, and who gave none.

        Discovery takes a moment, and finds the services one by one: the fellows that the first ones name are
        waited for, for at most `SETTLE_S`. With `until_ns`, only services that have deleted up to this source
        time count.
        """
        session = self.session
        found: Answers = {}
        settled_s = min(deadline_s, time.monotonic() + SETTLE_S)
        while True:
            with session.lock:
                asked = session.state_services()

            def is_new(_: object = None, asked: frozenset[bytes] = asked) -> bool:
                return not session.state_services() <= asked

            answers = ask(
                session,
                topic,
                partitions,
                deadline_s,
                addition=StateRequestAddition(others=True),
                enough=is_new,
            )
            found |= {
                service: state
                for service, state in answers.items()
                if until_ns is None or _has_deleted(state, until_ns)
            }
            here, away = _others([*found.values(), *answers.values()])
            with session.lock:
                refusing, there = session.refusing(), session.state_services()
                silent = {session.name_of(service) for service in there - found.keys() - refusing.keys()}
            ids = {added(state).node for state in found.values()}
            missing = {name for node, name in here.items() if node not in ids}
            now_s = time.monotonic()
            if now_s >= settled_s or not (missing or silent):
                break
            session.wait_until(is_new, min(settled_s, now_s + asking.PAUSE_S) if silent else settled_s)
        names = {name_of(state) for state in found.values()} | {name for name, _ in refusing.values()}
        return found, tuple(sorted((missing | silent | away) - names))

    def _resolved(self, topic: str, partitions: Sequence[str], deadline_s: float) -> list[StateAnswer]:
        """Ask services of another product about each group that matches an expression."""
        with self.session.lock:
            groups = {one for each in partitions for one in self.session.groups(topic, each)}
        states: list[StateAnswer] = []
        for of, partition in sorted(groups):
            answer_s = min(deadline_s, time.monotonic() + asking.GRACE_S)
            answers = ask(self.session, of, (partition,), answer_s)
            states += [state for state in answers.values() if not is_ours(state)]
        return states

    def delete_historical_data(
        self,
        partition_expression: str,
        topic_expression: str,
        *,
        until_ns: int | None = None,
        timeout_s: float = 5.0,
    ) -> Deletion:
        """Delete the historical data of all groups that match, on every node (guide 5.5.18).

        It returns once one node has the deletion on its disk, if it has one, and all others have confirmed or
        `SETTLE_S` have passed. The others delete moments later, or when they meet that node again. Look at
        `Deletion.refused`: nodes whose secret of the domain differs from that of this client delete nothing.

        Readers keep the samples that they have received. Samples with a source time after `until_ns` stay;
        older ones that arrive later are not stored.

        Args:
            partition_expression: expression for partitions, with `*` and `?`.
            topic_expression: expression for topics, with `*` and `?`.
            until_ns: source time, by default now; never later than now, by the oldest clock of the nodes.
            timeout_s: most seconds to look for a node that deletes, and tells the others.

        Returns:
            How far it reaches, and whose clock bounds that.

        Raises:
            NoService: there is no service in time.
            SecretMismatch: all services refuse this client. Nothing has been deleted.
            UnsupportedService: only services of another product were found; OpenSplice deletes nothing for
                clients. Nothing has been deleted.
            DurabilityTimeout: no node has confirmed in time, for example because its disk refuses; data may
                nevertheless have been deleted. A node that is Lazy or not an aligner deletes nothing, since
                the others would restore it.
        """
        deadline_s = time.monotonic() + timeout_s
        self.session.wait_for_services(deadline_s)
        wanted_ns = time.time_ns() if until_ns is None else until_ns
        order = DeletionOrder(partition_expression, topic_expression, wanted_ns)
        reasons: set[str] = set()
        while time.monotonic() < deadline_s:
            answer_s = min(deadline_s, time.monotonic() + asking.GRACE_S)
            known = ask(self.session, topic_expression, (partition_expression,), answer_s)
            if not known:
                asking.require_willing(self.session)
            are_others = known.keys() >= self.session.state_services() and not any(
                map(is_ours, known.values())
            )
            if known and are_others:
                raise errors.UnsupportedService(
                    "only durability services of another product were found: they delete nothing for clients"
                )
            for node in sorted(state.server for state in known.values() if is_ours(state)):
                done, refusals = self._delete_at(node, order, deadline_s)
                if done is not None:
                    return done
                reasons |= refusals
            pause(self.session, deadline_s)
        why = f": {'; '.join(sorted(reasons))}" if reasons else ""
        raise errors.DurabilityTimeout(f"no node has confirmed that it deletes historical data{why}")

    def _delete_at(
        self, node: bytes, order: DeletionOrder, deadline_s: float
    ) -> tuple[Deletion | None, set[str]]:
        """Let one node delete, and wait for the others; return None and the reasons if it does not."""
        where = order.topic, (order.partition,)
        confirmed = ask(
            self.session,
            *where,
            min(deadline_s, time.monotonic() + asking.HOLD_S + asking.GRACE_S),
            hold_s=asking.HOLD_S,
            servers=(node,),
            addition=StateRequestAddition(delete=order),
        )
        for state in confirmed.values():
            told, refused = added(state), asking.refusals(self.session)
            if told.deleted:
                reached_ns, slow = told.until_ns, errors.printable(told.slow)
                if reached_ns is None or not 0 <= reached_ns <= order.until_ns:
                    reached_ns, slow = order.until_ns, ""  # it says nothing that can be
                settled_s = min(deadline_s, time.monotonic() + SETTLE_S)
                answers, unconfirmed = self._survey(*where, settled_s, reached_ns)
                name = name_of(state)
                return Deletion(
                    reached_ns,
                    slow,
                    name,
                    refused,
                    tuple(sorted({name, *map(name_of, answers.values())})),
                    tuple(one for one in unconfirmed if one != name),
                    _completeness([*answers.values()]),
                ), set()
        return None, {reason for one in confirmed.values() if (reason := added(one).reason)}

    def register_durable_subscription(
        self,
        topic: str,
        name: str,
        *,
        quorum: int = 1,
        partitions: Sequence[str] = (),
        timeout_s: float = 5.0,
    ) -> None:
        """Create a durable subscription at every persistence service that does not have it.

        From now on, samples of the topic are kept until `quorum` readers of this name have acknowledged them;
        it begins with the last values. The smaller of two quorums counts.

        Args:
            topic: name of the topic.
            name: name of the durable subscription.
            quorum: readers that must acknowledge a sample.
            partitions: names or expressions; empty for the default partition.
            timeout_s: most seconds to wait.

        Raises:
            InvalidSubscription: a name, or the quorum, is out of range.
            NoPersistenceService: none was found in time.
            DurabilityTimeout: some have not confirmed in time; the others have it nevertheless.
        """
        self._run(topic, name, quorum, partitions, timeout_s, deletes=False)

    def delete_durable_subscription(
        self, topic: str, name: str, *, partitions: Sequence[str] = (), timeout_s: float = 5.0
    ) -> None:
        """Delete the durable subscription `name` at every persistence service; close its readers first.

        They tell absent services later. Partitions, other arguments and errors are as for
        `register_durable_subscription`.
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
        errand = SubscriptionChange(self.session, topic, tuple(partitions), name, quorum, deletes=deletes)
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
        Nodes that do not serve clients cannot be asked, and do not count. Acknowledgments of readers do not
        matter.

        Args:
            written: samples by name, which `DurableWriter.write` returns. Or a writer of this process: its
                samples are known by their number only, so a node must have captured all of them since its
                start, or have of this writer what such a node has. The writer must not be written to
                meanwhile.
            timeout_s: most seconds to wait; above 0.
            nodes: least number of nodes that must have stored them, in each partition; at least 1. Nodes
                whose policy keeps PERSISTENT samples in memory do not count. Nor do nodes that do not share
                their sets: those that are not aligners of the name-space, and those whose set a merge
                policy left different from the others.

        Returns:
            The nodes that have stored them.

        Raises:
            NoService: there is no service in time.
            SecretMismatch: all services refuse this client.
            GroupNotFound: there are services, but none must store them.
            NotStored: not in time; `missing` names samples, nodes and reasons.
            OutdatedService: a node that must store them has a version that cannot answer for samples.
            PreconditionNotMet: the writer is VOLATILE or TRANSIENT_LOCAL, or has been deleted.
            ValueError: `nodes` is below 1, or `timeout_s` is not above 0.
        """
        if nodes < 1:
            raise ValueError(f"nodes must be at least 1, not {nodes}")
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
        # By name: answers come in any order, and applications compare results.
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
                addition=StateRequestAddition(stored=question.asked()),
            )
            if left_s < asking.HOLD_S + asking.GRACE_S:  # too short to call a service silent
                answers = {**{one: found.answers[one] for one in services & found.answers.keys()}, **answers}
            if answers or not found.answers:
                found = Survey.from_answers(question, services, answers)
            missing = found.missing(nodes)
            if not missing:
                return found.stored()
            if not answers:
                asking.require_willing(self.session)
            if time.monotonic() >= deadline_s:
                break
            pause(self.session, deadline_s)
        where = f"topic '{question.topic}' in {', '.join(map(repr, question.partitions))}"
        if found.services <= found.answers.keys() and not found.required:
            raise errors.GroupNotFound(f"no node stores {where}")
        raise errors.NotStored(f"{where} is not stored everywhere: {'; '.join(map(str, missing))}", missing)

    def close(self) -> None:
        """Close the client and its readers. Idempotent."""
        self.session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _completeness(states: Sequence[StateAnswer]) -> tuple[GroupCompleteness, ...]:
    found = {
        GroupCompleteness(
            state.server.hex(),
            told.name,
            group.partition,
            group.topic,
            Completeness(min(group.completeness, Completeness.COMPLETE)),
            place in told.filtered,
            told.samples[place] if place < len(told.samples) else None,
        )
        for state in states
        for told in (added(state),)
        for place, group in enumerate(state.groups)
    }
    # By name: answers come in any order, and applications compare results.
    return tuple(sorted(found, key=lambda one: (one.partition, one.service_name, one.service, one.topic)))


def _has_deleted(state: StateAnswer, until_ns: int) -> bool:
    """Return whether a service keeps nothing of the groups of its answer that a deletion covers."""
    floors = added(state).floors
    return len(floors) == len(state.groups) and all(floor is None or floor >= until_ns for floor in floors)


def _others(states: Sequence[StateAnswer]) -> tuple[dict[str, str], set[str]]:
    """Return the nodes that services hear, names by id, and the names of those that they hear no more."""
    told = [added(state) for state in states]
    here = {node: errors.printable(name) for one in told for node, name in one.fellows}
    return here, {errors.printable(name) for one in told for name in one.away}
