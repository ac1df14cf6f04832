"""The diagnosis of a domain: rules on the QoS of applications, topic by topic, and on what nodes report."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec

from engine.config.values import did_you_mean
from engine.core import expressions
from engine.core.name_spaces import Element, Group
from engine.dataset.groups import DurabilityKind, GroupQos, depth_name, is_deeper, loosest, meets
from engine.dds.abi import INFINITE_NS
from engine.dds.endpoints import Endpoint
from engine.dds.offering import offer
from engine.dds.qos import incompatibilities
from engine.runtime.monitor import GroupView, NameSpaceView, NodeSnapshot, is_nowhere
from ospltool.diagnostics.model import Finding, Severity
from ospltool.doctor.picture import DomainPicture, TopicView
from ospltool.output.text import durability_service, listed, plural

_TRANSIENT = DurabilityKind.TRANSIENT
_PERIODIC = "; by its DEADLINE each instance is updated periodically, and the next update makes up for it"

Key = TypeVar("Key", bound=Hashable)
Endpoints = dict[str, Endpoint]
"""By GUID."""


# Machines with NTP differ by milliseconds; from a tenth of a second on, orders by source time are wrong for
# people.
CLOCK_BOUND_NS: Final = 100_000_000
# Chosen: a report that a person reads to the end is far shorter.
MAX_FINDINGS: Final = 1_000

_DECIDING: Final = (Severity.ERROR, Severity.WARNING)


@dataclasses.dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of a diagnosis.

    Attributes:
        picture: the domain.
        findings: by topic, nodes first; the gravest first. Equal ones of several topics are one finding.
        left_out: number of findings beyond a thousand; they are the least grave ones.
    """

    picture: DomainPicture
    findings: tuple[Finding, ...]
    left_out: int = 0

    @property
    def is_good(self) -> bool:
        """Whether there are no findings other than information."""
        return not any(each.severity in _DECIDING for each in self.findings)

    def inconsistent(self, *, writers: bool) -> int:
        """Count the writers or readers that are not certain to become consistent."""
        return len(
            {
                endpoint.guid
                for each in self.findings
                if each.severity in _DECIDING and each.name != "writers-disagree"
                for endpoint in each.evidence
                if endpoint.is_writer is writers
            }
        )


def diagnose(picture: DomainPicture, clock_bound_ns: int = CLOCK_BOUND_NS) -> Diagnosis:
    """Apply every rule.

    Args:
        picture: the domain.
        clock_bound_ns: tolerated difference of clocks.
    """
    found = list(_node_findings(picture, clock_bound_ns))
    found += _topic_findings(picture)
    found = _merged(found)
    # First by severity, so that the limit cuts off the least grave; then by topic, as people read it.
    found.sort(key=lambda each: each.severity)
    kept = found[:MAX_FINDINGS]
    kept.sort(key=lambda each: (each.topics, each.severity, each.name))
    return Diagnosis(picture, tuple(kept), len(found) - len(kept))


def _merged(findings: Sequence[Finding]) -> list[Finding]:
    """Make one finding of those that say the same of several topics."""
    alike: dict[tuple[object, ...], list[Finding]] = {}
    for each in findings:
        key = each.name, each.severity, each.message, each.advice, each.nodes, bool(each.topics)
        alike.setdefault(key, []).append(each)
    return [
        dataclasses.replace(
            some[0],
            topics=tuple(dict.fromkeys(topic for each in some for topic in each.topics)),
            evidence=tuple(
                # Writers first, as in the sentence "what the writer offers, the reader requests".
                sorted((end for each in some for end in each.evidence), key=lambda end: not end.is_writer)
            ),
        )
        for some in alike.values()
    ]


def _found(
    name: str,
    level: Severity,
    topics: tuple[str, ...],
    message: str,
    advice: str,
    ends: tuple[Endpoint, ...] = (),
    nodes: tuple[str, ...] = (),
) -> Finding:
    """Return a finding. ERROR: no data arrives. WARNING: not eventually consistent. INFO: perhaps not.

    Args:
        name: what it is; the names are stable (docs/doctor.md).
        level: its weight.
        topics: topic names; none for findings about nodes.
        message: the fact, and what follows from it.
        advice: remedy.
        ends: the endpoints concerned, writers first.
        nodes: names of the nodes concerned.
    """
    return Finding(message, advice=advice, nodes=nodes, level=level, name=name, topics=topics, evidence=ends)


def _topic_findings(picture: DomainPicture) -> Iterator[Finding]:
    """Find what keeps the endpoints of each topic from becoming consistent."""
    groups: dict[str, list[GroupView]] = {}
    for node in picture.nodes:
        for group in node.groups:
            groups.setdefault(group.topic, []).append(group)
    heard = {node.id for node in picture.nodes}
    fellows = (fellow for node in picture.nodes for fellow in node.fellows if fellow.communication != "lost")
    knows_all = (
        not picture.foreign_services
        and not any(node.groups_left_out for node in picture.nodes)
        and all(fellow.id in heard for fellow in fellows)
    )
    for topic in picture.topics():
        kept = _kept(topic, groups.get(topic.name, ()))
        yield from _reliability(topic)
        yield from _durability(topic)
        yield from _different_types(topic, sorted({each.type_name for each in kept}))
        yield from _pairs(topic, kept)
        yield from _writers_disagree(topic)
        yield from _dies_with_writer(topic)
        yield from _destination_order(topic, is_kept=bool(kept) or _may_be_kept(topic, picture))
        if knows_all:
            yield from _elsewhere(topic, kept)


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
    cause: str,
    describe: Callable[[Endpoint], str],
    advice: Callable[[Endpoint], str],
) -> Iterator[Finding]:
    """Make one finding for all endpoints with the same fault."""
    is_periodic = _periodic(topic)
    kinds = _grouped(wrong, lambda each: (describe(each), is_periodic(each), advice(each)))
    for (text, periodic, remedy), members in kinds.items():
        weight = Severity.INFO if periodic else Severity.WARNING
        message = text + _PERIODIC if periodic else text
        yield _found(cause, weight, (topic.name,), message, remedy, members)


def _reliability(topic: TopicView) -> Iterator[Finding]:
    def describe(endpoint: Endpoint) -> str:
        if endpoint.is_writer:
            return "offers BEST_EFFORT: a sample that is lost on the way is never sent again"
        return "requests BEST_EFFORT: a sample that is lost on the way is never asked for again"

    wrong = [each for each in topic.writers + topic.readers if not each.qos.reliable]
    advice = "RELIABILITY RELIABLE on writers and readers"
    return _of_policy(topic, wrong, "reliability", describe, lambda _: advice)


def _durability(topic: TopicView) -> Iterator[Finding]:
    def describe(endpoint: Endpoint) -> str:
        name = endpoint.qos.durability.name
        if not endpoint.is_writer:
            if endpoint.qos.durability is DurabilityKind.TRANSIENT_LOCAL:
                return f"requests {name}: joining late, it gets nothing of writers that are gone"
            return f"requests {name}: joining late, it does not get what was written before"
        if endpoint.qos.durability is DurabilityKind.TRANSIENT_LOCAL:
            return f"offers {name}: who joins after this writer is gone never gets what it wrote"
        return f"offers {name}: who joins late never gets what was written before"

    endpoints = topic.writers + tuple(each for each in topic.readers if not each.is_library)
    wrong = [each for each in endpoints if each.qos.durability < _TRANSIENT]

    def advice(endpoint: Endpoint) -> str:
        if endpoint.is_ros:
            is_local = endpoint.qos.durability is DurabilityKind.TRANSIENT_LOCAL
            remedy = "" if is_local else "TRANSIENT_LOCAL in the QoSProfile of both sides, and "
            return (
                f"{remedy}a publisher that stays: ROS 2 has no higher durability, so nodes keep nothing of it"
            )
        return "DURABILITY TRANSIENT or PERSISTENT on writers and readers, and a durability service"

    return _of_policy(topic, wrong, "durability", describe, advice)


def _may_be_kept(topic: TopicView, picture: DomainPicture) -> bool:
    """Tell whether a durability service keeps data of a topic; others do not say what they keep."""
    return any(
        picture.foreign_services or _is_kept(picture.nodes, Group(partition, topic.name))
        for each in topic.writers
        if each.qos.durability >= _TRANSIENT
        for partition in each.partitions or ("",)
    )


def _destination_order(topic: TopicView, *, is_kept: bool) -> Iterator[Finding]:
    """Find orders of arrival that may differ: the samples of one source arrive in its order everywhere.

    Periodic updates do not heal a wrong order: of two writers' last samples one must win everywhere.
    """
    are_several = len(topic.writers) > 1
    wrong = [
        each
        for each in topic.writers + topic.readers
        if not each.is_library and not each.qos.by_source_timestamp and (are_several or is_kept)
    ]

    def weight(endpoint: Endpoint) -> Severity:
        # A service is another source of the same instances for the readers that it delivers to. Whether two
        # writers write the same instance is not announced.
        is_late = not endpoint.is_writer and endpoint.qos.durability >= _TRANSIENT
        return Severity.WARNING if is_kept and (are_several or is_late) else Severity.INFO

    kinds = _grouped(wrong, lambda each: (each.is_writer, each.is_ros, weight(each)))
    for (is_writer, is_ros, gravity), members in kinds.items():
        if not is_kept:
            text = _OFFERS_AMONG_SEVERAL if is_writer else _REQUESTS_AMONG_SEVERAL
        else:
            text = _OFFERS_RECEPTION if is_writer else _REQUESTS_RECEPTION
        yield _found(
            "destination-order",
            gravity,
            (topic.name,),
            text,
            _ROS_ORDER_ADVICE if is_ros else _ORDER_ADVICE,
            members,
        )


_AMONG_SEVERAL = (
    "if two of the topic's writers write the same instance, readers may end with different samples of it"
)
_OFFERS_AMONG_SEVERAL = (
    f"offers BY_RECEPTION_TIMESTAMP: no reader can ask it for BY_SOURCE_TIMESTAMP; {_AMONG_SEVERAL}"
)
_REQUESTS_AMONG_SEVERAL = (
    f"requests BY_RECEPTION_TIMESTAMP: what arrives last is taken for the latest; {_AMONG_SEVERAL}"
)
_OFFERS_RECEPTION = (
    "offers BY_RECEPTION_TIMESTAMP: no reader can ask it for BY_SOURCE_TIMESTAMP, and a durability "
    "service orders its samples by their arrival"
)
_REQUESTS_RECEPTION = (
    "requests BY_RECEPTION_TIMESTAMP: what arrives last is taken for the latest, also a sample that was "
    "delayed, sent again or delivered by a durability service"
)
_ORDER_ADVICE = "DESTINATION_ORDER BY_SOURCE_TIMESTAMP on writers and readers, and synchronized clocks"
_ROS_ORDER_ADVICE = (
    "one publisher for each topic, or compare the time stamps of messages: ROS 2 cannot set DESTINATION_ORDER"
)


def _pairs(topic: TopicView, kept: Sequence[Endpoint]) -> Iterator[Finding]:
    """Find readers whose QoS refuses writers, or refuses what nodes keep of writers that may be gone.

    A delivery promises what a reader asks for of DEADLINE, LIVELINESS and PRESENTATION, so it reaches readers
    that the writer itself does not.
    """
    durable = [each for each in topic.readers if each.qos.durability >= _TRANSIENT and not each.is_library]
    refused = _refusing(kept, durable)
    unserved = {guid for _, ends in refused.values() for guid in ends}
    of_type = _grouped(kept, lambda each: each.type_name)
    alike = _grouped(durable, lambda each: each.type_name)
    given = (_meeting(groups, alike.get(name, ()))[1] for name, groups in of_type.items())
    served = {guid for each in given for guid in each} - unserved
    pairs = _refusing(topic.writers, topic.readers)
    for (cause, policy), (writers, readers) in pairs.items():
        for is_served, members in _grouped(readers.values(), lambda each: each.guid in served).items():
            met, _ = _meeting(writers.values(), members)
            text = f"do not match ({policy}), so no data flows from one to the other"
            if is_served:
                text += "; who joins late gets what nodes keep, and nothing that is written later"
            ends = (*sorted(met.values(), key=lambda each: each.guid), *members)
            yield _found(cause, Severity.ERROR, (topic.name,), text, _PAIR_ADVICE[cause], ends)
    for (cause, policy), (groups, readers) in refused.items():
        known = pairs.get((cause, policy), ({}, {}))[1]
        if ends := tuple(each for guid, each in readers.items() if guid not in known):
            where = _shown(
                dict.fromkeys(each.partitions[0] if each.partitions else "" for each in groups.values())
            )
            text = f"refuses what nodes keep in {where} ({policy}), so it gets none of that"
            yield _found(cause, Severity.ERROR, (topic.name,), text, _KEPT_ADVICE, ends)


_PAIR_ADVICE = {
    "incompatible-durability": "offer at least the DURABILITY that is requested "
    "(VOLATILE < TRANSIENT_LOCAL < TRANSIENT < PERSISTENT)",
    "incompatible-qos": "offer at least what is requested",
}
_KEPT_ADVICE = "request at most what is kept, or offer more with the topic and all of its writers"

_Refusal = tuple[str, str]


def _refusing(
    writers: Iterable[Endpoint], readers: Iterable[Endpoint]
) -> dict[_Refusal, tuple[Endpoints, Endpoints]]:
    """Return who would match but for a policy, by policy with both values; alike ones are compared once."""

    def traits(endpoint: Endpoint) -> Hashable:
        # The name and the partitions are in the QoS, too, and would make all endpoints differ.
        qos = msgspec.structs.replace(endpoint.qos, name="", partitions=())
        return qos, endpoint.type_name, bool(endpoint.type_id)

    found: dict[_Refusal, tuple[Endpoints, Endpoints]] = {}
    many = _grouped(readers, traits)
    for some in _grouped(writers, traits).values():
        for others in many.values():
            policies = incompatibilities(some[0].qos, others[0].qos) if _may_match(some[0], others[0]) else ()
            met_writers, met_readers = _meeting(some, others) if policies else ({}, {})
            for policy in policies if met_writers else ():
                is_durability = policy.startswith("DURABILITY:")
                cause = "incompatible-durability" if is_durability else "incompatible-qos"
                both = found.setdefault((cause, policy), ({}, {}))
                both[0].update(met_writers)
                both[1].update(met_readers)
    return found


def _kept(topic: TopicView, groups: Iterable[GroupView]) -> list[Endpoint]:
    """Return what nodes keep of a topic as the writers that would deliver it."""
    # What one asks for that asks for the most of all: a delivery offers it to each alone.
    asked = [each.qos for each in topic.readers if each.qos.durability >= _TRANSIENT]
    asked = [offer(GroupQos(_TRANSIENT), "", asked)]
    found = {}
    for group in groups:
        qos = GroupQos(
            DurabilityKind[group.durability],
            by_source_timestamp=group.by_source_timestamp,
            exclusive=group.exclusive,
            representations=group.representations,
        )
        offered = offer(qos, group.partition, asked)
        key = f"{group.partition} {group.type_name} {offered}"  # nodes keep the same, mostly
        found[key] = Endpoint(
            guid=key,
            is_writer=True,
            topic=topic.name,
            type_name=group.type_name,
            partitions=(group.partition,),
            qos=offered,
        )
    return list(found.values())


def _elsewhere(topic: TopicView, kept: Sequence[Endpoint]) -> Iterator[Finding]:
    """Find readers where the topic has no data, and writers where it has no reader: other partitions have.

    That may be meant. It is a warning if the names are so alike that one may be a mistake, or if one side
    names no partition.
    """
    sources = (*topic.writers, *kept)
    met_sources, met_readers = _meeting(sources, topic.readers)
    for ends, met, others in (
        (topic.readers, met_readers, sources),
        (topic.writers, met_sources, met_readers.values()),  # the other readers are reported themselves
    ):
        names = sorted({name for each in others for name in each.partitions or ("",)})
        lost = [each for each in ends if each.guid not in met] if names else []
        yield from _lost(topic, lost, names)


def _lost(topic: TopicView, lost: Sequence[Endpoint], names: Sequence[str]) -> Iterator[Finding]:
    """Tell of endpoints of one kind that meet no other, which are in partitions with these names."""
    hints = {
        wanted: _mistake(wanted, names[:_MOST_COMPARED])
        for wanted in itertools.islice({each.partitions: None for each in lost}, _MOST_COMPARED)
    }
    for hint, members in _grouped(lost, lambda each: hints.get(each.partitions, "")).items():
        wanted = _shown(dict.fromkeys(name for each in members for name in each.partitions or ("",)))
        if not members[0].is_writer:
            text = f"reads in {wanted}, where nothing of this topic is written or kept now; the topic is in"
        elif hint:
            text = f"writes in {wanted}, where no reader of this topic is; readers are in"
        else:
            continue  # data may be written before anybody reads it
        yield _found(
            "partition",
            Severity.WARNING if hint else Severity.INFO,
            (topic.name,),
            f"{text} {_shown(names)}",
            hint or "where that data is meant, the same partition on both sides",
            members,
        )


def _mistake(wanted: Sequence[str], names: Sequence[str]) -> str:
    """Return how partitions may be meant to meet; empty if they are not alike."""
    for one in wanted or ("",):
        for name in names:
            if not one or not name:
                return "name the same partition on both sides: one side is in the default partition"
            is_wild = not expressions.is_literal(one) and not expressions.is_literal(name)
            if is_wild and expressions.intersection(one, name) is not None:
                return f"name a partition instead of {one} or {name}: two expressions do not match each other"
        # Names that differ in their numbers are members of a series.
        others = [name for name in names if _DIGITS.sub("0", name) != _DIGITS.sub("0", one)]
        if hint := did_you_mean(one, others):
            return hint
    return ""


_DIGITS: Final = re.compile(r"\d+")
# 200 ms; more names are seldom misspelt.
_MOST_COMPARED: Final = 100
"""Limit for the names that are compared with each other, which takes 20 us for each pair."""


_THE_FIRST = "what a service keeps and gives to late joiners depends on which of them it saw first"
_THE_HIGHEST = "while no topic tells it, a service keeps all data as the highest"


def _writers_disagree(topic: TopicView) -> Iterator[Finding]:
    """The built-in reader and writer have one QoS: the topic's, where it is told, else the first writer's.

    Of the durability of writers the highest counts.
    """
    durable = [each for each in topic.writers if each.qos.durability >= _TRANSIENT]
    for policy, value in _SERVICE_POLICIES.items():
        values = _grouped(durable, value)
        if len(values) > 1:
            effect = _THE_HIGHEST if policy == "DURABILITY" else _THE_FIRST
            yield _found(
                "writers-disagree",
                Severity.WARNING,
                (topic.name,),
                f"differ in {policy} ({', '.join(sorted(values))}): {effect}",
                "the QoS of the topic for all of its writers",
                tuple(durable),
            )


def _delay(endpoint: Endpoint) -> str:
    delay = endpoint.qos.service_cleanup_delay_ns
    return "infinite" if delay == INFINITE_NS else f"{delay / 1e9:g} s"


_SERVICE_POLICIES: dict[str, Callable[[Endpoint], str]] = {
    "DURABILITY": lambda each: each.qos.durability.name,
    "DESTINATION_ORDER": lambda each: (
        f"BY_{'SOURCE' if each.qos.by_source_timestamp else 'RECEPTION'}_TIMESTAMP"
    ),
    "DURABILITY_SERVICE history": lambda each: depth_name(each.qos.service_history_depth),
    "service_cleanup_delay": _delay,
}


def _dies_with_writer(topic: TopicView) -> Iterator[Finding]:
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
        yield _found("dies-with-writer", Severity.INFO, (topic.name,), message, advice, writers)


def _meeting(writers: Iterable[Endpoint], readers: Iterable[Endpoint]) -> tuple[Endpoints, Endpoints]:
    """Return the writers that meet a reader, and the readers that meet a writer, without comparing all pairs.

    Two expressions do not match each other (DDS 1.4, 2.2.3.13 PARTITION).
    """
    by_writer, by_reader = _by_partition(writers), _by_partition(readers)
    literal = [name for name in by_reader if expressions.is_literal(name)]
    wild = [name for name in by_reader if not expressions.is_literal(name)]
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


_KEEPING = ("Durable", "Persistent", "Transient")
# A line of a terminal.
_MAX_SHOWN: Final = 5
"""Names that a message has; the others are counted."""
_TAKING = ("Merge", "Replace", "Catchup")


def _node_findings(picture: DomainPicture, clock_bound_ns: int) -> Iterator[Finding]:
    """Find what keeps nodes from becoming consistent.

    Args:
        picture: the domain.
        clock_bound_ns: tolerated difference of clocks.
    """
    yield from _nobody_keeps(picture)
    yield from _not_kept(picture)
    yield from _kept_in_memory(picture.nodes)
    yield from _limited(picture.nodes)
    for topic in picture.topics():
        yield from _history_cut(topic, picture.nodes)
    yield from _incompatible(picture.nodes)
    yield from _not_merged(picture.nodes)
    yield from _clocks(picture, clock_bound_ns)
    yield from _deviations(picture)


def _nobody_keeps(picture: DomainPicture) -> Iterator[Finding]:
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
            reason = (
                "that was heard keeps it in a name-space" if picture.nodes else "keeps it: none was heard"
            )
            message = f"offers durable data in {_shown(missed)}, but no durability service {reason}"
            advice = "a name-space that contains it, with a policy that keeps it, on at least one node"
            writers = {guid: each for those in missed.values() for guid, each in those.items()}
            yield _found(
                "nobody-keeps",
                Severity.WARNING,
                (topic.name,),
                message,
                advice,
                tuple(writers.values()),
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


def _not_kept(picture: DomainPicture) -> Iterator[Finding]:
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
        yield _found(
            "not-kept",
            Severity.WARNING,
            (topic,),
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
            yield _found(
                "not-kept",
                Severity.WARNING,
                (topic,) if topic else (),
                f"{node.name} did not capture {plural(count, 'sample')} above its limit, and has them only "
                "if a fellow with a higher limit sends them",
                "raise DDSI2Service/Internal/MaxSampleSize on all nodes",
                (),
                (node.name,),
            )


def _incompatible(nodes: Sequence[NodeSnapshot]) -> Iterator[Finding]:
    said = set()
    for node in nodes:
        for fellow in node.fellows:
            pair = frozenset((node.id, fellow.id))
            if fellow.communication == "incompatible" and pair not in said:
                said.add(pair)
                yield _found(
                    "nodes-incompatible",
                    Severity.ERROR,
                    (),
                    f"{node.name} and {fellow.name} do not communicate: {fellow.problem}",
                    "the same name-spaces on both, or disjoint ones",
                    nodes=(node.name, fellow.name),
                )


def _not_merged(nodes: Sequence[NodeSnapshot]) -> Iterator[Finding]:
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
            yield _found(
                "not-merged",
                Severity.WARNING,
                (),
                f"name-space '{name}': after a disconnection {left_name} does {here} and {right_name} "
                f"does {there}{more}: the sets stay different",
                '<Merge type="Merge" scope="*"/> in the policy of the name-space',
                nodes=tuple(sorted({each for pair in pairs for each in pair[:2]})),
            )


def _deviations(picture: DomainPicture) -> Iterator[Finding]:
    """Find readers whose state differs from the set of their node."""
    for node in picture.nodes:
        for view in node.deviations:
            owners = {guid[:24] for guid in view.participant.split(",")}
            readers = tuple(
                each
                for each in picture.endpoints
                if not each.is_writer
                and each.qos.durability >= _TRANSIENT
                and (each.topic, ",".join(each.partitions), each.guid[:24] in owners)
                == (view.topic, view.partition, True)
            )
            is_repetition = view.counts.keys() == {"repeated"}
            first = "create the readers of a process together" if is_repetition else "start the reader again"
            yield _found(
                "reader-deviates",
                Severity.WARNING if view.counts.keys() - {"shown_later", "repeated"} else Severity.INFO,
                (view.topic,),
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


def _clocks(picture: DomainPicture, bound_ns: int) -> Iterator[Finding]:
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
    hosts = {topic.name: {each.host for each in topic.writers if each.host} for topic in picture.topics()}
    topics = [name for name, several in hosts.items() if len(several) > 1]
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
            message += f"; written on several hosts: {listed(topics, _MAX_SHOWN, 'more topics')}"
        yield _found(
            "clocks",
            Severity.WARNING if topics else Severity.INFO,
            (),
            message,
            "synchronize the clocks (NTP, PTP): the update with the later timestamp wins",
            nodes=(behind.name, ahead.name),
        )


_NO_DISK = "there is no store on disk", "a StoreDirectory"


def _kept_in_memory(nodes: Sequence[NodeSnapshot]) -> Iterator[Finding]:
    """Find PERSISTENT data that nodes do not write to disk, one finding for each reason."""
    topics: dict[tuple[str, str], set[str]] = {}
    names: dict[tuple[str, str], dict[str, None]] = {}
    for node in nodes:
        reasons = {space.name: _reason(node, space) for space in node.name_spaces}
        for group in node.groups:
            reason = reasons.get(group.name_space)
            if reason and group.durability == "PERSISTENT":
                topics.setdefault(reason, set()).add(group.topic)
                names.setdefault(reason, {})[node.name] = None
    for (why, advice), found in topics.items():
        shown, who = sorted(found), names[why, advice]
        word = "topic" if len(shown) == 1 else "topics"
        yield _found(
            "memory-only",
            Severity.INFO,
            (),
            f"{', '.join(who)} {'keeps' if len(who) == 1 else 'keep'} PERSISTENT data in memory only, "
            f"because {why}: {word} {listed(shown, _MAX_SHOWN)}",
            f"{advice}, if it must survive a restart of all nodes",
            nodes=tuple(who),
        )


def _reason(node: NodeSnapshot, space: NameSpaceView) -> tuple[str, str] | None:
    """Return why a node keeps PERSISTENT data of a name-space in memory only, and the advice."""
    if space.durability == "Transient":
        where = f"'{space.name}'"
        return f"the policy of name-space {where} is Transient", f'durability="Persistent" for {where}'
    return _NO_DISK if node.store.kind == "memory" else None


def _history_cut(topic: TopicView, nodes: Sequence[NodeSnapshot]) -> Iterator[Finding]:
    """Find that late joiners get fewer samples of an instance than the HISTORY of writers or readers.

    What is kept for them is a matter of DURABILITY_SERVICE, whose default is KEEP_LAST 1 whatever HISTORY
    says. KEEP_ALL often means no more than that nothing on its way is overwritten, so it is information; a
    reader that names a number wants that many.
    """
    groups = [group for node in nodes for group in node.groups if group.topic == topic.name]
    by_nodes, by_writers = _Depths(), _Depths()
    for group in groups:
        by_nodes.add(group.partition, group.kept_depth)
    for writer in topic.writers:
        for partition in writer.partitions or ("",):
            by_writers.add(partition, writer.service_depth)
    cut: dict[str, Endpoint] = {}
    kept: list[int] = []
    for each in (*topic.writers, *topic.readers):
        durability, asked = each.qos.durability, each.qos.history_depth
        if asked == 1 or each.is_library or durability < DurabilityKind.TRANSIENT_LOCAL:
            continue
        # Nodes say what they keep. Without one, writers say what a service is to keep, or Cyclone DDS of what
        # is TRANSIENT_LOCAL.
        left = by_nodes.met(each.partitions) if durability >= DurabilityKind.TRANSIENT else None
        if left is None:
            left = each.service_depth if each.is_writer else by_writers.met(each.partitions)
        if left is not None and is_deeper(asked, left):
            cut[each.guid] = each
            kept.append(left)
    if not cut:
        return
    asked = functools.reduce(loosest, (each.qos.history_depth for each in cut.values()))
    names = sorted({depth_name(each.qos.history_depth) for each in cut.values()})
    is_number_read = any(not each.is_writer and each.qos.history_depth for each in cut.values())
    yield _found(
        "history-cut",
        Severity.WARNING if is_number_read else Severity.INFO,
        (topic.name,),
        f"HISTORY is {' and '.join(names)}, but what is kept for late joiners is "
        f"{depth_name(_shallowest(kept))} of each instance: DURABILITY_SERVICE decides that",
        f"where late joiners need more, on the topic and all of its writers: {_line(topic, groups, asked)}",
        tuple(cut.values()),
        tuple({node.name: None for node in nodes if any(group.topic == topic.name for group in node.groups)}),
    )


def _shallowest(depths: Sequence[int]) -> int:
    return min(depths, key=lambda depth: depth or math.inf)


class _Depths:
    """The least that is kept of an instance in each partition, found without comparing all names."""

    def __init__(self) -> None:
        self._every: dict[str, int] = {}
        self._wild: dict[str, int] = {}

    def add(self, partition: str, depth: int) -> None:
        """Note what is kept in a partition, which may be an expression."""
        for known in (self._every, *([] if expressions.is_literal(partition) else [self._wild])):
            known[partition] = _shallowest((depth, known.get(partition, depth)))

    def met(self, partitions: tuple[str, ...]) -> int | None:
        """Return the least that is kept where a reader or writer in these partitions is; None for nothing."""
        found = []
        for one in partitions or ("",):
            if one in self._every:
                found.append(self._every[one])
            others = self._wild if expressions.is_literal(one) else self._every
            found += [depth for name, depth in others.items() if meets(one, name)]
        return _shallowest(found) if found else None


def _line(topic: TopicView, groups: Sequence[GroupView], asked: int) -> str:
    """Return the QoS line that keeps `asked` samples of each instance and leaves all else as it is."""
    if groups:
        most, instances, each = groups[0].limits
        delay_ns = groups[0].cleanup_delay_ns
    else:
        qos = topic.writers[0].qos.of_group()
        (most, instances, each), delay_ns = qos.limits, qos.cleanup_delay_ns
    return durability_service(asked, (most, instances, loosest(each, asked) if each > 0 else each), delay_ns)


def _limited(nodes: Sequence[NodeSnapshot]) -> Iterator[Finding]:
    """Find samples that resource limits of DURABILITY_SERVICE keep out, one finding for each topic.

    A number of samples for each instance pushes out older ones, as a history depth does.
    """
    told: dict[str, dict[str, GroupView]] = {}
    for node in nodes:
        for group in node.groups:
            if group.rejected:
                told.setdefault(group.topic, {}).setdefault(node.name, group)
    for topic, views in told.items():
        causes: dict[str, int] = {}
        for view in views.values():
            for cause, count in view.rejected:
                causes[cause] = max(count, causes.get(cause, 0))
        counts = ", ".join(f"{plural(count, 'sample')} by {cause}" for cause, count in sorted(causes.items()))
        view = next(iter(views.values()))
        line = durability_service(view.depth, (-1, -1, -1), view.cleanup_delay_ns)
        yield _found(
            "limited",
            Severity.INFO if set(causes) == {"max_samples_per_instance"} else Severity.WARNING,
            (topic,),
            f"{', '.join(views)} kept out or pushed out {counts} of DURABILITY_SERVICE: late "
            "joiners do not get them",
            f"higher limits, or none, on the topic and all of its writers: {line}",
            nodes=tuple(views),
        )


_TYPE_ADVICE: Final = "one version of the type, or appendable or mutable versions with the same key"


def _may_match(one: Endpoint, other: Endpoint) -> bool:
    """Tell whether the types of two endpoints may match.

    Cyclone DDS compares the structures if both sides announce them, whatever the names are, and the names
    otherwise. Only Cyclone DDS in the process of an endpoint knows whether two structures are compatible.
    """
    return one.type_name == other.type_name or bool(one.type_id and other.type_id)


def _different_types(topic: TopicView, kept: Sequence[str]) -> Iterator[Finding]:
    """Find types that share the name of a topic.

    Args:
        topic: the topic.
        kept: names of the types of which nodes keep data of this topic.
    """
    endpoints = topic.writers + topic.readers
    names = sorted({each.type_name for each in endpoints})
    if len(names) > 1 and not all(each.type_id for each in endpoints):
        yield _found(
            "different-types",
            Severity.ERROR,
            (topic.name,),
            f"have different types, {_types(names)}, and not all announce their structure: no data "
            "flows between different names where one side does not",
            "one type for each topic name",
            endpoints,
        )
    told = tuple(each for each in endpoints if each.type_id)
    if (count := len({each.type_id for each in told})) > 1:
        named = _types(sorted({each.type_name for each in told}))
        text = f"have {count} different types named {named}: data flows only between compatible ones"
        yield _found("different-types", Severity.WARNING, (topic.name,), text, _TYPE_ADVICE, told)
    strange = tuple(each for each in topic.readers if kept and each.type_name not in kept)
    if strange and not topic.writers:
        text = f"have another type than nodes keep, {_types(kept)}: they get that only if it is compatible"
        yield _found("different-types", Severity.WARNING, (topic.name,), text, _TYPE_ADVICE, strange)


def _types(names: Sequence[str]) -> str:
    return listed(names, _MAX_SHOWN, separator=" and ")
