"""The rules of the diagnosis: the QoS of applications, topic by topic, and what the nodes report."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

from engine.core import expressions
from engine.core.name_spaces import Element, Group
from engine.dataset.groups import KEEP_ALL, DurabilityKind
from engine.dds.abi import INFINITE_NS
from engine.dds.qos import incompatibilities
from engine.runtime.monitor import NameSpaceView, NodeSnapshot, is_nowhere
from ospltool.doctor.picture import DoctorCause, DoctorFinding, DomainPicture, Endpoint, TopicView, Weight
from ospltool.doctor.set_rules import history_cut, kept_in_memory, limited
from ospltool.doctor.type_rules import different_types
from ospltool.output.text import plural

_TRANSIENT = DurabilityKind.TRANSIENT
_PERIODIC = "; by its DEADLINE each instance is updated periodically, and the next update makes up for it"

Key = TypeVar("Key", bound=Hashable)
Endpoints = dict[str, Endpoint]
"""By GUID."""


def topic_findings(topic: TopicView) -> Iterator[DoctorFinding]:
    """Find what keeps the endpoints of a topic from becoming consistent."""
    yield from _reliability(topic)
    yield from _durability(topic)
    yield from _destination_order(topic)
    yield from different_types(topic)
    yield from _pairs(topic)
    yield from _writers_disagree(topic)
    yield from _dies_with_writer(topic)


def _grouped(
    endpoints: Iterable[Endpoint], key: Callable[[Endpoint], Key]
) -> dict[Key, tuple[Endpoint, ...]]:
    found: dict[Key, list[Endpoint]] = {}
    for endpoint in endpoints:
        found.setdefault(key(endpoint), []).append(endpoint)
    return {each: tuple(members) for each, members in found.items()}


def _periodic(topic: TopicView) -> Callable[[Endpoint], bool]:
    """Tell whether periodic updates replace what an endpoint misses.

    A writer promises them itself; a reader needs the promise of every writer that it meets.
    """
    _, promised = _meeting([each for each in topic.writers if each.is_periodic], topic.readers)
    _, others = _meeting([each for each in topic.writers if not each.is_periodic], topic.readers)

    def is_periodic(endpoint: Endpoint) -> bool:
        if endpoint.is_writer:
            return endpoint.is_periodic
        return endpoint.guid in promised and endpoint.guid not in others

    return is_periodic


def _of_policy(
    topic: TopicView,
    wrong: Iterable[Endpoint],
    cause: DoctorCause,
    say: Callable[[Endpoint], str],
    advice: str,
) -> Iterator[DoctorFinding]:
    """Make one finding for all endpoints with the same fault."""
    is_periodic = _periodic(topic)
    for (text, periodic), members in _grouped(wrong, lambda each: (say(each), is_periodic(each))).items():
        weight = Weight.INFO if periodic else Weight.WARNING
        message = text + _PERIODIC if periodic else text
        yield DoctorFinding(cause, weight, topic.name, message, advice, members)


def _reliability(topic: TopicView) -> Iterator[DoctorFinding]:
    def say(endpoint: Endpoint) -> str:
        if endpoint.is_writer:
            return "offers BEST_EFFORT: a sample that is lost on the way is never sent again"
        return "requests BEST_EFFORT: a sample that is lost on the way is never asked for again"

    wrong = [each for each in topic.writers + topic.readers if not each.qos.reliable]
    return _of_policy(
        topic, wrong, DoctorCause.RELIABILITY, say, "RELIABILITY RELIABLE on writers and readers"
    )


def _durability(topic: TopicView) -> Iterator[DoctorFinding]:
    def say(endpoint: Endpoint) -> str:
        name = endpoint.qos.durability.name
        if not endpoint.is_writer:
            return f"requests {name}: joining late, it does not get what was written before"
        if endpoint.qos.durability is DurabilityKind.TRANSIENT_LOCAL:
            return f"offers {name}: who joins after this writer is gone never gets what it wrote"
        return f"offers {name}: who joins late never gets what was written before"

    endpoints = topic.writers + tuple(each for each in topic.readers if not each.is_library)
    wrong = [each for each in endpoints if each.qos.durability < _TRANSIENT]
    advice = "DURABILITY TRANSIENT or PERSISTENT on writers and readers, and a durability service"
    return _of_policy(topic, wrong, DoctorCause.DURABILITY, say, advice)


def _destination_order(topic: TopicView) -> Iterator[DoctorFinding]:
    """Periodic updates do not heal a wrong order: of two writers' last samples one must win everywhere."""
    readers = [each for each in topic.readers if not each.is_library and not each.qos.by_source_timestamp]
    writers = [each for each in topic.writers if not each.qos.by_source_timestamp]
    advice = "DESTINATION_ORDER BY_SOURCE_TIMESTAMP on writers and readers, and synchronized clocks"
    if writers:
        message = (
            "offers BY_RECEPTION_TIMESTAMP: no reader can ask it for BY_SOURCE_TIMESTAMP, and a durability "
            "service orders its samples by their arrival"
        )
        yield DoctorFinding(
            DoctorCause.DESTINATION_ORDER, Weight.WARNING, topic.name, message, advice, tuple(writers)
        )
    if readers:
        message = (
            "requests BY_RECEPTION_TIMESTAMP: what arrives last is taken for the latest, also a sample that "
            "was delayed, sent again or delivered by a durability service"
        )
        yield DoctorFinding(
            DoctorCause.DESTINATION_ORDER, Weight.WARNING, topic.name, message, advice, tuple(readers)
        )


def _pairs(topic: TopicView) -> Iterator[DoctorFinding]:
    """Writers and readers that would match but for their QoS or type; alike ones are compared once."""

    def traits(endpoint: Endpoint) -> Hashable:
        return endpoint.qos, endpoint.type_name

    found: dict[tuple[DoctorCause, str], dict[str, Endpoint]] = {}
    for writers in _grouped(topic.writers, traits).values():
        for readers in _grouped(topic.readers, traits).values():
            refusals = tuple(_refusals(writers[0], readers[0]))
            if refusals:
                met_writers, met_readers = _meeting(writers, readers)
                for refusal in refusals if met_writers else ():
                    found.setdefault(refusal, {}).update(met_writers | met_readers)
    for (cause, text), sides in found.items():
        both = sorted(sides.values(), key=lambda each: (not each.is_writer, each.guid))
        yield DoctorFinding(cause, Weight.ERROR, topic.name, text, _PAIR_ADVICE[cause], tuple(both))


_PAIR_ADVICE = {
    DoctorCause.INCOMPATIBLE_DURABILITY: "offer at least the DURABILITY that is requested "
    "(VOLATILE < TRANSIENT_LOCAL < TRANSIENT < PERSISTENT)",
    DoctorCause.INCOMPATIBLE_QOS: "offer at least what is requested",
}


def _refusals(writer: Endpoint, reader: Endpoint) -> Iterator[tuple[DoctorCause, str]]:
    if writer.type_name != reader.type_name:
        return  # `different_types` says so
    for policy in incompatibilities(writer.qos, reader.qos):
        is_durability = policy.startswith("DURABILITY:")
        cause = DoctorCause.INCOMPATIBLE_DURABILITY if is_durability else DoctorCause.INCOMPATIBLE_QOS
        yield cause, f"do not match ({policy}), so no data flows"


_THE_FIRST = "what a service keeps and gives to late joiners depends on which of them it saw first"
_THE_HIGHEST = "while no topic tells it, a service keeps all data as the highest"


def _writers_disagree(topic: TopicView) -> Iterator[DoctorFinding]:
    """The built-in reader and writer have one QoS: the topic's, where it is told, else the first writer's.

    Of the durability of writers the highest counts.
    """
    durable = [each for each in topic.writers if each.qos.durability >= _TRANSIENT]
    for policy, value in _SERVICE_POLICIES.items():
        values = _grouped(durable, value)
        if len(values) > 1:
            effect = _THE_HIGHEST if policy == "DURABILITY" else _THE_FIRST
            yield DoctorFinding(
                DoctorCause.WRITERS_DISAGREE,
                Weight.WARNING,
                topic.name,
                f"differ in {policy} ({', '.join(sorted(values))}): {effect}",
                "the QoS of the topic for all of its writers",
                tuple(durable),
            )


def _history(endpoint: Endpoint) -> str:
    depth = endpoint.qos.service_history_depth
    return "KEEP_ALL" if depth == KEEP_ALL else f"KEEP_LAST {depth}"


def _delay(endpoint: Endpoint) -> str:
    delay = endpoint.qos.service_cleanup_delay_ns
    return "infinite" if delay == INFINITE_NS else f"{delay / 1e9:g} s"


def _order(endpoint: Endpoint) -> str:
    return f"BY_{'SOURCE' if endpoint.qos.by_source_timestamp else 'RECEPTION'}_TIMESTAMP"


_SERVICE_POLICIES: dict[str, Callable[[Endpoint], str]] = {
    "DURABILITY": lambda each: each.qos.durability.name,
    "DESTINATION_ORDER": _order,
    "DURABILITY_SERVICE history": _history,
    "service_cleanup_delay": _delay,
}


def _dies_with_writer(topic: TopicView) -> Iterator[DoctorFinding]:
    """Autodispose makes of a lost link a dispose, and a service purges what is disposed and has no writer."""
    wrong = [
        each
        for each in topic.writers
        if each.qos.durability >= _TRANSIENT
        and each.qos.autodispose
        and each.qos.service_cleanup_delay_ns != INFINITE_NS
    ]
    for delay, writers in _grouped(wrong, _delay).items():
        message = (
            "has autodispose_unregistered_instances: when it ends or is lost its instances are disposed, and "
            f"purged service_cleanup_delay ({delay}) later"
        )
        advice = "autodispose_unregistered_instances FALSE where data must outlive its writer"
        yield DoctorFinding(DoctorCause.DIES_WITH_WRITER, Weight.INFO, topic.name, message, advice, writers)


def _meeting(writers: Iterable[Endpoint], readers: Iterable[Endpoint]) -> tuple[Endpoints, Endpoints]:
    """Return the writers that meet a reader, and the readers that meet a writer, without comparing all pairs.

    Two expressions do not match each other (DDS 1.4, 2.2.3.13 PARTITION).
    """
    by_writer, by_reader = _by_partition(writers), _by_partition(readers)
    literal, wild = _divided(by_reader)
    met_writers: Endpoints = {}
    met_readers: Endpoints = {}
    for name, those in by_writer.items():
        if expressions.is_literal(name):
            others = [each for each in wild if expressions.matches(each, name)]
            others += [name] if name in by_reader else []
        else:
            others = [each for each in literal if expressions.matches(name, each)]
        if others:
            met_writers.update((each.guid, each) for each in those)
        for other in others:
            met_readers.update((each.guid, each) for each in by_reader[other])
    return met_writers, met_readers


def _by_partition(endpoints: Iterable[Endpoint]) -> dict[str, list[Endpoint]]:
    found: dict[str, list[Endpoint]] = {}
    for endpoint in endpoints:
        for name in endpoint.partitions or ("",):
            found.setdefault(name, []).append(endpoint)
    return found


def _divided(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Separate names from expressions."""
    every = list(names)
    return (
        [name for name in every if expressions.is_literal(name)],
        [name for name in every if not expressions.is_literal(name)],
    )


_KEEPING = ("Durable", "Persistent", "Transient")
_MAX_SHOWN = 5
_TAKING = ("Merge", "Replace", "Catchup")


def node_findings(picture: DomainPicture, clock_bound_ns: int) -> Iterator[DoctorFinding]:
    """Find what keeps nodes from becoming consistent.

    Args:
        picture: the domain.
        clock_bound_ns: tolerated difference of clocks.
    """
    yield from _nobody_keeps(picture)
    yield from _not_kept(picture)
    yield from kept_in_memory(picture.nodes)
    yield from limited(picture.nodes)
    for topic in picture.topics():
        yield from history_cut(topic, picture.nodes)
    yield from _incompatible(picture.nodes)
    yield from _not_merged(picture.nodes)
    yield from _clocks(picture, clock_bound_ns)
    yield from _deviations(picture)


def _nobody_keeps(picture: DomainPicture) -> Iterator[DoctorFinding]:
    """Find durable data that no service keeps; other durability services do not say what they keep."""
    if picture.foreign_services:
        return
    for topic in picture.topics():
        missed: dict[str, dict[str, Endpoint]] = {}
        for writer in topic.writers:
            if writer.qos.durability < DurabilityKind.TRANSIENT:
                continue
            for partition in writer.partitions or ("",):
                if partition in missed or not _is_kept(picture.nodes, Group(partition, topic.name)):
                    missed.setdefault(partition, {})[writer.guid] = writer
        if missed:
            reason = " in a name-space" if picture.nodes else ": none was heard"
            message = f"offers durable data in {_shown(missed)}, but no durability service keeps it{reason}"
            advice = "a name-space that contains it, with a policy that keeps it, on at least one node"
            writers = {guid: each for those in missed.values() for guid, each in those.items()}
            yield DoctorFinding(
                DoctorCause.NOBODY_KEEPS, Weight.WARNING, topic.name, message, advice, tuple(writers.values())
            )


def _shown(partitions: Iterable[str]) -> str:
    """List partitions for a message: all of a few, some of many."""
    names = [f"partition '{name}'" if name else "the default partition" for name in partitions]
    more = f" and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else ""
    return ", ".join(names[:_MAX_SHOWN]) + more


def _is_kept(nodes: Sequence[NodeSnapshot], group: Group) -> bool:
    return any(
        space.durability in _KEEPING
        and any(Element.parse(element).contains(group) for element in space.elements)
        for node in nodes
        for space in node.name_spaces
    )


def _not_kept(picture: DomainPicture) -> Iterator[DoctorFinding]:
    """Find durable writers that a node reports as not kept."""
    seen: dict[tuple[str, str, str], list[str]] = {}
    for node in picture.nodes:
        for view in node.unkept:
            if is_nowhere(view, picture.nodes):
                seen.setdefault((view.writer, view.topic, view.text), []).append(node.name)
    for (writer, topic, text), names in seen.items():
        ends = tuple(each for each in picture.endpoints if each.guid == writer)
        what = (
            f"offers durable data that {', '.join(names)} cannot keep"
            if ends
            else f"{', '.join(names)} did not keep durable data of writer {writer}, which has ended"
        )
        yield DoctorFinding(
            DoctorCause.NOT_KEPT,
            Weight.WARNING,
            topic,
            f"{what}: {text}",
            "see docs/durability-qos.md#writers-that-are-not-kept",
            ends,
            tuple(names),
        )
    for node in picture.nodes:
        large = [(one.topic, one.too_large) for one in node.groups if one.too_large]
        if unnamed := node.counters.get("too_large", 0) - sum(count for _, count in large):
            large.append(("", unnamed))  # of groups that the node does not show
        for topic, count in large:
            yield DoctorFinding(
                DoctorCause.NOT_KEPT,
                Weight.WARNING,
                topic,
                f"{node.name} did not capture {plural(count, 'sample')} above its limit, and has them only "
                "if a fellow with a higher limit sends them",
                "raise DDSI2Service/Internal/MaxSampleSize on all nodes",
                (),
                (node.name,),
            )


def _incompatible(nodes: Sequence[NodeSnapshot]) -> Iterator[DoctorFinding]:
    said = set()
    for node in nodes:
        for fellow in node.fellows:
            pair = frozenset((node.id, fellow.id))
            if fellow.communication == "incompatible" and pair not in said:
                said.add(pair)
                yield DoctorFinding(
                    DoctorCause.NODES_INCOMPATIBLE,
                    Weight.ERROR,
                    "",
                    f"{node.name} and {fellow.name} do not communicate: {fellow.problem}",
                    "the same name-spaces on both, or disjoint ones",
                    nodes=(node.name, fellow.name),
                )


def _not_merged(nodes: Sequence[NodeSnapshot]) -> Iterator[DoctorFinding]:
    """Find sets that stay different after a split because neither side takes the other's set."""
    having: dict[str, list[tuple[NodeSnapshot, NameSpaceView]]] = {}
    for node in nodes:
        for space in node.name_spaces:
            if space.durability in _KEEPING:
                having.setdefault(space.name, []).append((node, space))
    for name, holders in sorted(having.items()):
        pairs = []
        for (left, one), (right, other) in itertools.combinations(holders, 2):
            types = (_merge_type(one, right.role), _merge_type(other, left.role))
            if not any(each in _TAKING for each in types):
                pairs.append((left.name, right.name, types))
        if pairs:
            left_name, right_name, (here, there) = pairs[0]
            more = f" (and {len(pairs) - 1} more pairs)" if len(pairs) > 1 else ""
            yield DoctorFinding(
                DoctorCause.NOT_MERGED,
                Weight.WARNING,
                "",
                f"name-space '{name}': after a disconnection {left_name} does {here} and {right_name} "
                f"does {there}{more}: the sets stay different",
                '<Merge type="Merge" scope="*"/> in the policy of the name-space',
                nodes=tuple(sorted({each for pair in pairs for each in pair[:2]})),
            )


def _deviations(picture: DomainPicture) -> Iterator[DoctorFinding]:
    """Find readers whose state differs from the set of their node."""
    for node in picture.nodes:
        for view in node.deviations:
            owners = {guid[:24] for guid in view.participant.split(",")}
            readers = tuple(
                each
                for each in picture.endpoints
                if not each.is_writer and each.topic == view.topic and each.guid[:24] in owners
            )
            is_repetition = view.counts.keys() == {"repeated"}
            first = "create the readers of a process together" if is_repetition else "start the reader again"
            yield DoctorFinding(
                DoctorCause.READER_DEVIATES,
                Weight.WARNING if view.counts.keys() - {"shown_later", "repeated"} else Weight.INFO,
                view.topic,
                f"deviates from the set of {node.name} ({view.text})",
                f"{first}, or read with the client library; see docs/readers.md",
                readers,
                (node.name,),
            )


def _merge_type(space: NameSpaceView, role: str) -> str:
    """Return the merge type for a role: the first Merge whose scope matches, else Ignore."""
    for text in space.merges:
        kind, _, scope = text.partition(" ")
        if expressions.matches(scope, role):
            return kind
    return "Ignore"


def _clocks(picture: DomainPicture, bound_ns: int) -> Iterator[DoctorFinding]:
    """Find clocks that differ by more than the bound for certain.

    A message takes time, so each node sees the other clock later than it is. The other clock is ahead by at
    least the skew that this node sees, and by at most the negative of the skew that the other node sees.
    """
    seen = {
        (node.id, fellow.id): fellow.skew_ns
        for node in picture.nodes
        for fellow in node.fellows
        if fellow.communication != "lost" and fellow.last_heartbeat_ns
    }
    names = {node.id: node for node in picture.nodes}
    topics = _written_on_several_hosts(picture)
    for (here, there), least_ns in sorted(seen.items()):
        if least_ns <= bound_ns or here not in names or there not in names:
            continue
        behind, ahead = names[here], names[there]
        back_ns = seen.get((there, here))
        most = "" if back_ns is None or -back_ns < least_ns else f" and {-back_ns / 1e9:.3f} s at most"
        message = (
            f"the clock of {ahead.name} (host {ahead.host}) is ahead of that of {behind.name} "
            f"(host {behind.host}) by {least_ns / 1e9:.3f} s at least{most}"
        )
        if topics:
            message += f"; written on several hosts: {', '.join(topics[:_MAX_SHOWN])}"
            message += f" and {len(topics) - _MAX_SHOWN} more topics" if len(topics) > _MAX_SHOWN else ""
        yield DoctorFinding(
            DoctorCause.CLOCKS,
            Weight.WARNING if topics else Weight.INFO,
            "",
            message,
            "synchronize the clocks (NTP, PTP): the update with the later timestamp wins",
            nodes=(behind.name, ahead.name),
        )


def _written_on_several_hosts(picture: DomainPicture) -> list[str]:
    """Return the topics that are written on several hosts."""
    return [
        topic.name
        for topic in picture.topics()
        if len({each.host for each in topic.writers if each.host}) > 1
    ]
