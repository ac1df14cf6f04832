"""Questions to nodes whether they have stored samples, and conclusions from the answers."""

from __future__ import annotations

import collections
import dataclasses
from typing import TYPE_CHECKING, Any, Final

from cyclonedds.pub import DataWriter
from cyclonedds.qos import Policy

from engine.dds import abi
from engine.dds.cdr import Malformed
from engine.dds.client_protocol.extensions import StoredQuestion
from engine.dds.client_protocol.naming import (
    ANSWERS,
    NAMES,
    VERDICTS,
    SampleName,
    SampleVerdict,
    first_names,
    pack_names,
    unpack_verdicts,
)
from ospltool.client.asking import added, name_of
from ospltool.client.errors import (
    MissingSamples,
    OutdatedService,
    PreconditionNotMet,
    Reason,
    counted,
    printable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from engine.dds.client_protocol.extensions import StateAddition
    from engine.dds.client_protocol.messages import StateAnswer

# For an error message; the answers have all.
MAX_SAID: Final = 10
"""Most samples that `MissingSamples` names."""
_KEPT: Final = (Policy.Durability.Transient, Policy.Durability.Persistent)
_REASONS: Final = {
    SampleVerdict.MISSING: Reason.NEVER_ARRIVED,
    SampleVerdict.REFUSED: Reason.REFUSED,
    SampleVerdict.IN_MEMORY: Reason.NOT_ON_DISK,
    SampleVerdict.DELETED: Reason.DELETED,
}

_NO_ROOM: Final = "too large, or the limits of DURABILITY_SERVICE leave no room"
_FORGOTTEN: Final = "they never arrived, or were disposed and forgotten"


def is_kept(writer: DataWriter[Any]) -> bool:
    """Return whether nodes keep what a writer writes: it is TRANSIENT or PERSISTENT."""
    qos = writer.get_qos()
    return Policy.Durability in qos and qos[Policy.Durability] in _KEPT


def partitions_of(writer: DataWriter[Any]) -> tuple[str, ...]:
    """Return the partitions of a writer; empty for the default one."""
    publisher = writer.get_parent().get_qos()
    return tuple(publisher[Policy.Partition].partitions) if Policy.Partition in publisher else ()


@dataclasses.dataclass(frozen=True, slots=True)
class Written:
    """Samples by name, written by any writers in any process.

    Attributes:
        topic: name of the topic.
        partitions: names of their partitions; empty for the default partition.
        samples: names that `DurableWriter.write` returned.
    """

    topic: str
    partitions: tuple[str, ...]
    samples: tuple[SampleName, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class StoredAt:
    """A node that has stored the samples.

    Attributes:
        service: id of the node, in hexadecimal digits.
        service_name: name of the node.
        on_disk: False if they are in memory only, because the topic is transient or by the node's policy.
    """

    service: str
    service_name: str
    on_disk: bool = True


class _Question:
    """A question whether nodes have stored samples of a topic; no partitions means the default one."""

    def __init__(self, topic: str, partitions: Sequence[str]) -> None:
        self.topic = topic
        self.partitions = tuple(partitions) or ("",)

    def asked(self) -> StoredQuestion:
        """Return the question as an addition to the request."""
        return StoredQuestion(ANSWERS)

    def blocks(self) -> dict[str, bytes]:
        """Return the binary part of the request."""
        return {}

    def _missed(self, state: StateAnswer, reason: Reason, count: int = 0, detail: str = "") -> MissingSamples:
        return MissingSamples(self.topic, name_of(state), reason, count, detail=detail)


class NamedQuestion(_Question):
    """A question about samples by name in these `partitions`, as many as fit into one question."""

    def __init__(self, topic: str, partitions: Sequence[str], names: Sequence[SampleName]) -> None:
        super().__init__(topic, partitions)
        self.names = tuple(names)

    @classmethod
    def parts(cls, written: Written) -> Iterator[NamedQuestion]:
        """Yield the questions about all samples."""
        names = written.samples
        while names:
            count = first_names(names)
            yield cls(written.topic, written.partitions, names[:count])
            names = names[count:]

    def blocks(self) -> dict[str, bytes]:
        """Return the names."""
        return {NAMES: pack_names(self.names)}

    def verdicts(self, state: StateAnswer) -> tuple[SampleVerdict, ...]:
        """Return a node's verdict on each name; MISSING for all if its answer is malformed."""
        try:
            return unpack_verdicts(state.extensions.get(VERDICTS, b""), len(self.names))
        except Malformed:
            return (SampleVerdict.MISSING,) * len(self.names)

    def missing(self, answers: Mapping[bytes, StateAnswer]) -> dict[bytes, list[MissingSamples]]:
        """Return what is missing at each node that must store the samples."""
        return {service: list(self._missing_at(state)) for service, state in answers.items()}

    def _missing_at(self, state: StateAnswer) -> Iterator[MissingSamples]:
        by_reason: dict[Reason, list[SampleName]] = collections.defaultdict(list)
        told = added(state)
        for name, verdict in zip(self.names, self.verdicts(state), strict=True):
            if not verdict.is_kept:
                reason = _REASONS[verdict]
                if not told.complete and verdict is not SampleVerdict.DELETED:
                    reason = Reason.NOT_COMPLETE
                elif verdict is SampleVerdict.MISSING and name.source_time_ns <= told.forgotten_ns:
                    reason = Reason.CANNOT_TELL
                by_reason[reason].append(name)
        detail = printable(told.reason)
        for reason, names in sorted(by_reason.items()):
            said = _FORGOTTEN if reason is Reason.CANNOT_TELL else detail
            if reason is Reason.REFUSED:
                limits = printable(told.limits)
                said = f"{_NO_ROOM}: {limits}" if limits else "too large"
            yield MissingSamples(
                self.topic, name_of(state), reason, len(names), tuple(sorted(names)[:MAX_SAID]), said
            )


class CountedQuestion(_Question):
    """A question about all samples of a writer of this process, without names.

    A node that captured as many samples as the writer wrote missed none. Another node has all of them, too,
    if its samples of the writer equal those of such a node.

    Raises:
        PreconditionNotMet: the writer's durability keeps no samples, or it has been deleted.
    """

    def __init__(self, writer: DataWriter[Any]) -> None:
        if not is_kept(writer):
            raise PreconditionNotMet("the writer is neither TRANSIENT nor PERSISTENT, so nothing is kept")
        super().__init__(writer.topic.name, partitions_of(writer))
        self._entity: int = writer._ref
        self._guid = abi.guid_of(self._entity)
        self._before = self.count()

    def count(self) -> int:
        """Return how many samples have been written."""
        count = abi.sequence_of(self._entity)
        if count < 0:
            raise PreconditionNotMet("the writer has been deleted")
        return count

    def asked(self) -> StoredQuestion:
        """Return the question as an addition to the request."""
        self._before = self.count()
        return StoredQuestion(ANSWERS, self._guid, self._before)

    def missing(self, answers: Mapping[bytes, StateAnswer]) -> dict[bytes, list[MissingSamples]]:
        """Return what is missing at each node that must store the samples."""
        known = {service: added(state) for service, state in answers.items()}
        now = self.count()
        has_seen_all = {
            service for service, told in known.items() if told.captured == now and not told.refused
        }
        contents = [
            (told.partitions, told.content)
            for service, told in known.items()
            if service in has_seen_all and told.content is not None
        ]
        kept_out = next((told for told in known.values() if told.kept_out), None)
        is_deleted = any(known[service].deleted for service in has_seen_all)
        found: dict[bytes, list[MissingSamples]] = {}
        for service, state in answers.items():
            told = known[service]
            if is_deleted or told.deleted:
                found[service] = [self._missed(state, Reason.DELETED)]
                continue
            if kept_out is not None:
                said = (
                    "limits of DURABILITY_SERVICE have kept out samples of the topic: "
                    f"{printable(kept_out.limits)}"
                )
                found[service] = [self._missed(state, Reason.CANNOT_TELL, detail=said)]
                continue
            has_all = service in has_seen_all or (told.partitions, told.content) in contents
            most = max((whole[0] for where, whole in contents if where == told.partitions), default=0)
            lacks = most - told.content[0] if told.content is not None else 0
            found[service] = list(self._missing_at(state, told, now, has_all=has_all, lacks=lacks))
        return found

    def _missing_at(
        self, state: StateAnswer, told: StateAddition, now: int, *, has_all: bool, lacks: int
    ) -> Iterator[MissingSamples]:
        detail = printable(told.reason)
        if not told.complete:
            yield self._missed(state, Reason.NOT_COMPLETE, now, detail)
        elif detail or (has_all and not told.written):
            yield self._missed(state, Reason.NOT_ON_DISK, now, detail or "the disk is behind")
        elif told.refused:
            yield self._missed(state, Reason.REFUSED, told.refused, "too large")
        elif not has_all and now != self._before:
            yield self._missed(state, Reason.UNDECIDED, detail="written to meanwhile")
        elif not has_all:
            said = f"it captured {told.captured} of {now}, and is not known to have the rest from others"
            reason = Reason.NEVER_ARRIVED if lacks > 0 else Reason.CANNOT_TELL
            yield self._missed(state, reason, max(0, lacks), said)


Question = NamedQuestion | CountedQuestion


@dataclasses.dataclass(frozen=True, slots=True)
class Survey:
    """The answers to one question."""

    question: Question | None = None
    services: frozenset[bytes] = frozenset()
    answers: dict[bytes, StateAnswer] = dataclasses.field(default_factory=dict)
    missed: dict[bytes, list[MissingSamples]] = dataclasses.field(default_factory=dict)

    @classmethod
    def from_answers(
        cls, question: Question, services: frozenset[bytes], answers: Mapping[bytes, StateAnswer]
    ) -> Survey:
        """Judge the answers; `services` are all that were asked.

        Raises:
            OutdatedService: a node that must keep it is of another version.
        """
        required = {service: state for service, state in answers.items() if added(state).required}
        for state in required.values():
            if added(state).answers != ANSWERS:
                raise OutdatedService(
                    f"node {name_of(state)} is of another version than this library and does not answer for "
                    f"samples; update it, or the library"
                )
        return cls(question, services, dict(answers), question.missing(required))

    @property
    def required(self) -> list[StateAnswer]:
        """Answers of nodes that must store the samples."""
        return [state for service, state in self.answers.items() if service in self.missed]

    def stored(self) -> list[StoredAt]:
        """Return the nodes that have stored all samples."""
        return [
            StoredAt(state.server.hex(), name_of(state), added(state).on_disk)
            for service, state in self.answers.items()
            if self.missed.get(service) == [] and not _not_shared(state)
        ]

    def missing(self, nodes: int) -> tuple[MissingSamples, ...]:
        """Return what is missing until all nodes that must, and at least `nodes`, have stored the samples."""
        assert self.question is not None
        topic = self.question.topic
        # By node, so that the same answers give the same message.
        found = sorted((each for missed in self.missed.values() for each in missed), key=lambda one: one.node)
        silent = len(self.services - self.answers.keys())
        if silent:
            verb = "has" if silent == 1 else "have"
            said = f"{counted(silent, 'service')} {verb} not answered in the given time"
            found.append(MissingSamples(topic, "", Reason.NO_ANSWER, 0, detail=said))
        if len(self._counted()) < nodes:
            found += [each for state in self.required for each in uncounted(topic, state)]
        for partition in self.question.partitions:
            count = sum(partition in added(state).partitions for state in self._counted())
            if count < nodes:
                verb = "stores" if count == 1 else "store"
                said = f"{counted(count, 'node')} {verb} it in partition '{partition}', {nodes} are wanted"
                found.append(MissingSamples(topic, "", Reason.TOO_FEW_NODES, 0, detail=said))
        return tuple(found)

    def _counted(self) -> list[StateAnswer]:
        """Return the nodes that keep samples as durably as their QoS demands, and share them."""
        return [state for state in self.required if may_count(state)]


def may_count(state: StateAnswer) -> bool:
    """Return whether a node keeps PERSISTENT samples on its disk, and shares its set."""
    return not added(state).weaker and not _not_shared(state)


def uncounted(topic: str, state: StateAnswer) -> Iterator[MissingSamples]:
    """Yield the reasons for which a node does not count."""
    if added(state).weaker:
        yield MissingSamples(topic, name_of(state), Reason.MEMORY_ONLY, 0)
    if _not_shared(state):
        yield MissingSamples(topic, name_of(state), Reason.NOT_SHARED, 0, detail=_not_shared(state))


def given_up(topic: str, why: SampleVerdict, count: int, names: tuple[SampleName, ...]) -> MissingSamples:
    """Return what is missing for good: `count` samples of a topic, the first of them by name."""
    return MissingSamples(
        topic, "", _REASONS[why], count, names, _NO_ROOM if why is SampleVerdict.REFUSED else ""
    )


def _not_shared(state: StateAnswer) -> str:
    """Return a node's reason not to share its set; empty if it shares."""
    return printable(added(state).not_shared)
