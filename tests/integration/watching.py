"""What nodes show of themselves, and waiting for it."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from typing import Protocol

from engine.runtime import monitor
from engine.runtime.late_joiners import TAIL_S
from engine.runtime.monitor import GroupView, NameSpaceView, NodeEvent, NodePast, NodeSnapshot
from ospltool.live.dds import LiveFeed
from tests.integration.programs import Program

PATIENCE_S = 60.0


class Source(Protocol):
    """Where snapshots and events come from."""

    def take(self) -> list[NodeSnapshot | NodeEvent]: ...

    def wait(self, timeout_s: float) -> object: ...

    def close(self) -> None: ...


class FeedSource:
    """The feed that consoles use, in this process."""

    def __init__(self, feed: LiveFeed) -> None:
        self._feed = feed

    def take(self) -> list[NodeSnapshot | NodeEvent]:
        update = self._feed.poll()
        return [*(heard.snapshot for heard in update.snapshots), *update.events]

    def wait(self, timeout_s: float) -> object:
        return self._feed.wait(timeout_s)

    def close(self) -> None:
        self._feed.close()


class ProgramSource:
    """A feed in another process, for places of the network that this process is not part of."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._held: list[NodeSnapshot | NodeEvent] = []

    def take(self) -> list[NodeSnapshot | NodeEvent]:
        taken, self._held = self._held, []
        return taken

    def wait(self, timeout_s: float) -> object:
        try:
            line = self._program.line(timeout_s)
        except queue.Empty:
            return False
        message = monitor.decode(line["monitor"].encode())
        assert not isinstance(message, NodePast)
        self._held.append(message)
        return True

    def close(self) -> None:
        self._program.end()


class Watch:
    """The newest snapshot of each node, and all events that were heard."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._snapshots: dict[str, NodeSnapshot] = {}
        self.events: list[NodeEvent] = []
        self.check: Callable[[], None] = lambda: None

    def node(self, name: str) -> NodeSnapshot | None:
        return self._snapshots.get(name)

    def forget(self, *names: str) -> None:
        """What a node that is started again showed before does not count."""
        self._look()
        for name in names:
            self._snapshots.pop(name, None)

    def _look(self) -> None:
        for item in self._source.take():
            if isinstance(item, NodeEvent):
                self.events.append(item)
            else:
                known = self._snapshots.get(item.name)
                if known is None or (item.started_ns, item.time_ns) > (known.started_ns, known.time_ns):
                    self._snapshots[item.name] = item

    def wait_for(self, what: str, condition: Callable[[], object], timeout_s: float = PATIENCE_S) -> float:
        """Wait until the condition holds; returns the seconds it took."""
        started = time.monotonic()
        while True:
            self._look()
            if condition():
                return time.monotonic() - started
            self.check()
            left = started + timeout_s - time.monotonic()
            if left <= 0:
                raise AssertionError(f"not in {timeout_s:g} s: {what}; shown: {self._shown()}")
            self._source.wait(min(left, 0.5))

    def _shown(self) -> str:
        return "; ".join(
            f"{node.name} {node.state} fellows={[(f.name, f.communication) for f in node.fellows]}"
            f" spaces={[(s.name, s.phase, s.count, s.master[:4], s.digest[:6]) for s in node.name_spaces]}"
            f" stored={sum(group.stored for group in node.groups)} problem={node.store.problem!r}"
            for node in self._snapshots.values()
        )

    def close(self) -> None:
        self._source.close()

    # What is often asked.

    def space(self, node: str, name: str = "stock") -> NameSpaceView | None:
        shown = self.node(node)
        return next((space for space in shown.name_spaces if space.name == name), None) if shown else None

    def groups(self, node: str) -> tuple[GroupView, ...]:
        shown = self.node(node)
        return shown.groups if shown else ()

    def stored(self, node: str) -> int:
        """Samples that the node shows as being on its disk."""
        return sum(group.stored for group in self.groups(node))

    def samples(self, node: str) -> int:
        """Samples that the node shows to hold."""
        return sum(group.samples for group in self.groups(node))

    def wait_for_tails(self, count: int, *names: str) -> None:
        """Until these nodes have ended so many deliveries, and no new sample can belong to one of them."""

        def are_over() -> bool:
            shown = [node for name in names if (node := self.node(name)) is not None]
            ends = [(one.finished_ns, node.time_ns) for node in shown for one in node.deliveries]
            over = [end_ns for end_ns, now_ns in ends if end_ns and now_ns - end_ns > 2e9 * TAIL_S]
            return len(over) == len(ends) >= count

        self.wait_for(f"{count} deliveries are over", are_over)

    def are_complete(self, *names: str) -> bool:
        """Whether all are complete, know each other, follow one master and hold the same."""
        shown = [self.node(name) for name in names]
        if not all(node is not None and node.state == "COMPLETE" for node in shown):
            return False
        spaces = {
            (space.name, space.complete, space.confirmed, space.master, space.digest, space.count)
            for node in shown
            if node is not None
            for space in node.name_spaces
        }
        if len({space[0] for space in spaces}) != len(spaces) or not all(s[1] and s[2] for s in spaces):
            return False
        return all(self.fellows(name, "approved") >= set(names) - {name} for name in names)

    def fellows(self, node: str, communication: str) -> set[str]:
        """Names of the fellows with which a node communicates like this."""
        shown = self.node(node)
        fellows = shown.fellows if shown else ()
        return {fellow.name for fellow in fellows if fellow.communication == communication}

    def master(self, node: str, name_space: str = "stock") -> str:
        """The name of the master that a node follows; empty for none."""
        space = self.space(node, name_space)
        if space is None or not space.confirmed:
            return ""
        return next((n.name for n in self._snapshots.values() if n.id == space.master), space.master)
