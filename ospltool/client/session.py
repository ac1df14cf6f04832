"""The library's participant and thread, which receive from services and writers.

Everything that arrives is handled by one thread, under one lock: it takes samples and messages, lets each
member (a reader, a change of a durable subscription) have its turn, and then wakes the callers that wait for
something. Callers on other threads hold the same lock while they look at the state.
"""

from __future__ import annotations

import abc
import ctypes
import itertools
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any, Final

import msgspec

from engine.core.expressions import matches
from engine.core.untrusted import Newest
from engine.dataset.groups import DurabilityKind
from engine.dataset.sample import DATA
from engine.dds import abi
from engine.dds.cdr import Malformed
from engine.dds.client_protocol import endpoints, extensions
from engine.dds.client_protocol.messages import RequestId, StateAnswer, decode, encode
from engine.dds.discovery import Discovery, EndpointGone, EndpointSeen, ParticipantSeen
from engine.dds.participant import NodeParticipant, TagRole
from engine.dds.proofs import VARIABLE, DomainSecret, ProofFault
from engine.dds.selfcheck import check_layouts
from engine.dds.uri import cyclone_uri
from engine.dds.waiting import Signal
from engine.dds.writer import stamp_ns
from ospltool.client.errors import Closed, NoService, printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.dds.client_protocol.messages import HistoryRequest, StateRequest
    from engine.dds.typeinfo import TypeRef
    from engine.dds.writer import RawWriter

PREFIX_BYTES: Final = 12
_LONGEST_WAIT_S: Final = 1.0
"""Longest pause of the thread: matches of writers are looked at without an event in each turn."""
_MAX_STATES: Final = 1_000
"""Answers to one state request that are kept; nobody has more nodes."""
# Chosen: GUID prefixes, some hundred bytes with Python's share.
_MAX_DELIVERERS: Final = 10_000
_MAX_NAMES: Final = 10_000
"""Deliverers and names of nodes that are remembered: participants go, and GUIDs are never used again."""
_WHY_REFUSED: Final = {
    ProofFault.UNASKED: f"nodes there have a secret of the domain, whose file {VARIABLE} must name",
    ProofFault.OTHER: "the secret of the domain there is another one than that of this client",
    ProofFault.MISSING: "this client has a secret of the domain, and there is none there",
}
"""Why a service refuses a client that refuses what the service sends."""


class SessionPart(abc.ABC):
    """A part of the session with turns on the session's thread, under the session's lock."""

    @abc.abstractmethod
    def turn(self, now: float) -> None:
        """Take arrived messages and do work that is due."""

    @property
    @abc.abstractmethod
    def due_s(self) -> float | None:
        """Time at which a turn is due even if nothing arrives."""


class Session:
    """A participant tagged as a client, whose readers nodes do not serve.

    `writers_seen` counts the changes of the discovered writers.

    Args:
        domain_id: DDS domain.
        partition: //OpenSplice/DurabilityService/ClientDurability/EntityNames/Partition of the services.
        uri: Cyclone DDS settings for a process that has not used the domain yet; None for CYCLONEDDS_URI,
            or loopback without it.
        secret: path of the file with the secret of the domain; None for OSPLTOOL_DOMAIN_SECRET.

    Raises:
        SecretError: that file cannot be used.
        UnsupportedCyclone: the installed cyclonedds is another version than the one supported.
        DdsError: the participant cannot be made.
    """

    def __init__(self, domain_id: int, partition: str, uri: str | None, secret: str | None = None) -> None:
        check_layouts(of_package=True)
        # The session's thread and those of the application share all that follows.
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.id = uuid.uuid4().bytes
        self.partition = partition
        self.numbers = itertools.count(1)
        self.deliverers: Newest[bytes, None] = Newest(_MAX_DELIVERERS)  # the oldest are long gone
        self.writers_seen = 0
        self._endpoints: dict[bytes, EndpointSeen] = {}
        self._names: Newest[bytes, str] = Newest(_MAX_NAMES)
        self._heard_s: Newest[bytes, float] = Newest(_MAX_NAMES)
        self.malformed = 0
        self._members: list[SessionPart] = []
        self._answers: dict[int, list[tuple[bytes, StateAnswer]]] = {}
        self._closing = False
        self._fault: BaseException | None = None
        settings = cyclone_uri() if uri is None else uri
        self.participant = NodeParticipant(
            domain_id,
            settings,
            "ospltool.client",
            self.id,
            TagRole.CLIENT,
            secret=DomainSecret(secret) if secret else None,
        )
        try:
            self._open()
        except BaseException:
            self.participant.close()
            raise
        self._thread = threading.Thread(target=self._run, name="ospltool.client", daemon=True)
        self._thread.start()

    def _open(self) -> None:
        self.signal = Signal(self.participant)
        self._discovery = Discovery(self.participant, self.signal)
        topics = endpoints.open_topics(self.participant)
        self.history_topic = topics[endpoints.HISTORY]
        partitions = (self.partition,)
        self._states = endpoints.open_reader(
            self.participant, topics[endpoints.STATE], partitions, self.signal
        )
        self._history_requests = endpoints.open_writer(
            self.participant, topics[endpoints.HISTORY_REQUEST], partitions
        )
        self._state_requests = endpoints.open_writer(
            self.participant, topics[endpoints.STATE_REQUEST], partitions
        )
        for writer in (self._history_requests, self._state_requests):
            self.signal.attach(writer.entity, abi.PUBLICATION_MATCHED)

    # For members and callers, under the lock.

    def join(self, member: SessionPart) -> None:
        """Add a member, which gets turns from now on."""
        self._members.append(member)
        self.signal.set()

    def leave(self, member: SessionPart) -> None:
        """Remove a member."""
        if member in self._members:
            self._members.remove(member)

    def services(self) -> frozenset[bytes]:
        """Return GUID prefixes of the services that read requests for historical data now."""
        return _prefixes(self._history_requests.matched_readers().values())

    def state_services(self) -> frozenset[bytes]:
        """Return GUID prefixes of the services that read state requests now."""
        return _prefixes(self._state_requests.matched_readers().values())

    def refusing(self) -> dict[bytes, tuple[str, str]]:
        """Return (name, reason) of the services that are there and refuse this client, by GUID prefix.

        A service whose messages prove nothing here does not take our requests for proved either.
        """
        there, found, proofs = self.state_services(), {}, self.participant.proofs
        for guid, counts in proofs.refused_since(0.0).items():
            service = guid[:PREFIX_BYTES]
            if service in there and guid in proofs.refused_since(self._heard_s.get(service, 0.0)):
                why = next((text for fault, text in _WHY_REFUSED.items() if fault in counts), "")
                found[service] = self.name_of(service), why or "what it sends proves nothing"
        return found

    def name_of(self, service: bytes) -> str:
        """Return the name of the node with a GUID prefix, or the prefix if it has none."""
        return self._names.get(service) or service.hex()

    def groups(self, topic: str, partition: str) -> list[tuple[str, str]]:
        """Return topics and partitions of discovered durable writers and readers that match expressions."""
        return sorted(
            {
                (one.topic, name)
                for one in self._endpoints.values()
                if one.durability >= DurabilityKind.TRANSIENT and matches(topic, one.topic)
                for name in one.partitions or ("",)
                if matches(partition, name) and not any(char in name for char in "*?")
            }
        )

    def types(self, topic: str) -> list[TypeRef]:
        """Return the discovered types of a topic, of writers, readers and nodes that keep it."""
        found = (one.type for one in self._endpoints.values() if one.topic == topic)
        return list({reference: None for reference in found if reference is not None})

    def writers(self, topic: str) -> dict[bytes, bool]:
        """Return the discovered writers of a topic, each with its autodispose."""
        return {
            guid: one.endpoint_qos.autodispose
            for guid, one in self._endpoints.items()
            if one.is_writer and one.topic == topic
        }

    def request_history(self, request: HistoryRequest) -> None:
        """Send a request."""
        self._send(self._history_requests, endpoints.HISTORY_REQUEST, request)

    def _send(self, writer: RawWriter, topic: str, request: HistoryRequest | StateRequest) -> None:
        proofs = self.participant.proofs
        added = extensions.with_proof(request.extensions, proofs)
        encoded = encode(msgspec.structs.replace(request, extensions=added))
        writer.write(proofs.filled(topic, writer.guid, encoded), stamp_ns())

    def ask(self, request: StateRequest) -> int:
        """Send a state request; return its number, with which `answers` collects until `forget`.

        Raises:
            DdsTimeout: a service accepts no requests.
        """
        number = next(self.numbers)
        sent = msgspec.structs.replace(request, request=RequestId(self.id, number))
        self._send(self._state_requests, endpoints.STATE_REQUEST, sent)
        self._answers[number] = []  # answers are processed only after the lock is free
        return number

    def answers(self, number: int) -> list[tuple[bytes, StateAnswer]]:
        """Return (service, answer) pairs for a state request."""
        return self._answers[number]

    def forget(self, number: int) -> None:
        """End a state request."""
        self._answers.pop(number, None)

    # For callers on any thread.

    def wait_until(self, condition: Callable[[], bool], deadline_s: float) -> bool:
        """Wait until a condition, called under the lock, holds; return False at the timeout.

        Raises:
            Closed: the client was closed meanwhile, or its thread ended.
        """

        def met() -> bool:
            self.check()
            return condition()

        with self.changed:
            return self.changed.wait_for(met, max(0.0, deadline_s - time.monotonic()))

    def wait_for_services(self, deadline_s: float) -> None:
        """Wait until a service is found.

        Raises:
            NoService: there is none in time.
        """
        if not self.wait_until(lambda: bool(self.state_services()), deadline_s):
            raise NoService("no durability service that serves clients was found in time")

    def check(self) -> None:
        """Raise if the session has ended."""
        if self._fault is not None:
            raise Closed("the thread of the client has ended") from self._fault
        if self._closing:
            raise Closed("the client has been closed")

    # The thread.

    def _run(self) -> None:
        try:
            while not self._closing:
                with self.lock:
                    dues = [due for one in self._members if (due := one.due_s) is not None]
                pause = min(dues, default=time.monotonic() + _LONGEST_WAIT_S) - time.monotonic()
                self.signal.wait(max(0.0, min(pause, _LONGEST_WAIT_S)))
                with self.changed:
                    if not self._closing:
                        self._turn()
                    self.changed.notify_all()
        except Exception as error:  # waiting callers must hear of it
            with self.changed:
                self._fault = error
                self.changed.notify_all()

    def _turn(self) -> None:
        status = ctypes.c_uint32()
        for writer in (self._history_requests, self._state_requests):
            abi.take_status(writer.entity, ctypes.byref(status), abi.PUBLICATION_MATCHED)
        taken = [record for record in self._states.drain() if record.status & DATA]
        for member in list(self._members):
            member.turn(time.monotonic())
        self.discovered()
        for record in taken:
            try:
                state = decode(StateAnswer, record.payload)
                extensions.unpack(state.extensions, extensions.StateAddition)
            except Malformed:
                self.malformed += 1
                continue
            proof = state.extensions.get(extensions.PROOF, b"")
            if not self.participant.proofs.is_proved(endpoints.STATE, record.writer, record.payload, proof):
                continue
            self._heard_s[record.writer[:PREFIX_BYTES]] = time.monotonic()
            for request in state.requests:
                if request.client == self.id and request.number in self._answers:
                    answers = self._answers[request.number]
                    if len(answers) < _MAX_STATES:
                        answers.append((record.writer[:PREFIX_BYTES], state))

    def discovered(self) -> None:
        """Process discovery; members call it after taking samples and before judging their writers."""
        for change in self._discovery.take():
            if isinstance(change, EndpointSeen):
                self._endpoints[change.guid] = change
                self.writers_seen += change.is_writer
            elif isinstance(change, EndpointGone):
                gone = self._endpoints.pop(change.guid, None)
                self.writers_seen += gone is not None and gone.is_writer
            tag = change.tag if isinstance(change, ParticipantSeen) else None
            if isinstance(change, ParticipantSeen) and tag is not None and tag.role is TagRole.NODE:
                self._names[change.guid[:PREFIX_BYTES]] = printable(change.name)
            if tag is not None and tag.role is TagRole.DELIVERER:
                self.deliverers[change.guid[:PREFIX_BYTES]] = None

    def close(self) -> None:
        """End the thread and delete the participant. Idempotent."""
        with self.changed:
            if self._closing:
                return
            self._closing = True
            self.changed.notify_all()
        self.signal.set()
        if self._thread is not threading.current_thread():
            self._thread.join(10.0)
        self.participant.close()


def _prefixes(participants: Any) -> frozenset[bytes]:
    return frozenset(guid[:PREFIX_BYTES] for guid in participants)
