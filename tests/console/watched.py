"""A scenario of the simulator as a console sees it: real advertised states and events in a live model."""

from __future__ import annotations

from engine.runtime.monitor import NodeEvent, NodeSnapshot
from engine.simulator.cluster import PIECE_S
from engine.simulator.observing import Gone, Observer, Seen
from engine.simulator.schedule import START_NS
from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from ospltool.views.cells import UNICODE
from ospltool.views.view import Filter, Subject, View
from tests.health.looking import looked
from tests.simulation.scenarios import Scenario

S = 1_000_000_000


class Watched:
    """Everything that the nodes of a scenario show goes to `model`, and is kept in `updates`.

    A console that is opened later is a new `model`.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.model = SystemModel()
        self.updates: list[tuple[int, Update]] = []
        self._seen: list[Seen] = []
        self._observer = Observer(scenario.cluster, self._seen)
        scenario.cluster.watchers.append(self._observer)
        scenario.cluster.schedule.after(0.0, self._look)

    def _look(self) -> None:
        self._observer.observe()
        self.take()
        self.scenario.cluster.schedule.after(PIECE_S, self._look)

    @property
    def now_ns(self) -> int:
        """The moment that ages are counted from."""
        return START_NS + round(self.scenario.now * S)

    def take(self) -> None:
        """Hand to the model what the nodes have shown."""
        snapshots = [
            ReceivedSnapshot(one.item, one.time_ns)
            for one in self._seen
            if isinstance(one.item, NodeSnapshot)
        ]
        events = [one.item for one in self._seen if isinstance(one.item, NodeEvent)]
        notices = [
            FeedNotice(NoticeKind.NODE_LOST, one.time_ns, "its run has ended", one.item.node)
            for one in self._seen
            if isinstance(one.item, Gone)
        ]
        self._seen.clear()
        self.tell(Update(tuple(snapshots), tuple(events), tuple(notices)))

    def tell(self, update: Update) -> None:
        """Hand an update to the model."""
        if update:
            self.updates.append((self.now_ns, update))
            self.model.apply(update, self.now_ns)

    def node(self, name: str) -> str:
        """The id of a node, by its name."""
        return next(node.id for node in self.scenario.cluster.nodes if node.name == name)

    def view(
        self, text: str = "", fields: tuple[str, ...] = (), *, node: str = "", later_s: float = 0.0
    ) -> View:
        """What screens are computed from; with `later_s`, that much later without anything heard."""
        self.take()
        subject = Subject(self.node(node) if node else "")
        now_ns = self.now_ns + round(later_s * S)
        return View(looked(self.model, now_ns), now_ns, UNICODE, Filter.parse(text, fields), subject)
