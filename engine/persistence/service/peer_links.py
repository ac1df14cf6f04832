"""The replicas at the other ends of links, and the messages of the parts of the service to them."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from engine.core.lazy_dataclass import lazy_dataclass
from engine.persistence.core.replica_codec import MessageFault
from engine.persistence.core.replica_link import Arrived, Event, Up
from engine.persistence.service.replica_transport import Hello, ReplicaTransport
from engine.persistence.service.service_part import ServicePart


@lazy_dataclass(frozen=True, slots=True)
class PeerProblem:
    """A replica that is refused, and the reason."""

    name: str
    problem: str


class Links:
    """Connects the parts of this replica to those of other replicas of the same service.

    Args:
        hello: the introduction of this replica.
        transport: the links.
        parts: the senders and receivers of messages.
        on_received: called when a part has received a message.
        say: takes sentences for operators.

    Attributes:
        counters: `malformed` (invalid messages), `unknown` (messages of newer versions), `overruns`
            (links restarted because too much waited).
    """

    def __init__(
        self,
        hello: Hello,
        transport: ReplicaTransport,
        parts: Sequence[ServicePart],
        on_received: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._hello = hello
        self._transport = transport
        self._parts = parts
        self._part_of = {kind: part for part in parts for kind in part.kinds}
        self._on_received = on_received
        self._say = say
        self._names: dict[bytes, Hello] = {}
        self._refused: dict[bytes, PeerProblem] = {}
        self.counters: collections.Counter[str] = collections.Counter()

    # Connections.

    def gone(self, guid: bytes) -> None:
        """Disconnect a process that is gone."""
        self._happened(guid, self._transport.gone(guid))
        self._refused.pop(guid, None)

    @property
    def connected(self) -> list[str]:
        """The names of the connected replicas."""
        return [hello.name for hello in self._names.values()]

    @property
    def refused(self) -> list[PeerProblem]:
        """The refused replicas, and the reasons."""
        return list(self._refused.values())

    @property
    def beginning(self) -> list[bytes]:
        """The processes whose links are not up yet."""
        return [guid for guid in self._transport.guids() if not self._transport.is_up(guid)]

    # Output.

    def send(self) -> None:
        """Send the messages of all parts."""
        guids = self._guids()
        for part in self._parts:
            for name, kind, body in part.messages():
                guid = guids.get(name)
                if guid is not None:
                    self._transport.send(guid, kind, body)

    def restart(self, names: Iterable[str]) -> None:
        """Restart the links with replicas for which too much waits."""
        guids = self._guids()
        for name in names:
            self.counters["overruns"] += 1
            self._happened(guids[name], self._transport.restart(guids[name]))

    def has_room(self, name: str) -> bool:
        """Whether the queue to a replica has room for more messages."""
        return all(
            self._transport.has_room(guid) for guid, hello in self._names.items() if hello.name == name
        )

    def _guids(self) -> dict[str, bytes]:
        return {hello.name: guid for guid, hello in self._names.items()}

    # Input.

    def exchanged(self, batch: Sequence[Any]) -> None:
        """Take frames that came over links."""
        for guid, event in self._transport.take(batch):
            self._happened(guid, [event])

    def _happened(self, guid: bytes, events: Sequence[Event]) -> None:
        """Take events of a link."""
        for event in events:
            if isinstance(event, Up):
                self._link_up(guid, event.hello)
            elif isinstance(event, Arrived):
                self._arrived(guid, event)
            else:
                self._link_down(guid)

    def _link_up(self, guid: bytes, body: bytes) -> None:
        try:
            hello = Hello.decode(body)
        except MessageFault as fault:
            self.counters["malformed"] += 1
            self._refused[guid] = PeerProblem(guid.hex(), str(fault))
            return
        if hello.service != self._hello.service:
            return  # a replica of another service
        problem = self._conflict(guid, hello)
        if problem:
            self._refused[guid] = PeerProblem(hello.name, problem)
            self._say(f"replica {hello.name!r} is refused: {problem}")
            return
        self._refused.pop(guid, None)
        self._names[guid] = hello
        for part in self._parts:
            part.connected(hello.name)

    def _conflict(self, guid: bytes, hello: Hello) -> str:
        """Return why a replica must be refused, if so; disconnect an earlier process of the same one."""
        if hello.name == self._hello.name:
            return "it uses this replica's name; give each replica its own with --name"
        for other, known in list(self._names.items()):
            if known.name == hello.name and other != guid:
                if known.id != hello.id:
                    return "two replicas use this name; give each its own with --name"
                self._link_down(other)
        return ""

    def _link_down(self, guid: bytes) -> None:
        hello = self._names.pop(guid, None)
        if hello is not None:
            for part in self._parts:
                part.disconnected(hello.name)

    def _arrived(self, guid: bytes, message: Arrived) -> None:
        hello = self._names.get(guid)
        if hello is None:
            return
        part = self._part_of.get(message.kind)
        if part is None:
            self.counters["unknown"] += 1  # of a newer version
            return
        try:
            part.receive(hello.name, message.kind, message.body)
        except MessageFault as fault:
            self.counters["malformed"] += 1
            self._say(f"replica {hello.name!r} sent an invalid message: {fault}")
            self._happened(guid, self._transport.restart(guid))  # the link is not whole without that message
            return
        self._on_received()
