"""The snapshot of a node for consoles, made from its runtime."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Final

import msgspec

from engine.core.election import NOBODY, NOBODY_REMEDY
from engine.core.fellows import Fellow
from engine.core.messages import NO_EPOCH
from engine.core.name_spaces import Group
from engine.core.states import Phase
from engine.dataset.group_set import Summary
from engine.runtime.monitor import (
    PART,
    AlignmentView,
    DeliveryView,
    DeviationView,
    FellowView,
    GroupView,
    NameSpaceView,
    NodeSnapshot,
    StoreStatus,
    UnkeptView,
    UnprovedView,
)
from engine.runtime.name_space_data import NameSpaceData
from engine.runtime.runtime import Runtime

# Chosen: about a hundred kilobytes. Beyond it the console says how many are left out.
MAX_GROUPS_SHOWN: Final = 500
"""Groups in a snapshot, the first by name: each heartbeat sends one to every console."""
MAX_DEVIATIONS_SHOWN: Final = 100
"""Deviations in a snapshot, for the same reason; the counters have all."""


class Identity(msgspec.Struct, frozen=True):
    """The part of a snapshot that does not change while a node runs."""

    host: str
    """Name of the host."""
    pid: int
    """Process id."""
    domain_id: int
    """DDS domain that the node serves."""
    configuration: str
    """Path of the configuration file."""
    version: str
    """Version of the program."""
    started_ns: int
    """Start of the process, nanoseconds since 1970 UTC."""
    store_kind: str
    """One of "memory", "sqlite" and "simulated"."""
    store_path: str
    """Directory of the store; empty without one."""
    store_findings: tuple[str, ...]
    """What the store reported when it was opened."""
    has_disk: bool = True
    """False if sets are in memory only."""
    addresses: tuple[str, ...] = ()
    """Addresses of the node's interfaces; loopback only without another one."""


def snapshot(
    runtime: Runtime,
    identity: Identity,
    now: float,
    wall_ns: int,
    deliveries: tuple[DeliveryView, ...],
    disk_bytes: int = 0,
    unkept: tuple[UnkeptView, ...] = (),
    asked: Callable[[Group], int] = lambda _: 1,
    unproved: tuple[UnprovedView, ...] = (),
    secret: tuple[str, str] = ("", ""),
) -> NodeSnapshot:
    """Return the present snapshot; `disk_bytes` is the size of the store, 0 if unknown.

    `wall_ns` is the wall clock, in nanoseconds since 1970, and `asked` the deepest HISTORY of the readers of
    a group (`GroupView.asked`). `secret` is the file of the domain's secret, and what is wrong with it.
    """
    settings = runtime.settings
    groups = [view for data in runtime.spaces.values() for view in _groups(runtime, data, identity, asked)]
    return NodeSnapshot(
        id=settings.node,
        name=settings.name,
        role=settings.role,
        host=identity.host,
        pid=identity.pid,
        domain_id=identity.domain_id,
        incarnation=settings.incarnation,
        configuration=identity.configuration,
        version=identity.version,
        time_ns=wall_ns,
        started_ns=identity.started_ns,
        state=runtime.state.value,
        update_period_ns=int(settings.heartbeat_period_s * 1e9),
        store=StoreStatus(
            identity.store_kind,
            identity.store_path,
            runtime.store_queue.problem,
            identity.store_findings,
            disk_bytes,
        ),
        fellows=tuple(_fellow(settings.name, fellow, now, wall_ns) for fellow in runtime.core.fellows),
        name_spaces=tuple(_name_space(runtime, data, now, wall_ns) for data in runtime.spaces.values()),
        groups=tuple(groups[:MAX_GROUPS_SHOWN]),
        groups_left_out=max(0, len(groups) - MAX_GROUPS_SHOWN),
        deliveries=deliveries,
        deviations=_deviations(runtime),
        unkept=unkept,
        unproved=unproved,
        secret=secret[0],
        secret_problem=secret[1],
        addresses=identity.addresses,
        counters={
            **runtime.counters,
            "queued": runtime.store_queue.queued_changes,
            "stalls": runtime.core.stalls,
            "longest_stall_ms": int(runtime.core.longest_stall_s * 1000),
        },
    )


def _deviations(runtime: Runtime) -> tuple[DeviationView, ...]:
    shown = itertools.islice(runtime.late_joiners.deviations.items(), MAX_DEVIATIONS_SHOWN)
    return tuple(
        DeviationView(
            ",".join(runtime.late_joiners.participants(reader)),
            reader.topic,
            ",".join(reader.partitions),
            dict(counts),
        )
        for reader, counts in shown
    )


def _fellow(name: str, fellow: Fellow, now: float, wall_ns: int) -> FellowView:
    communication = "approved" if fellow.approved else "incompatible" if fellow.conflict else "waiting"
    return FellowView(
        id=fellow.node,
        name=fellow.name,
        role=fellow.role,
        state=fellow.status.state.value if fellow.status else "",
        communication=communication,
        last_heartbeat_ns=wall_ns - int((now - fellow.last_heard_s) * 1e9),
        skew_ns=fellow.least_skew_ns,
        problem=fellow.conflict.described(name, fellow.name) if fellow.conflict else "",
    )


def _name_space(runtime: Runtime, data: NameSpaceData, now: float, wall_ns: int) -> NameSpaceView:
    state = data.state
    policy, summary = state.policy, data.applied.summary()
    following = state.following or NO_EPOCH
    return NameSpaceView(
        name=state.name,
        elements=tuple(map(str, state.name_space.elements)),
        aligner=policy.aligner,
        alignee=policy.alignee.value,
        durability=policy.durability.value,
        master_priority=policy.master_priority,
        merges=tuple(f"{rule.type.value} {rule.scope}" for rule in policy.merges),
        phase=PART if state.complete and state.is_lazy else state.phase.value,
        complete=state.complete and not state.is_lazy,
        master=following.node,
        confirmed=state.following is not None,
        epoch=str(following),
        why=state.why,
        merge_id=str(state.lineage),
        quality_ns=max(0, state.quality_ns),
        count=summary.count,
        digest=f"{summary.digest:032x}",
        groups=len(data.applied.groups),
        alignments=tuple(_alignments(runtime, data)),
        master_since_ns=wall_ns - int((now - state.followed_s) * 1e9) if state.following else 0,
        from_parts=state.from_parts,
        is_learned=state.is_learned,
        filtered=policy.filtered,
        backup=data.backup,
        backup_ns=data.backup_ns,
    )


def _alignments(runtime: Runtime, data: NameSpaceData) -> list[AlignmentView]:
    return [
        AlignmentView(
            direction="from",
            fellow=incoming.begin.aligner,
            samples=incoming.samples,
            expected=incoming.begin.count,
            bytes=incoming.bytes,
            started_ns=incoming.started_ns,
        )
        for incoming in runtime.transfers.running(data.state.name)
    ]


def _on_disk(runtime: Runtime, data: NameSpaceData, group: Group, here: Summary) -> int:
    """Return how many of the samples here are on the disk, or will be in a moment.

    A stored sample may be an older one of its instance, so these are all of them only if the disk has exactly
    what is here. How many are older is counted while the disk refuses data.
    """
    stored = data.stored.get(group)
    if stored is None:
        return 0
    if stored.same_content(here):
        return here.count
    refused = runtime.store_queue.refused(data.state.name, group)
    lacking = here.count if refused < 0 else max(1, refused)
    return max(0, min(stored.count, here.count - lacking))


def unstored(runtime: Runtime) -> int:
    """Return how many samples that belong on the disk are at most in memory only."""
    return sum(
        summary.count - _on_disk(runtime, data, group, summary)
        for data in runtime.spaces.values()
        for group, group_set in data.applied.groups.items()
        if (description := runtime.descriptions.get(group)) and data.is_on_disk(description)
        for summary in (group_set.summary(),)
    )


def without_candidates(runtime: Runtime) -> str:
    """Say which name-spaces cannot have a master; empty if all can."""
    names = [f"'{state.name}'" for state in runtime.core.name_spaces if state.why == NOBODY]
    return f"name-space {', '.join(names)} has no master: {NOBODY}; {NOBODY_REMEDY}" if names else ""


def only_parts(runtime: Runtime) -> str:
    """Say of which name-spaces this node has only a part; empty for none."""
    states = runtime.core.name_spaces
    kept = [f"'{state.name}'" for state in states if state.is_lazy and state.complete]
    idle = [f"'{state.name}'" for state in states if state.is_lazy and state.phase is Phase.PASSIVE]
    made = [f"'{state.name}'" for state in states if state.from_parts]
    said = []
    if kept:
        said.append(f"it keeps of name-space {', '.join(kept)} the part that readers on its host want")
    if idle:
        said.append(f"it is Lazy and keeps nothing of name-space {', '.join(idle)}: no reader here wants it")
    if made:
        said.append(f"its set of name-space {', '.join(made)} comes from parts, and may lack data")
    return "; ".join(said)


def refused_groups(runtime: Runtime) -> str:
    """Say which groups are not kept because of a content filter; empty for none."""
    groups = runtime.shared.refused
    more = f" and {len(groups) - 1:,} more" if len(groups) > 1 else ""
    return f"it keeps nothing of group {groups[0]}{more}: the content filter does not fit" if groups else ""


def _groups(
    runtime: Runtime, data: NameSpaceData, identity: Identity, asked: Callable[[Group], int]
) -> list[GroupView]:
    views: list[GroupView] = []
    for group, group_set in sorted(data.applied.groups.items()):
        description = runtime.descriptions.get(group)
        if description is None:
            continue
        summary = group_set.summary()
        views.append(
            GroupView(
                name_space=data.state.name,
                partition=group.partition,
                topic=group.topic,
                type_name=description.type.name,
                durability=description.qos.durability.name,
                samples=summary.count,
                instances=group_set.instance_count,
                bytes=group_set.payload_bytes,
                digest=f"{summary.digest:032x}",
                newest_ns=summary.newest_ns,
                stored=_on_disk(runtime, data, group, summary) if identity.has_disk else 0,
                lost=group_set.lost,
                rejected=tuple(sorted(group_set.rejected.items())),
                too_large=runtime.shared.too_large.get(group, 0),
                depth=description.qos.history_depth,
                limits=description.qos.limits,
                cleanup_delay_ns=description.qos.cleanup_delay_ns,
                asked=asked(group),
                by_source_timestamp=description.qos.by_source_timestamp,
                exclusive=description.qos.exclusive,
                representations=description.qos.representations,
            )
        )
    return views
