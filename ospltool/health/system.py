"""A watched system: its feed, its model and its health."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ospltool.health.health import Health
from ospltool.live.feed import Feed
from ospltool.live.model import SystemModel

Source = tuple[Feed, Callable[[SystemModel], Health]]
"""A feed, and a function that makes the health of its model."""


class System:
    """A watched system."""

    def __init__(self, source: Source) -> None:
        self.feed, watch_health = source
        self.model = SystemModel()
        self.health = watch_health(self.model)

    def update(self) -> None:
        """Take in an update of the feed and examine the model."""
        for _ in self.steps():
            pass

    def steps(self) -> Iterator[None]:
        """Do what `update` does, in steps of a few milliseconds."""
        update = self.feed.poll()
        now_ns = self.feed.now_ns()
        yield
        yield from self.model.steps(update, now_ns)
        yield from self.health.steps(now_ns)

    def is_settled(self) -> bool:
        """Return whether every expected node is heard or known to be absent, and no sign is too young."""
        names = {node.snapshot.name for node in self.model.nodes.values()}
        open_names = {one.who for one in self.health.open}
        return set(self.health.expected.nodes) <= names | open_names and not self.health.is_waiting
