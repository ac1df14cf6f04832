"""The rules of the diagnosis on the sets of nodes: in memory only, or less than applications ask for."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence

from engine.core.expressions import is_literal
from engine.dataset.groups import DurabilityKind, depth_name, is_deeper, loosest, meets
from engine.runtime.monitor import GroupView, NameSpaceView, NodeSnapshot
from ospltool.diagnostics.model import Severity
from ospltool.doctor.picture import DoctorCause, DoctorFinding, Endpoint, TopicView
from ospltool.output.text import durability_service, plural

_MOST_TOPICS = 5
_NO_DISK = "there is no store on disk", "a StoreDirectory"


def kept_in_memory(nodes: Sequence[NodeSnapshot]) -> Iterator[DoctorFinding]:
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
        listed, word = ", ".join(shown[:_MOST_TOPICS]), "topic" if len(shown) == 1 else "topics"
        more = f" and {len(shown) - _MOST_TOPICS:,} more" if len(shown) > _MOST_TOPICS else ""
        yield DoctorFinding(
            DoctorCause.MEMORY_ONLY,
            Severity.INFO,
            (),
            f"{', '.join(who)} {'keeps' if len(who) == 1 else 'keep'} PERSISTENT data in memory only, "
            f"because {why}: {word} {listed}{more}",
            f"{advice}, if it must survive a restart of all nodes",
            nodes=tuple(who),
        )


def _reason(node: NodeSnapshot, space: NameSpaceView) -> tuple[str, str] | None:
    """Return why a node keeps PERSISTENT data of a name-space in memory only, and the advice."""
    if space.durability == "Transient":
        where = f"'{space.name}'"
        return f"the policy of name-space {where} is Transient", f'durability="Persistent" for {where}'
    return _NO_DISK if node.store.kind == "memory" else None


def history_cut(topic: TopicView, nodes: Sequence[NodeSnapshot]) -> Iterator[DoctorFinding]:
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
    yield DoctorFinding(
        DoctorCause.HISTORY_CUT,
        Severity.WARNING if any(_names_a_number(each) for each in cut.values()) else Severity.INFO,
        (topic.name,),
        f"HISTORY is {' and '.join(names)}, but what is kept for late joiners is "
        f"{depth_name(_shallowest(kept))} of each instance: DURABILITY_SERVICE decides that",
        f"where late joiners need more, on the topic and all of its writers: {_line(topic, groups, asked)}",
        tuple(cut.values()),
        tuple({node.name: None for node in nodes if any(group.topic == topic.name for group in node.groups)}),
    )


def _names_a_number(endpoint: Endpoint) -> bool:
    return not endpoint.is_writer and bool(endpoint.qos.history_depth)


def _shallowest(depths: Sequence[int]) -> int:
    return min(depths, key=lambda depth: depth or math.inf)


class _Depths:
    """The least that is kept of an instance in each partition, found without comparing all names."""

    def __init__(self) -> None:
        self._every: dict[str, int] = {}
        self._wild: dict[str, int] = {}

    def add(self, partition: str, depth: int) -> None:
        """Note what is kept in a partition, which may be an expression."""
        for known in (self._every, *([] if is_literal(partition) else [self._wild])):
            known[partition] = _shallowest((depth, known.get(partition, depth)))

    def met(self, partitions: tuple[str, ...]) -> int | None:
        """Return the least that is kept where a reader or writer in these partitions is; None for nothing."""
        found = []
        for one in partitions or ("",):
            if one in self._every:
                found.append(self._every[one])
            others = self._wild if is_literal(one) else self._every
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


def limited(nodes: Sequence[NodeSnapshot]) -> Iterator[DoctorFinding]:
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
        yield DoctorFinding(
            DoctorCause.LIMITED,
            Severity.INFO if set(causes) == {"max_samples_per_instance"} else Severity.WARNING,
            (topic,),
            f"{', '.join(views)} kept out or pushed out {counts} of DURABILITY_SERVICE: late "
            "joiners do not get them",
            f"higher limits, or none, on the topic and all of its writers: {line}",
            nodes=tuple(views),
        )
