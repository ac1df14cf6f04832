"""A watched system: its feed, model and health, and the reports of this machine's supervisors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from engine.supervisor.node_status import Condition, NodeStatus, status_of
from engine.supervisor.policy import NodePhase
from engine.supervisor.rundir import RunDirectory, RunDirectoryError, location
from ospltool.health.bookmarks import Bookmarks
from ospltool.health.health import Health
from ospltool.health.own_pauses import OwnPauses
from ospltool.health.scene import SupervisorReport
from ospltool.live.feed import Feed
from ospltool.live.model import SystemModel
from ospltool.live.replay import ReplayFeed

STEP: Final = 10
"""Lines of a recording that are taken in at once."""

Source = tuple[Feed, Callable[[SystemModel], Health]]
"""A feed, and a function that makes the health of its model."""


class System:
    """A watched system.

    Attributes:
        pauses: when the watcher stood still itself; until it hears the nodes again nothing is examined.
    """

    def __init__(self, source: Source) -> None:
        self.feed, watch_health = source
        self.health = watch_health(SystemModel())
        self.pauses = OwnPauses()
        self._bookmarks = Bookmarks(self.health) if isinstance(self.feed, ReplayFeed) else None

    @property
    def model(self) -> SystemModel:
        """The model. Winding a recording back puts another one, and other health, in its place."""
        return self.health.model

    def update(self) -> None:
        """Take in an update of the feed and examine the model."""
        for _ in self.steps():
            pass

    def steps(self) -> Iterator[None]:
        """Do what `update` does, in steps of a few milliseconds."""
        if isinstance(self.feed, ReplayFeed):
            yield from self._replay(self.feed)
            return
        self.pauses.look(self.model)
        update = self.feed.poll()
        now_ns = self.feed.now_ns()
        yield
        yield from self.model.steps(update, now_ns)
        if self.pauses.is_over(self.model):
            yield from self.health.steps(now_ns)

    def _replay(self, feed: ReplayFeed) -> Iterator[None]:
        """Come to the moment that a recording shows, and examine the model at the moments that it names."""
        assert self._bookmarks is not None
        if feed.must_wind_back():
            self.health = self._bookmarks.health_at(feed.wind_back(iter(self._bookmarks)), self.health)
        for index, played in enumerate(feed.played(), 1):
            if played.update is not None:
                self.model.apply(played.update, played.moment_ns)
            elif played.bookmark is not None:
                self._bookmarks.keep(played.bookmark, self.health)
            else:
                yield from self.health.examine(played.moment_ns)
            if index % STEP == 0:
                yield

    def is_settled(self) -> bool:
        """Return whether every awaited node is heard or known to be absent, and no sign is too young."""
        names = {node.snapshot.name for node in self.model.nodes.values()}
        open_names = {one.who for one in self.health.open}
        return set(self.health.awaited) <= names | open_names and not self.health.is_waiting


_WORTH_TELLING = frozenset(
    {Condition.RESTARTING, Condition.UNRESPONSIVE, Condition.STOPPED, Condition.DIED, Condition.STOPPING}
)


_TROUBLE: Final = frozenset({Condition.RESTARTING, Condition.UNRESPONSIVE, Condition.DIED})

_NEXT: Final = {
    Condition.RESTARTING: "Wait: its supervisor starts it again. Its ospl-error.log tells the failure.",
    Condition.DIED: "Start it again on its host: `ospltool start` with its configuration.",
}
"""Advice for conditions of which the supervisor, or its absence, tells what happens next."""

ORPHAN: Final = (
    "It ends by itself, as its supervisor does not run; then start it again with `ospltool start`."
)


def supervisor_reports(environ: Mapping[str, str], domain_id: int) -> dict[str, SupervisorReport]:
    """Return the reports of this user's supervisors on the nodes of a domain, by name; empty without any."""
    try:
        directories = RunDirectory(location(environ)).nodes()
    except (RunDirectoryError, OSError):
        return {}
    found: dict[str, tuple[int, SupervisorReport]] = {}
    for directory in directories:
        status = status_of(directory)
        if status is None or status.record.domain_id != domain_id:
            continue
        name, changed_ns = status.record.domain_name, status.record.changed_ns
        if name not in found or found[name][0] < changed_ns:
            found[name] = changed_ns, _report(status)
    return {name: report for name, (_, report) in found.items()}


def _report(status: NodeStatus) -> SupervisorReport:
    record = status.record
    in_order = status.condition is Condition.STOPPED and record.phase is NodePhase.ENDED
    told = [str(status.condition)] if status.condition in _WORTH_TELLING else []
    if status.store_problem:
        told.append(f"its store: {status.store_problem}")
    if status.waits_for:
        told.append(f"it waits: {status.waits_for}")
    told.append(status.reason or record.failure)
    if record.restarts:
        told.append(f"started again {record.restarts} {'time' if record.restarts == 1 else 'times'}")
    text = ", ".join(filter(None, told))
    starting = status.condition is Condition.STARTING and not (status.store_problem or record.failed_ns)
    by = "seen on its host" if status.is_unsupervised else "its supervisor says"
    advice = ORPHAN if status.is_orphan else _NEXT.get(status.condition, "")
    is_trouble = status.condition in _TROUBLE
    runs = record.node is not None and record.node.is_alive()
    is_dead = status.condition in (Condition.DIED, Condition.RESTARTING) and not runs
    said = f"{by}: {text}" if text else ""
    return SupervisorReport(
        said,
        in_order,
        starting,
        is_trouble,
        is_dead=is_dead,
        next=advice if text else "",
        is_coming=status.condition is Condition.RESTARTING,
        store=record.store,
        pid=record.node.pid if record.node is not None and runs else 0,
        ended_ns=_ended_ns(status) if is_dead else 0,
        started_ns=record.started_ns,
        failed_ns=record.failed_ns,
    )


def _ended_ns(status: NodeStatus) -> int:
    """Return when a dead node ended, as its supervisor saw it; 0 if that was killed as well."""
    if status.is_unsupervised:
        return 0
    is_restarting = status.condition is Condition.RESTARTING
    return status.record.failed_ns if is_restarting else status.record.changed_ns
