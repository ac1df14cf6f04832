"""Invented nodes, and feeds that behave like live ones: for tests, pictures, and measuring the console.

Nothing here talks to a network. The same seed and the same calls give the same snapshots.
"""

from __future__ import annotations

import collections
import dataclasses
import random
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from engine.persistence.service.replica_view import KeptGroupView as PersistedGroup
from engine.persistence.service.replica_view import ReplicaView, SubscriptionView, WriterView
from engine.runtime.monitor import (
    AlignmentView,
    FellowView,
    GroupView,
    NameSpaceView,
    NodeEvent,
    NodeSnapshot,
    StoreStatus,
)
from ospltool.live.feed import Inbox, ReceivedSnapshot, Update

START_NS: Final = 1_795_223_000_000_000_000
SECOND_NS: Final = 1_000_000_000


def node_id(number: int) -> str:
    """A 128-bit id that is easy to recognise."""
    return f"{number:08x}" + "5a" * 12


def name_space(name: str, master: int, /, **changes: Any) -> NameSpaceView:
    """A complete name-space whose master is node `master`; `changes` replaces fields."""
    view = NameSpaceView(
        name=name,
        elements=(f"{name}.*",),
        aligner=True,
        alignee="Initial",
        durability="Persistent",
        master_priority=100,
        merges=("Merge *",),
        phase="complete",
        complete=True,
        master=node_id(master) if master else "",
        confirmed=bool(master),
        epoch=f"1/{node_id(master)[:8]}",
        why="highest masterPriority of n1 200, n2 100, n3 50",
        merge_id="0/0",
        quality_ns=START_NS - 3600 * SECOND_NS,
        count=1000,
        digest="9f3c",
        groups=2,
    )
    return msgspec.structs.replace(view, **changes)


def fellow(number: int, /, heartbeat_ns: int = START_NS, **changes: Any) -> FellowView:
    """An approved fellow; `changes` replaces fields."""
    view = FellowView(
        id=node_id(number),
        name=f"n{number}",
        role="DefaultRole",
        state="COMPLETE",
        communication="approved",
        last_heartbeat_ns=heartbeat_ns,
    )
    return msgspec.structs.replace(view, **changes)


def snapshot(number: int, /, *name_spaces: NameSpaceView, **changes: Any) -> NodeSnapshot:
    """Node `number` in state COMPLETE; `changes` replaces fields."""
    value = NodeSnapshot(
        id=node_id(number),
        name=f"n{number}",
        role="DefaultRole",
        host=f"host-{number}",
        addresses=(f"10.0.{number // 256}.{number % 256}",),
        pid=4000 + number,
        domain_id=7,
        incarnation=1,
        configuration=f"file:///etc/ospl/n{number}.xml",
        version="0.1.0",
        time_ns=START_NS,
        started_ns=START_NS - 600 * SECOND_NS,
        state="COMPLETE",
        update_period_ns=SECOND_NS,
        store=StoreStatus("sqlite", f"/var/lib/ospltool/n{number}"),
        name_spaces=name_spaces,
    )
    return msgspec.structs.replace(value, **changes)


def event(number: int, node: int, time_ns: int, text: str, /, **changes: Any) -> NodeEvent:
    """Event `number` of node `node`; `changes` replaces fields."""
    value = NodeEvent(
        node=node_id(node),
        node_name=f"n{node}",
        number=number,
        time_ns=time_ns,
        state="COMPLETE",
        thread="ospl_durability",
        level="INFO",
        event="node.state",
        text=text,
    )
    return msgspec.structs.replace(value, **changes)


def provided(writer: int, topic: str = "Trade", /, **changes: Any) -> WriterView:
    """Original writer number `writer` of a topic, taken from directly; `changes` replaces fields."""
    value = WriterView(
        writer=f"{writer:032x}",
        topic=topic,
        partition="Orders",
        late=False,
        direct=True,
        provider="original",
        filling=(),
        selected="original",
        selected_filling=(),
        lag_ns=0,
        stable=2,
        stable_of=2,
        unsettled=0,
        unsettled_of=6,
        path=("a",),
    )
    return dataclasses.replace(value, **changes)


def subscription(name: str, /, **changes: Any) -> SubscriptionView:
    """A durable subscription with its one reader, that has acknowledged all; `changes` replaces fields."""
    value = SubscriptionView(name, "Trade", "Orders", 1, (name,), 0, {})
    return dataclasses.replace(value, **changes)


def replica(name: str, /, *writers: WriterView, **changes: Any) -> ReplicaView:
    """A replica, alone; `changes` replaces fields."""
    value = ReplicaView(
        service="redundant",
        name=name,
        id=name.encode().hex().rjust(32, "0"),
        host=f"host-{name}",
        pid=5000,
        domain_id=7,
        store=f"/var/lib/ospltool/{name}",
        started_ns=START_NS - 600 * SECOND_NS,
        time_ns=START_NS,
        synchronizes=True,
        period_ms=5_000,
        values=1000,
        transactions=12,
        unwritten=False,
        peers=(),
        groups=(PersistedGroup("Orders", "Trade", "shop::Order", 1000, 0),),
        writers=writers,
        writers_left_out=0,
        deliveries=(),
        subscriptions=(),
        counters={"captured": 1000},
    )
    return dataclasses.replace(value, **changes)


class FakeFeed:
    """A feed of `nodes` invented nodes with `name_spaces` name-spaces and about `groups` groups in all.

    Every node sends a snapshot each `period_ns`, spread over the period, and now and then an event. The last
    node always aligns; the others write. `clock` gives the time in ns; without one each poll is a quarter of
    a second after the last. With `own_groups` no two nodes have a group in common.
    """

    def __init__(
        self,
        nodes: int = 3,
        name_spaces: int = 2,
        groups: int = 0,
        *,
        seed: int = 1,
        period_ns: int = SECOND_NS,
        clock: Callable[[], int] | None = None,
        own_groups: bool = False,
    ) -> None:
        self.title = f"invented, {nodes} nodes"
        self.mode = "simulated"
        self._random = random.Random(seed)
        self._nodes = nodes
        self._names = [f"space-{i:02d}" for i in range(1, name_spaces + 1)]
        self._groups_per_node = groups
        self._own_groups = own_groups
        self._period_ns = period_ns
        self._clock = clock
        self._now_ns = clock() if clock else START_NS
        self._due_ns = {n: self._now_ns + n * period_ns // max(1, nodes) for n in range(1, nodes + 1)}
        self._born_ns = self._now_ns
        self._inbox = Inbox()
        self._numbers = 0

    def now_ns(self) -> int:
        """The given clock, or the invented time."""
        return self._clock() if self._clock else self._now_ns

    def poll(self) -> Update:
        """The snapshots that are due, and an event for about each tenth of them."""
        if self._clock is None:
            self._now_ns += SECOND_NS // 4
        now_ns = self.now_ns()
        for number, due_ns in self._due_ns.items():
            if due_ns <= now_ns:
                self._due_ns[number] = now_ns + self._period_ns
                self._inbox.put(ReceivedSnapshot(self._snapshot(number, now_ns), now_ns))
                if self._random.random() < 0.1:
                    self._numbers += 1
                    text = f"Persisted {self._random.randrange(1, 500)} samples."
                    self._inbox.put(event(self._numbers, number, now_ns, text, event="store.batch"))
        return self._inbox.drain()

    def close(self) -> None:
        """Nothing is held."""

    def _snapshot(self, number: int, now_ns: int) -> NodeSnapshot:
        elapsed_s = (now_ns - self._born_ns) / SECOND_NS
        spaces = tuple(
            self._name_space(number, i, name, elapsed_s, now_ns) for i, name in enumerate(self._names)
        )
        others = range(1, self._nodes + 1)
        return snapshot(
            number,
            *spaces,
            time_ns=now_ns,
            started_ns=self._born_ns,
            fellows=tuple(fellow(n, now_ns) for n in others if n != number),
            groups=self._groups(now_ns, number * self._groups_per_node if self._own_groups else 0),
            counters={"samples_captured": int(elapsed_s * 250) * number},
        )

    def _name_space(self, number: int, index: int, name: str, elapsed_s: float, now_ns: int) -> NameSpaceView:
        count = 1000 * (index + 1) + int(elapsed_s * 50)
        master = 1 + index % self._nodes
        if number != self._nodes or index % 2:
            return name_space(name, master, count=count)
        samples = int(elapsed_s * 40) % 1000
        alignment = AlignmentView(
            "from", node_id(master), samples, 1000, samples * 200, now_ns - int(elapsed_s * SECOND_NS)
        )
        changes: dict[str, Any] = {"complete": False, "phase": "aligning", "count": samples}
        if master == number:
            return name_space(name, master, count=count)
        return name_space(name, master, alignments=(alignment,), **changes)

    def _groups(self, now_ns: int, first: int) -> tuple[GroupView, ...]:
        return tuple(
            GroupView(
                name_space=self._names[i % len(self._names)],
                partition=self._names[i % len(self._names)],
                topic=f"Topic{i:04d}",
                type_name="Example::Sample",
                durability="Persistent",
                samples=100 + i,
                instances=10 + i % 7,
                bytes=20_000 + 13 * i,
                digest=f"{i * 2654435761 % 2**32:08x}",
                newest_ns=now_ns,
                stored=100 + i,
                lost=0,
            )
            for i in range(first, first + self._groups_per_node)
        )


class ScriptedFeed:
    """A feed whose updates and clock are given, for pictures that must not change.

    `steps` pairs a moment with the update that belongs to it; `poll` returns one step per call and the clock
    then stands at its moment. After the last step the clock stays, unless `clock` is given.
    """

    def __init__(
        self,
        steps: Iterable[tuple[int, Update]],
        *,
        title: str = "script",
        mode: str = "live",
        clock: Callable[[], int] | None = None,
    ) -> None:
        self._steps = collections.deque(steps)
        self._now_ns = self._steps[0][0] if self._steps else 0
        self._clock = clock
        self.title = title
        self.mode = mode
        self.closed = False

    def now_ns(self) -> int:
        """The moment of the step that was returned last, or the given clock."""
        return self._clock() if self._clock else self._now_ns

    def poll(self) -> Update:
        """The next step; empty after the last."""
        if not self._steps:
            return Update()
        self._now_ns, update = self._steps.popleft()
        return update

    def add(self, time_ns: int, update: Update) -> None:
        """Append a step."""
        self._steps.append((time_ns, update))

    def close(self) -> None:
        """Remember that the reader let go."""
        self.closed = True
