"""The effect of the settings and clocks of nodes on eventual consistency."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from engine.core import expressions
from engine.core.name_spaces import Element, Group
from engine.dataset.groups import DurabilityKind
from engine.runtime.monitor import NameSpaceView, NodeSnapshot
from ospltool.doctor.picture import DoctorCause, DoctorFinding, DomainPicture, Endpoint, Weight

_KEEPING = ("Durable", "Persistent", "Transient")
_MAX_SHOWN = 5
_TAKING = ("Merge", "Replace", "Catchup")


def findings(picture: DomainPicture, clock_bound_ns: int) -> Iterator[DoctorFinding]:
    """Find what keeps nodes from becoming consistent.

    Args:
        picture: the domain.
        clock_bound_ns: tolerated difference of clocks.
    """
    yield from _nobody_keeps(picture)
    yield from _not_kept(picture)
    yield from _incompatible(picture.nodes)
    yield from _not_merged(picture.nodes)
    yield from _clocks(picture, clock_bound_ns)
    yield from _deviations(picture)
    yield from _without_library(picture.nodes)


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
            seen.setdefault((view.writer, view.topic, view.text), []).append(node.name)
    for (writer, topic, text), names in seen.items():
        yield DoctorFinding(
            DoctorCause.NOT_KEPT,
            Weight.WARNING,
            topic,
            f"offers durable data that {', '.join(names)} cannot keep: {text}",
            "see docs/durability-qos.md#writers-that-are-not-kept",
            tuple(each for each in picture.endpoints if each.guid == writer),
            tuple(names),
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
            readers = tuple(
                each
                for each in picture.endpoints
                if not each.is_writer and each.topic == view.topic and each.guid[:24] == view.participant[:24]
            )
            yield DoctorFinding(
                DoctorCause.READER_DEVIATES,
                Weight.INFO if set(view.counts) == {"shown_later"} else Weight.WARNING,
                view.topic,
                f"deviates from the set of {node.name} ({view.text})",
                "start the reader again, or read with the client library; see docs/readers.md",
                readers,
                (node.name,),
            )


def _without_library(nodes: Sequence[NodeSnapshot]) -> Iterator[DoctorFinding]:
    """Nodes whose capture waits for the Python interpreter, by reason."""
    slow: dict[str, list[str]] = {}
    for node in nodes:
        if node.capture.reason:
            slow.setdefault(node.capture.reason, []).append(node.name)
    for reason, names in slow.items():
        who = f"{', '.join(names)} {'captures' if len(names) == 1 else 'capture'}"
        yield DoctorFinding(
            DoctorCause.CAPTURE_IN_PYTHON,
            Weight.INFO,
            "",
            f"{who} samples in Python ({reason}): fast writers are slowed down earlier",
            "install ospltool again where there is a C compiler or access to the package index",
            nodes=tuple(names),
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
