"""The live feed: the monitor topics of a domain. It subscribes and never writes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Final

from engine.dds.channel import CONSOLE_TOPICS, PARTITION, Channel, Received
from engine.dds.discovery import Discovery, ParticipantGone
from engine.dds.errors import DdsError
from engine.dds.participant import NODE_ID_BYTES, NodeParticipant, TagRole
from engine.dds.uri import cyclone_uri
from engine.dds.waiting import Signal
from engine.runtime import monitor
from engine.runtime.monitor import NodeSnapshot
from ospltool.live.feed import Heard, Inbox, Notice, NoticeKind, Update

_LONGEST_WAIT_S: Final = 0.5
_RETRY_S: Final = 2.0


class _Link:
    """Participant and readers; made and closed as one."""

    def __init__(self, domain_id: int, partition: str, uri: str) -> None:
        tag = os.urandom(NODE_ID_BYTES)
        self.participant = NodeParticipant(domain_id, uri, "ospltool console", tag, TagRole.CLIENT)
        try:
            self.signal = Signal(self.participant)
            self.channel = Channel(self.participant, partition, topics=CONSOLE_TOPICS, signal=self.signal)
            self.discovery = Discovery(self.participant, self.signal)
        except DdsError:
            self.participant.close()
            raise

    def close(self) -> None:
        self.participant.close()


class LiveFeed:
    """Snapshots and events of all nodes in a domain, as they publish them.

    A thread of its own reads; `poll` only hands over. A participant that leaves or whose lease ends makes its
    node lost; the last node that is lost makes the domain lost. After a failure of DDS itself the feed says
    so and opens anew every two seconds.

    Args:
        domain_id: DDS domain, 0 to 230.
        partition: the durability partition of the nodes (EntityNames/Partition of their configuration).
        uri: Cyclone DDS settings; by default CYCLONEDDS_URI, else loopback.
        clock: wall clock in ns since 1970.

    Raises:
        DdsError: the domain can not be opened with these settings.
    """

    def __init__(
        self,
        domain_id: int,
        partition: str = PARTITION,
        uri: str | None = None,
        *,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.title = f"domain {domain_id}"
        self.mode = "live"
        self._where = (domain_id, partition, uri or cyclone_uri())
        self._clock = clock
        self._lock = threading.Lock()
        self._inbox = Inbox()
        self._nodes_of: dict[bytes, set[str]] = {}
        self._present: set[str] = set()
        self._had_nodes = False
        self._stopping = threading.Event()
        self._news = threading.Event()
        self._link: _Link | None = _Link(*self._where)
        self._thread = threading.Thread(target=self._run, name="live-feed", daemon=True)
        self._thread.start()

    def now_ns(self) -> int:
        """The wall clock."""
        return self._clock()

    def poll(self) -> Update:
        """What arrived since the last call."""
        with self._lock:
            return self._inbox.drain()

    def wait(self, timeout_s: float) -> bool:
        """Wait until something has arrived since the last wait; False at the time-out."""
        arrived = self._news.wait(timeout_s)
        self._news.clear()
        return arrived

    def say(self, caption: str) -> None:
        """Show a sentence to the reader; from any thread."""
        with self._lock:
            self._inbox.say(caption)

    def close(self) -> None:
        """Leave the domain. Idempotent."""
        self._stopping.set()
        link = self._link
        if link is not None:
            link.signal.set()
        self._thread.join(5.0)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                if self._link is None:
                    self._link = _Link(*self._where)
                self._read(self._link)
            except DdsError as error:
                self._lose_all(f"DDS failed: {error}; trying again every {_RETRY_S:g} s")
                self._drop_link()
                self._stopping.wait(_RETRY_S)
        self._drop_link()

    def _drop_link(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _read(self, link: _Link) -> None:
        while not self._stopping.is_set():
            link.signal.wait(_LONGEST_WAIT_S)
            received = link.channel.take()
            gone = [change for change in link.discovery.take() if isinstance(change, ParticipantGone)]
            items = [self._decode(one) for one in received]
            with self._lock:
                for item in items:
                    if isinstance(item, Notice):
                        self._inbox.dropped += 1
                    self._inbox.put(item)
                for notice in self._lost(gone):
                    self._inbox.put(notice)
            self._news.set()

    def _decode(self, received: Received) -> Heard | monitor.NodeEvent | Notice:
        now_ns = self._clock()
        try:
            message = monitor.decode(received.payload)
        except monitor.MonitorFault as fault:
            text = f"{received.topic}, sender {received.sender_id}: {fault}"
            return Notice(NoticeKind.FAULT, now_ns, text)
        sender = message.id if isinstance(message, NodeSnapshot) else message.node
        if sender != received.sender_id:
            text = f"{received.topic}, sender {received.sender_id} speaks for {sender}"
            return Notice(NoticeKind.FAULT, now_ns, text)
        if not isinstance(message, NodeSnapshot):
            return message
        return self._heard(message, received.participant, now_ns)

    def _heard(self, snapshot: NodeSnapshot, participant: bytes, now_ns: int) -> Heard:
        self._nodes_of.setdefault(participant, set()).add(snapshot.id)
        if not self._present and self._had_nodes:
            with self._lock:
                self._inbox.put(Notice(NoticeKind.DOMAIN_FOUND, now_ns, f"{snapshot.name} is in reach again"))
        self._present.add(snapshot.id)
        self._had_nodes = True
        return Heard(snapshot, now_ns)

    def _lost(self, gone: list[ParticipantGone]) -> list[Notice]:
        """What participants that went away mean for their nodes, unless a node has another by now."""
        now_ns = self._clock()
        notices = []
        for change in gone:
            for node in sorted(self._nodes_of.pop(change.guid, ())):
                if not any(node in others for others in self._nodes_of.values()):
                    self._present.discard(node)
                    notices.append(Notice(NoticeKind.NODE_LOST, now_ns, "its participant is gone", node))
        if notices and not self._present:
            notices.append(Notice(NoticeKind.DOMAIN_LOST, now_ns, "no node is in reach"))
        return notices

    def _lose_all(self, reason: str) -> None:
        now_ns = self._clock()
        self._nodes_of.clear()
        self._present.clear()
        with self._lock:
            self._inbox.put(Notice(NoticeKind.FAULT, now_ns, reason))
            self._inbox.put(Notice(NoticeKind.DOMAIN_LOST, now_ns, reason))
