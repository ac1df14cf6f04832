"""The text of `ospltool persistence status`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ospltool.live import persistence
from ospltool.output.text import table, visible

if TYPE_CHECKING:
    from engine.persistence.service.replica_view import ReplicaView, SubscriptionView, WriterView

_SHOWN_COUNTERS = ("captured", "received", "repeated", "sent", "changes")


def text(replicas: Sequence[ReplicaView]) -> str:
    """Return tables of replicas, of the providers of each writer, of durable subscriptions, and problems."""
    header = ("REPLICA", "SERVICE", "PID", "VALUES", "STORED", "CONNECTED", *map(str.upper, _SHOWN_COUNTERS))
    rows = [
        (
            each.name,
            each.service,
            each.pid,
            each.values,
            "no" if each.unwritten else "yes",
            ",".join(persistence.connected(each)) or persistence.NOTHING,
            *(each.counters.get(name, 0) for name in _SHOWN_COUNTERS),
        )
        for each in replicas
    ]
    parts = [table(header, rows)]
    known = [(each.name, writer) for each in replicas for writer in each.writers]
    writers = [one for one in known if persistence.is_of_interest(one[1])]
    if writers:
        parts.append(_writers(writers))
    subscriptions = [(each.name, one) for each in replicas for one in each.subscriptions]
    if subscriptions:
        parts.append(_subscriptions(subscriptions))
    quiet = {one[1].writer for one in known} - {one[1].writer for one in writers}
    left_out = len(quiet) + max((each.writers_left_out for each in replicas), default=0)
    if left_out:
        parts.append(f"{left_out} more writers are known, of which nothing comes and nothing is missing\n")
    problems = [f"{visible(each.name)}: {visible(one)}\n" for each in replicas for one in each.problems]
    if problems:
        parts.append("".join(problems))
    return "\n".join(parts)


def _writers(writers: Sequence[tuple[str, WriterView]]) -> str:
    header = ("TOPIC", "PARTITION", "WRITER", "REPLICA", "PROVIDER", "SELECTED", "LAG", "STABLE", "PATH")
    ordered = sorted(
        writers, key=lambda one: (one[1].topic, one[1].partition, one[1].writer, one[1].late, one[0])
    )
    return table(header, map(_row, ordered))


def _row(one: tuple[str, WriterView]) -> tuple[object, ...]:
    replica, writer = one
    return (
        writer.topic,
        writer.partition or persistence.NOTHING,
        persistence.short_name(writer),
        replica,
        persistence.used(writer),
        persistence.selected(writer),
        persistence.lag(writer.lag_ns),
        persistence.stability(writer),
        persistence.path(writer),
    )


def _subscriptions(subscriptions: Sequence[tuple[str, SubscriptionView]]) -> str:
    header = ("SUBSCRIPTION", "TOPIC", "PARTITION", "QUORUM", "REPLICA", "PENDING", "MEMBERS", "IN DOUBT")
    ordered = sorted(subscriptions, key=lambda one: (one[1].name, one[1].topic, one[1].partition, one[0]))
    rows = [
        (
            each.name,
            each.topic,
            each.partition or persistence.NOTHING,
            each.quorum,
            replica,
            each.pending,
            persistence.members(each.members),
            persistence.in_doubt(each.in_doubt),
        )
        for replica, each in ordered
    ]
    return table(header, rows)
