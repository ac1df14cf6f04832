"""What a watch makes of messages that it can read, as a target for odd values: model, health, outputs."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, generate_latest

from engine.dds.interfaces import without_route
from engine.persistence.service import replica_view
from engine.persistence.service.replica_view import ReplicaView
from engine.runtime import monitor
from engine.runtime.monitor import (
    AlignmentView,
    DeliveryView,
    DeviationView,
    NodeEvent,
    NodePast,
    NodeSnapshot,
    UnkeptView,
)
from engine.tracing.catalogue import catalogue
from ospltool.cli.health import incident_lines
from ospltool.health import export, prometheus
from ospltool.health.health import Health
from ospltool.live.feed import FeedNotice, HeardReplica, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from ospltool.output import envelope
from ospltool.output.text import visible
from ospltool.views import alignment, groups, incidents, node, overview
from ospltool.views.cells import UNICODE
from ospltool.views.view import View
from tests import fake
from tests.fuzzing import COSTLY, Target, damaged_values
from tests.property.fuzz_messages import some
from tui import panels
from tui.advertised import findings_of
from tui.screens import conflicts, persistence

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prometheus_client.metrics_core import Metric

_S: Final = fake.SECOND_NS
_WIDTH: Final = 100
_TELLING: Final = (
    *("capture.back-pressure", "watch.stalled", "watch.progress-lost", "fellow.late", "fellow.lost"),
    *("identity.shared", "store.degraded", "capture.lost", "lifecycle.daemon-lost", "conflict.detected"),
    *("message.unsupported", "filter.refused", "lifecycle.setting-ignored"),
)
_VALUES: Final = ("7 'x'", "inf", "9" * 5_000, "²", "-1", "1.000", "n2", "\x1b[31m")
"""What the fields of their texts may say."""


def _messages() -> list[bytes]:
    """One message of each kind, and an event of each kind from which something is concluded."""
    aligning = AlignmentView("from", fake.node_id(2), 5, 10, 100, fake.START_NS)
    feed = fake.FakeFeed(1, 1, 2)
    (heard,) = next(filter(None, (feed.poll().snapshots for _ in range(10))))
    whole = fake.snapshot(
        1,
        fake.name_space("A", 1, alignments=(aligning,), complete=False),
        fellows=(fake.fellow(2),),
        groups=heard.snapshot.groups,
        deliveries=(some(DeliveryView),),
        deviations=(some(DeviationView),),
        unkept=(some(UnkeptView),),
        counters={"captured": 1, "lost": 2, "malformed": 3, "shown_later": 4},
    )
    known = {kind.id: kind.text for kind in catalogue().values()}
    events = [
        fake.event(1, 1, fake.START_NS, re.sub(r"\{[^}]*\}", value, known.get(one, "text")), event=one)
        for one in _TELLING
        for value in _VALUES
    ]
    past = NodePast(
        fake.node_id(1),
        "n1",
        tuple(events[:1]),
        (monitor.Masterhood(fake.START_NS, "A", "r", fake.node_id(1), "1/aa", "why"),),
        (monitor.Run(fake.START_NS - 5, 1, "v", fake.START_NS, "in order"),),
    )
    served = fake.replica("a", fake.provided(1), subscriptions=(fake.subscription("s"),))
    told: list[monitor.Message] = [whole, past, *events]
    every = [monitor.encode(one) for one in told]
    return [*every, *every[:1] * len(events), *[replica_view.encode(served)] * len(events)]


class _Shown:
    """A registry of metrics in miniature."""

    def __init__(self, health: Health, now_ns: int) -> None:
        self._health, self._now_ns = health, now_ns

    def collect(self) -> Iterable[Metric]:
        return prometheus.families([("0", self._health, self._now_ns)])


def _update(data: bytes, now_ns: int) -> Update | None:
    """What a feed makes of a message; None of one that cannot be read."""
    with contextlib.suppress(monitor.MonitorFault):
        match monitor.decode(data):
            case NodeSnapshot() as snapshot:
                without_route(snapshot.addresses)
                return Update(snapshots=(ReceivedSnapshot(snapshot, now_ns),))
            case NodeEvent() as event:
                return Update(events=(event,))
            case past:
                return Update(pasts=(past,))
    with contextlib.suppress(replica_view.ViewFault):
        view: ReplicaView = replica_view.decode(data)
        return Update(replicas=(HeardReplica(view, now_ns),))
    return None


def watch(data: bytes) -> None:
    """A watch of two nodes hears a message twice, then nothing, and tells everything that it knows."""
    model = SystemModel()
    health = Health(model)
    now_ns = fake.START_NS + _S
    for number in (1, 2):
        well = fake.snapshot(number, fake.name_space("A", 1), fellows=(fake.fellow(3 - number),))
        model.apply(Update(snapshots=(ReceivedSnapshot(well, now_ns),)), now_ns)
    for step in range(4):
        update = _update(data, now_ns) if step < 2 else Update()
        if update is None:
            return
        model.apply(update, now_ns)
        if step == 3:
            lost = FeedNotice(NoticeKind.NODE_LOST, now_ns, "its participant has left", fake.node_id(1))
            model.apply(Update(notices=(lost,)), now_ns)
        for _ in health.examine(now_ns):
            pass
        now_ns += (step + 1) * 2 * _S
    _tell(health, now_ns)


def _tell(health: Health, now_ns: int) -> None:
    """All that `health`, `metrics`, `record --once`, `top --json` and the console tell, but findings.

    The JSON is on one line: to indent it takes as long as all the rest.
    """
    envelope.line("system", export.system(health, now_ns))
    assert all(line.isprintable() for line in export.as_csv(health).splitlines())
    for one in health.every:
        [visible(line).encode() for line in incident_lines(one, now_ns)]
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Shown(health, now_ns))
    generate_latest(registry)
    nodes = health.model.ordered_nodes()
    view = View(health, now_ns, UNICODE)
    for rows in (alignment.alignments, conflicts.conflicts, groups.groups, incidents.incidents):
        rows(view, _WIDTH)
    overview.hour_lines(view, _WIDTH, 9)
    incidents.summary(view, _WIDTH)
    panels.caption_lines(view, _WIDTH)
    persistence.replicas(view, _WIDTH)
    for replica in health.model.persistence.ordered():
        persistence.replica_lines(view, replica, _WIDTH)
        persistence.streams(view, replica, _WIDTH)
        persistence.subscriptions(view, replica, _WIDTH)
    for one_node in nodes:
        node.card(view, one_node)
        node.counter_lines(view, one_node, _WIDTH)
        node.curves(view, one_node)
        node.fellows(view, one_node, _WIDTH)
        node.name_spaces(view, one_node, _WIDTH)
        overview.detail(view, one_node, None)


def _findings(data: bytes) -> None:
    """Findings about the settings that a node advertises."""
    with contextlib.suppress(monitor.MonitorFault):
        heard = monitor.decode(data)
        if isinstance(heard, NodeSnapshot):
            findings_of([fake.snapshot(2, fake.name_space("A", 1)), heard])


def targets() -> Sequence[Target]:
    """All that a watch makes of what it hears."""
    messages = _messages()
    return (
        Target("watch", messages, watch, COSTLY, damaged_values),
        Target("watch-findings", messages[:1], _findings, COSTLY, damaged_values),
    )
