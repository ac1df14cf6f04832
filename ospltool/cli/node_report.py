"""The output of `start`, `status` and `list`: nodes as JSON, sentences or a table."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ospltool.output import envelope, streams
from ospltool.output.text import visible

if TYPE_CHECKING:
    from engine.supervisor.status import NodeStatus


def as_data(status: NodeStatus) -> dict[str, object]:
    """Return the JSON form of a node."""
    record = status.record
    return {
        "domain_name": record.domain_name,
        "domain_id": record.domain_id,
        "role": record.role,
        "condition": status.condition.name.lower(),
        "state": status.state,
        "state_since_ns": status.state_since_ns,
        "reason": status.reason,
        "store_problem": status.store_problem,
        "in_memory_only": status.unstored,
        "waits_for": status.waits_for,
        "parts": status.parts,
        "refused": status.refused,
        "capture": status.capture,
        "capture_reason": status.capture_reason,
        "uri": record.uri,
        "configuration": record.configuration,
        "store": record.store,
        "started_ns": record.started_ns,
        "changed_ns": record.changed_ns,
        "restarts": record.restarts,
        "last_failure": record.failure,
        "last_failure_ns": record.failed_ns,
        "supervisor_pid": record.supervisor.pid,
        "node_pid": record.node.pid if record.node is not None else None,
        "directory": status.directory.path,
    }


def put_json(kind: str, statuses: Sequence[NodeStatus]) -> None:
    """Write nodes as JSON."""
    streams.put(envelope.document(kind, [as_data(status) for status in statuses]))


def put_sentences(statuses: Sequence[NodeStatus]) -> None:
    """Write a sentence for each node, with its configuration if several nodes have its domain name."""
    names = collections.Counter(status.record.domain_name for status in statuses)
    for status in statuses:
        record = status.record
        place = f"{record.configuration}: " if names[record.domain_name] > 1 else ""
        streams.put(visible(place + status.sentence) + "\n")


def put_table(statuses: Sequence[NodeStatus]) -> None:
    """Write nodes as a table."""
    header = ("DOMAIN NAME", "CONDITION", "STATE", "ROLE", "PID", "CONFIGURATION")
    rows = [
        (
            status.record.domain_name,
            status.condition.name.lower(),
            (f"{status.state}, part" if status.parts else status.state) or "-",
            status.record.role,
            status.record.node.pid if status.record.node is not None else "-",
            status.record.configuration,
        )
        for status in statuses
    ]
    streams.put_table(header, rows)
