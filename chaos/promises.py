"""What a writer means by a confirmation: a participant with its topics, and the kinds of promises."""

from __future__ import annotations

import contextlib
import importlib
import threading
from typing import Any, Final, Protocol

PARTITION: Final = "stock"
ACKNOWLEDGED_NS: Final = 10_000_000_000
NODES: Final = 2
"""On how many disks a durable promise is."""


def history_of(topic: str) -> Any:
    """The history that a topic keeps."""
    from cyclonedds.core import Policy

    return Policy.History.KeepAll if topic.endswith("All") else Policy.History.KeepLast(1)


def qos_of(topic: str) -> Any:
    """The QoS of a topic and its writers, as in samples/publisher.py.

    A topic whose name has `Received` is ordered by reception, one with `Disposing` has autodispose. One with
    `Ending` has it, too, and what is disposed is forgotten at once, as by the default QoS of DDS.
    """
    from cyclonedds.core import Policy, Qos
    from cyclonedds.util import duration

    order = Policy.DestinationOrder
    return Qos(
        Policy.Durability.Persistent,
        Policy.DurabilityService(
            cleanup_delay=0 if "Ending" in topic else duration(infinite=True),
            history=history_of(topic),
            max_samples=-1,
            max_instances=-1,
            max_samples_per_instance=-1,
        ),
        Policy.Reliability.Reliable(duration(seconds=10)),
        Policy.History.KeepAll,
        order.ByReceptionTimestamp if "Received" in topic else order.BySourceTimestamp,
        Policy.WriterDataLifecycle(autodispose="Disposing" in topic or "Ending" in topic),
    )


class Application:
    """A participant, its topics, and which participant is which node."""

    def __init__(self, domain: int) -> None:
        from cyclonedds.builtin import BuiltinDataReader, BuiltinTopicDcpsParticipant
        from cyclonedds.domain import DomainParticipant

        self.participant = DomainParticipant(domain)
        self._seen = BuiltinDataReader(self.participant, BuiltinTopicDcpsParticipant)
        self._names: dict[bytes, str] = {}
        self._client: Any = None

    def topic(self, name: str) -> Any:
        """A topic of entries."""
        from cyclonedds.topic import Topic

        from chaos.entry_type import Entry

        return Topic(self.participant, name, Entry, qos=qos_of(name))

    def client(self) -> Any:
        """A client of the durability services, one for all writers."""
        from ospltool.client import DurabilityClient

        self._client = self._client or DurabilityClient(self.participant)
        return self._client

    def name_of(self, participant: Any) -> str:
        """The name of the participant with this key; empty for one that has none."""
        from cyclonedds.core import Policy

        if participant.bytes not in self._names:
            for one in self._seen.take(1000):
                qos = getattr(one, "qos", None)
                if qos is not None and Policy.EntityName in qos:
                    named: Any = qos[Policy.EntityName]
                    self._names[one.key.bytes] = named.name
        return self._names.get(participant.bytes, "")


class Promise(Protocol):
    """A writer, and what it means by a confirmation. Another kind of promise is another of these."""

    reached: threading.Event
    """Set once enough nodes read along."""
    guid: str

    def __init__(self, application: Application, topic: str, readers: int) -> None: ...

    def begin(self) -> None:
        """A batch begins."""

    def write(self, sample: Any, *, timestamp: int) -> None:
        """Write with this source time."""

    def dispose(self, sample: Any, *, timestamp: int) -> None:
        """Dispose with this source time."""

    def confirm(self) -> list[str]:
        """The nodes that have confirmed the batch; none if it is not confirmed in time."""


class PlainPromise:
    """What DDS alone gives: all matched readers have acknowledged everything.

    A batch is confirmed by the nodes whose readers were matched before its first sample was written and are
    still matched once everything is acknowledged. It is on no disk yet (see `chaos.rounds`).
    """

    def __init__(self, application: Application, topic: str, readers: int) -> None:
        from cyclonedds.core import Listener, Policy, Qos
        from cyclonedds.pub import DataWriter, Publisher

        self.reached = threading.Event()
        self._application = application
        self._before: dict[int, str] = {}
        self._is_late = False

        def on_publication_matched(_: Any, status: Any) -> None:
            if status.current_count >= readers:
                self.reached.set()

        self.writer = DataWriter(
            Publisher(application.participant, Qos(Policy.Partition([PARTITION]))),
            application.topic(topic),
            qos=qos_of(topic),
            listener=Listener(on_publication_matched=on_publication_matched),
        )
        self.guid = self.writer.guid.hex

    def begin(self) -> None:
        """Note who reads along."""
        self._before, self._is_late = self._matched(), False

    def write(self, sample: Any, *, timestamp: int) -> None:
        """Write; a writer that blocks for too long cannot confirm the batch."""
        self._do(self.writer.write, sample, timestamp)

    def dispose(self, sample: Any, *, timestamp: int) -> None:
        """Dispose, likewise."""
        self._do(self.writer.dispose, sample, timestamp)

    def _do(self, operation: Any, sample: Any, timestamp: int) -> None:
        from cyclonedds.core import DDSException

        try:
            operation(sample, timestamp=timestamp)
        except DDSException:
            self._is_late = True

    def confirm(self) -> list[str]:
        """The nodes that read along all the time, once everything is acknowledged."""
        from cyclonedds.core import DDSException

        try:
            acknowledged = self.writer.wait_for_acks(ACKNOWLEDGED_NS)
        except (DDSException, AttributeError):  # the wheel's time-out path raises the latter
            acknowledged = False
        if self._is_late or not acknowledged:
            return []
        after = self._matched()
        return sorted({name for handle, name in self._before.items() if after.get(handle) == name})

    def _matched(self) -> dict[int, str]:
        """The nodes whose readers match, by the handle of the reader."""
        found = {}
        handles: list[int] | None = None
        while handles is None:
            with contextlib.suppress(IndexError):  # the wheel's, where one more matches meanwhile
                handles = self.writer.get_matched_subscriptions()
        for handle in handles:
            with contextlib.suppress(Exception):  # it has gone meanwhile
                data = self.writer.get_matched_subscription_data(handle)
                if data is not None and (name := self._application.name_of(data.participant_key)):
                    found[handle] = name
        return found


class DurablePromise:
    """What `ospltool.client.DurableWriter` gives: a batch is confirmed once `NODES` nodes have it on disk.

    It does not name the nodes, so that the record has a star in their place.
    """

    def __init__(self, application: Application, topic: str, readers: int) -> None:
        plain = PlainPromise(application, topic, readers)
        client: Any = importlib.import_module("ospltool.client")
        self._writer = client.DurableWriter(application.client(), plain.writer, nodes=NODES)
        self._error: type[Exception] = client.DurabilityError
        self._is_late = False
        self.reached, self.guid = plain.reached, plain.guid

    def begin(self) -> None:
        """A batch begins."""
        self._is_late = False

    def write(self, sample: Any, *, timestamp: int) -> None:
        """Write; where the bound is reached, the batch cannot be confirmed."""
        self._do(self._writer.write, sample, timestamp)

    def dispose(self, sample: Any, *, timestamp: int) -> None:
        """Dispose, likewise."""
        self._do(self._writer.dispose, sample, timestamp)

    def _do(self, operation: Any, sample: Any, timestamp: int) -> None:
        try:
            operation(sample, timestamp)
        except self._error:
            self._is_late = True

    def confirm(self) -> list[str]:
        """A star once enough nodes have stored everything."""
        try:
            self._writer.flush(ACKNOWLEDGED_NS / 1e9)
        except self._error:
            return []
        return [] if self._is_late else ["*"]


PROMISES: Final[dict[str, type[Promise]]] = {"plain": PlainPromise, "durable": DurablePromise}
