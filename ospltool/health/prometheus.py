"""The figures of `ospltool health` as families of Prometheus metrics.

A node that is not heard has `ospltool_node_up` 0, the age of its last heartbeat, and no other value; an
expected one that was never heard has only the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from ospltool.diagnostics.model import Severity
from ospltool.health.health import Health
from ospltool.health.verdict import FAILED
from ospltool.live.nodes import Node
from ospltool.output.text import visible

COUNTERS: Final = {
    "captured": "Samples that the node captured from applications.",
    "stored": "Samples that the node wrote to its store.",
    "delivered": "Samples that the node gave to late joiners.",
}
NS_PER_S: Final = 1e9
LEFT: Final = (
    "Copies that may fail before none is left: 0 with the last copy and, if copies is 0, without any."
)
UP: Final = "Whether a node is heard."


def families(systems: Iterable[tuple[str, Health, int]]) -> list[Metric]:
    """Return the metrics of systems, each given as (domain, health, now in ns)."""
    made = _Families()
    for domain, health, now_ns in systems:
        _whole(made, domain, health)
        _copies(made, domain, health)
        # Of several runs under one name a present one counts, and of those the newest.
        nodes = sorted(
            health.model.nodes.values(), key=lambda node: (not health.is_away(node), node.snapshot.started_ns)
        )
        newest = {node.snapshot.name: node for node in nodes}
        for name in sorted(newest.keys() | set(health.awaited)):
            if name in newest:
                _node(made, domain, newest[name], health, now_ns)
            else:
                made.add("node_up", UP, 0, {"domain": domain, "node": name})
        for service in health.model.persistence.ordered():
            labels = {"domain": domain, "service": service.view.name}
            is_up = not service.gone_ns and not service.is_stale(health.examined_ns(now_ns))
            made.add("service_up", "Whether a persistence service is heard.", is_up, labels)
            if is_up:
                text = "Instances that a persistence service keeps."
                made.add("service_values", text, service.view.values, labels)
    return list(made.known.values())


class _Families:
    """Families by name, in the order in which they were first mentioned."""

    def __init__(self) -> None:
        self.known: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}

    def add(
        self, name: str, text: str, value: float, labels: Mapping[str, str], *, only_grows: bool = False
    ) -> None:
        """Add a value with its labels; `only_grows` says that it does so while a node runs."""
        family = self.known.get(name)
        if family is None:
            kind = CounterMetricFamily if only_grows else GaugeMetricFamily
            family = self.known[name] = kind(f"ospltool_{name}", text, labels=[*labels])
        family.add_metric([visible(label) for label in labels.values()], value)


def _whole(made: _Families, domain: str, health: Health) -> None:
    heard = [node for node in health.model.nodes.values() if health.is_heard(node)]
    complete = sum(node.is_settled for node in heard)
    for name, text, value in (
        (
            "watch_failed",
            "Whether this watch itself has failed: all other values are as old as that.",
            health.verdict.word == FAILED,
        ),
        ("nodes_expected", "Nodes that the fleet file names; 0 without one.", len(health.expected.nodes)),
        ("nodes_heard", "Nodes that are heard.", len(heard)),
        ("nodes_complete", "Nodes that are heard and complete.", complete),
        ("incidents_muted", "Open incidents that are muted.", len(health.muted)),
    ):
        made.add(name, text, value, {"domain": domain})
    for severity in (Severity.ERROR, Severity.WARNING, Severity.NOTICE):  # no incident is INFO
        count = sum(one.severity is severity for one in health.open)
        text = "Open incidents that are not muted, by severity."
        made.add("incidents", text, count, {"domain": domain, "severity": severity.label})
    counts = Counter((one.code.id, one.severity.label) for one in health.open)
    for (code, label), count in sorted(counts.items()):
        text = "Open incidents that are not muted, by code."
        labels = {"domain": domain, "code": code, "severity": label}
        made.add("incidents_by_code", text, count, labels)


def _copies(made: _Families, domain: str, health: Health) -> None:
    for one in health.redundancies:
        for name, text, value in (
            ("copies", "Nodes that are heard and hold a name-space complete.", len(one.held)),
            ("copies_expected", "Copies that the fleet file asks for; 0 if unspecified.", one.wanted),
            ("copies_on_disk", "Copies with all persistent samples on disk.", len(one.on_disk)),
            (
                "copies_on_disk_expected",
                "Copies on disk that the fleet file asks for; 0 if unspecified.",
                one.wanted_on_disk,
            ),
            (
                "redundancy_left",
                LEFT,
                one.left,
            ),
        ):
            made.add(name, text, value, {"domain": domain, "name_space": one.name})


def _node(made: _Families, domain: str, node: Node, health: Health, now_ns: int) -> None:
    snapshot = node.snapshot
    labels = {"domain": domain, "node": snapshot.name}
    is_up = health.is_heard(node)
    made.add("node_up", UP, is_up, labels)
    age_s = max(0, now_ns - health.heartbeat_ns(node)) / NS_PER_S
    made.add("node_heartbeat_age_seconds", "Time since the last heartbeat of a node.", age_s, labels)
    if not is_up:
        return
    made.add("node_complete", "Whether a node is complete.", node.is_settled, labels)
    queued = snapshot.counters.get("queued", 0)
    made.add("node_queued", "Changes of a node that wait for its disk.", queued, labels)
    for counter, text in COUNTERS.items():
        made.add(f"node_{counter}", text, snapshot.counters.get(counter, 0), labels, only_grows=True)
    for space in snapshot.name_spaces:
        whole = {**labels, "name_space": space.name}
        is_master = health.is_master(node, space.name) and space.confirmed
        made.add("samples", "Samples that a node holds of a name-space.", space.count, whole)
        made.add("set_complete", "Whether a node holds a name-space complete.", space.complete, whole)
        made.add("master", "Whether a node is the master of a name-space.", is_master, whole)
