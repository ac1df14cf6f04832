"""A durability service that answers like one of OpenSplice: no additions, one group for an expression."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final

from engine.core.expressions import matches
from engine.core.name_spaces import Group
from engine.dataset.groups import DurabilityKind, GroupQos
from engine.dataset.sample import DATA, DISPOSE, Sample, make_sample
from engine.dds.client_protocol import endpoints, extensions
from engine.dds.client_protocol.messages import (
    UNLIMITED,
    Completeness,
    ErrorCode,
    GroupState,
    HistoryRequest,
    Link,
    StateAnswer,
    StateRequest,
    decode,
    encode,
    encode_link,
)
from engine.dds.participant import NodeParticipant, TagRole
from engine.dds.waiting import Signal
from tests.integration.application_types import Reading

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SERVER: Final = b"\0\0\0\0\x2a\x9c\x72\xa0" + bytes(7) + b"\1"
SYSTEM: Final = b"\xa0\x72\x9c\x2a"
"""How the server calls the system of its writers, as captured."""
WRITER: Final = SYSTEM + b"\xf6\4\0\0\1" + bytes(7)
HOLD_S: Final = 0.2


def reading(time_ns: int, number: int, value: int, *, disposes: bool = False) -> Sample:
    payload = Reading(number, value, f"reading {number}").serialize(use_version_2=False)
    status = DISPOSE if disposes else DATA
    return make_sample(time_ns, WRITER, status, number.to_bytes(4, "little"), payload)


class Federation:
    """The server, on a thread of its own.

    Args:
        domain: where.
        uri: Cyclone DDS settings.
        groups: what it keeps, by partition; the topic is `Reading`.
    """

    def __init__(self, domain: int, uri: str, groups: Mapping[str, Sequence[Sample]]) -> None:
        self.groups = groups
        self.asked: list[HistoryRequest] = []
        self._participant = NodeParticipant(domain, uri, "federation", SERVER, TagRole.CLIENT)
        self._signal = Signal(self._participant)
        self._topics = endpoints.open_topics(self._participant)
        partition = (endpoints.PARTITION,)
        self._readers = {
            name: endpoints.open_reader(self._participant, self._topics[name], partition, self._signal)
            for name in (endpoints.STATE_REQUEST, endpoints.HISTORY_REQUEST)
        }
        self._states = endpoints.open_writer(self._participant, self._topics[endpoints.STATE], partition)
        self._lines: dict[tuple[str, ...], Any] = {}
        self._closing = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closing:
            self._signal.wait(0.1)
            for record in self._readers[endpoints.STATE_REQUEST].drain():
                if record.status & DATA:
                    self._told(decode(StateRequest, record.payload))
            for record in self._readers[endpoints.HISTORY_REQUEST].drain():
                if record.status & DATA:
                    self._answer(decode(HistoryRequest, record.payload))

    def _told(self, request: StateRequest) -> None:
        groups = [
            GroupState(name, "Reading", Completeness.COMPLETE)
            for name in self.groups
            if any(matches(one, name) for one in request.partitions) and matches(request.topic, "Reading")
        ]
        answer = encode(StateAnswer(SERVER, (request.request,), tuple(groups[:1])))
        self._states.write(answer, time.time_ns())

    def _answer(self, request: HistoryRequest) -> None:
        self.asked.append(request)
        found = [name for name in self.groups if any(matches(one, name) for one in request.partitions)]
        line = self._lines.get(request.alignment_partitions)
        if line is None:
            topic = self._topics[endpoints.HISTORY]
            line = endpoints.open_writer(self._participant, topic, request.alignment_partitions)
            self._lines[request.alignment_partitions] = line
            deadline = time.monotonic() + 10
            while not line.matched_readers() and time.monotonic() < deadline:
                time.sleep(0.01)
        time.sleep(HOLD_S)
        if not found:
            link = Link(0, Completeness.UNKNOWN, ErrorCode.GROUP_NOT_FOUND)
            line.write(encode_link(SERVER, request.request, link, {}), time.time_ns())
            return
        samples = list(self.groups[found[0]])
        if request.max_samples_per_instance not in (UNLIMITED, 2):
            samples = samples[:1]  # a real one gave 3 samples of one instance, of 60 in 20
        encoder = extensions.SampleEncoder(
            SERVER,
            request.request,
            Group(found[0], "Reading"),
            GroupQos(DurabilityKind.PERSISTENT),
            ours=False,
        )
        for sample in samples:
            line.write(encoder.encode(sample, sample.payload[4:]), time.time_ns())
        link = Link(len(samples), Completeness.COMPLETE, ErrorCode.OK)
        line.write(encode_link(SERVER, request.request, link, {}), time.time_ns())

    def close(self) -> None:
        """End it."""
        self._closing = True
        self._signal.set()
        self._thread.join(10)
        self._participant.close()
