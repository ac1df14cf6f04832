"""The figures of `ospltool health` as families of Prometheus metrics.

A node that is not heard has `ospltool_node_up` 0, the age of its last heartbeat, and no other value; an
expected one that was never heard has only the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
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

NODE: Final = ("domain", "node")
SPACE: Final = ("domain", "name_space")
SET: Final = ("domain", "node", "name_space")
NS_PER_S: Final = 1e9
UP: Final = "Whether a node is heard."


def families(systems: Iterable[tuple[str, Health, int]]) -> list[Metric]:
    """Return the metrics of systems, each given as (domain, health, now in ns)."""
    made = _Families()
    for domain, health, now_ns in systems:
        _whole(made, domain, health)
        _copies(made, domain, health)
        newest = _newest(health)
        for name in sorted(newest.keys() | set(health.expected.nodes)):
            if name in newest:
                _node(made, domain, name, newest[name], health, now_ns)
            else:
                made.gauge("node_up", UP, NODE, (domain, name), 0)
        for service in health.model.persistence.ordered():
            labels = domain, service.view.name
            is_up = not service.gone_ns and not service.is_stale(health.examined_ns(now_ns))
            made.gauge(
                "service_up", "Whether a persistence service is heard.", ("domain", "service"), labels, is_up
            )
            if is_up:
                text = "Instances that a persistence service keeps."
                made.gauge("service_values", text, ("domain", "service"), labels, service.view.values)
    return list(made)


class _Families:
    """Families by name, in the order in which they were first mentioned."""

    def __init__(self) -> None:
        self._known: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._known.values())

    def gauge(self, name: str, text: str, names: Sequence[str], labels: Sequence[str], value: float) -> None:
        """Add a value that can rise and fall."""
        family = self._known.get(name) or GaugeMetricFamily(f"ospltool_{name}", text, labels=names)
        self._known[name] = family
        family.add_metric([visible(label) for label in labels], value)

    def counter(self, name: str, text: str, labels: Sequence[str], value: float) -> None:
        """Add a value of a node that only grows while the node runs."""
        family = self._known.get(name) or CounterMetricFamily(f"ospltool_{name}", text, labels=NODE)
        self._known[name] = family
        family.add_metric([visible(label) for label in labels], value)


def _whole(made: _Families, domain: str, health: Health) -> None:
    def say(name: str, text: str, value: float) -> None:
        made.gauge(name, text, ("domain",), (domain,), value)

    text = "Whether this watch itself has failed: all other values are as old as that."
    say("watch_failed", text, health.verdict.word == FAILED)
    heard = [node for node in health.model.nodes.values() if health.is_heard(node)]
    say("nodes_expected", "Nodes that the fleet file names; 0 without one.", len(health.expected.nodes))
    say("nodes_heard", "Nodes that are heard.", len(heard))
    complete = sum(node.snapshot.state == "COMPLETE" for node in heard)
    say("nodes_complete", "Nodes that are heard and complete.", complete)
    say("incidents_muted", "Open incidents that are muted.", len(health.muted))
    for severity in (Severity.ERROR, Severity.WARNING, Severity.NOTICE):  # no incident is INFO
        count = sum(one.severity is severity for one in health.open)
        text = "Open incidents that are not muted, by severity."
        made.gauge("incidents", text, ("domain", "severity"), (domain, severity.label), count)
    counts = Counter((one.code.id, one.severity.label) for one in health.open)
    for (code, label), count in sorted(counts.items()):
        text = "Open incidents that are not muted, by code."
        made.gauge("incidents_by_code", text, ("domain", "code", "severity"), (domain, code, label), count)


def _copies(made: _Families, domain: str, health: Health) -> None:
    for one in health.redundancies:

        def say(name: str, text: str, value: float, labels: Sequence[str] = (domain, one.name)) -> None:
            made.gauge(name, text, SPACE, labels, value)

        say("copies", "Nodes that are heard and hold a name-space complete.", len(one.held))
        say("copies_expected", "Copies that the fleet file asks for; 0 if unspecified.", one.wanted)
        say("copies_on_disk", "Copies with all persistent samples on disk.", len(one.on_disk))
        text = "Copies on disk that the fleet file asks for; 0 if unspecified."
        say("copies_on_disk_expected", text, one.wanted_on_disk)
        text = (
            "Copies that may fail before none is left: 0 with the last copy and, if copies is 0, without any."
        )
        say("redundancy_left", text, one.left)


def _newest(health: Health) -> dict[str, Node]:
    """Return nodes by name: of several runs under one name a present one, and of those the newest."""
    ordered = sorted(
        health.model.nodes.values(), key=lambda node: (not health.is_away(node), node.snapshot.started_ns)
    )
    return {node.snapshot.name: node for node in ordered}


def _node(made: _Families, domain: str, name: str, node: Node, health: Health, now_ns: int) -> None:
    labels = domain, name
    is_up = health.is_heard(node)
    made.gauge("node_up", UP, NODE, labels, is_up)
    age_s = max(0, now_ns - health.heartbeat_ns(node)) / NS_PER_S
    made.gauge("node_heartbeat_age_seconds", "Time since the last heartbeat of a node.", NODE, labels, age_s)
    if not is_up:
        return
    snapshot = node.snapshot
    made.gauge("node_complete", "Whether a node is complete.", NODE, labels, snapshot.state == "COMPLETE")
    queued = snapshot.counters.get("queued", 0)
    made.gauge("node_queued", "Changes of a node that wait for its disk.", NODE, labels, queued)
    for counter, text in COUNTERS.items():
        made.counter(f"node_{counter}", text, labels, snapshot.counters.get(counter, 0))
    for space in snapshot.name_spaces:
        whole = *labels, space.name
        made.gauge("samples", "Samples that a node holds of a name-space.", SET, whole, space.count)
        made.gauge("set_complete", "Whether a node holds a name-space complete.", SET, whole, space.complete)
        is_master = health.is_master(node, space.name) and space.confirmed
        made.gauge("master", "Whether a node is the master of a name-space.", SET, whole, is_master)
