"""The effect of the QoS of applications on eventual consistency, topic by topic.

Three policies decide (OpenSplice, "Configuring for Eventual Consistency"): RELIABILITY, DURABILITY and
DESTINATION_ORDER. Endpoints whose offers do not satisfy requests exchange no data, so they cannot become
consistent either (DDS 1.4, 2.2.3.4).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

from engine.core import expressions
from engine.dataset.groups import KEEP_ALL, DurabilityKind
from engine.dds.abi import INFINITE_NS
from engine.dds.qos import incompatibilities
from ospltool.doctor.picture import DoctorCause, DoctorFinding, Endpoint, TopicView, Weight

_TRANSIENT = DurabilityKind.TRANSIENT
_PERIODIC = "; by its DEADLINE each instance is updated periodically, and the next update makes up for it"

Key = TypeVar("Key", bound=Hashable)
Endpoints = dict[str, Endpoint]
"""By GUID."""


def findings(topic: TopicView) -> Iterator[DoctorFinding]:
    """Find what keeps the endpoints of a topic from becoming consistent."""
    yield from _reliability(topic)
    yield from _durability(topic)
    yield from _destination_order(topic)
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
    DoctorCause.DIFFERENT_TYPES: "one type for each topic name",
}


def _refusals(writer: Endpoint, reader: Endpoint) -> Iterator[tuple[DoctorCause, str]]:
    if writer.type_name != reader.type_name:
        text = f"have different types, {writer.type_name} and {reader.type_name}, so no data flows"
        yield DoctorCause.DIFFERENT_TYPES, text
        return
    for policy in incompatibilities(writer.qos, reader.qos):
        is_durability = policy.startswith("DURABILITY:")
        cause = DoctorCause.INCOMPATIBLE_DURABILITY if is_durability else DoctorCause.INCOMPATIBLE_QOS
        yield cause, f"do not match ({policy}), so no data flows"


def _writers_disagree(topic: TopicView) -> Iterator[DoctorFinding]:
    """The built-in reader and writer have one QoS: the topic's, where it is told, else the first writer's."""
    durable = [each for each in topic.writers if each.qos.durability >= _TRANSIENT]
    for policy, value in _SERVICE_POLICIES.items():
        values = _grouped(durable, value)
        if len(values) > 1:
            message = (
                f"differ in {policy} ({', '.join(sorted(values))}): what a service keeps and gives "
                "to late joiners depends on which of them it saw first"
            )
            yield DoctorFinding(
                DoctorCause.WRITERS_DISAGREE,
                Weight.WARNING,
                topic.name,
                message,
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
