"""What a client says of services some of which are late to answer, or silent."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest

from engine.dataset.sample import DATA
from engine.dds.client_protocol import endpoints, extensions, naming
from engine.dds.client_protocol.messages import RequestId, StateAnswer, StateRequest, decode, encode
from engine.dds.client_protocol.naming import SampleName, SampleVerdict
from engine.dds.errors import TIMEOUT, DdsTimeout
from engine.dds.participant import NodeParticipant, TagRole
from engine.dds.uri import cyclone_uri
from engine.dds.waiting import Signal
from ospltool.client import DurabilityClient, NotStored, OutdatedService, Written
from tests.integration.conftest import own_domain

pytestmark = pytest.mark.dds

ALL = 1_000_000
WRITTEN = Written("Reading", ("stock",), (SampleName(5, b"w" * 16, b"d" * 16, DATA, b"key"),))


class Service:
    """Says that it must store what it is asked for and has not; after so many answers it is silent."""

    def __init__(
        self, domain: int, uri: str, name: str, answers: int, version: int | None = naming.ANSWERS
    ) -> None:
        self._name, self._left, self._version = name, answers, version
        self._participant = NodeParticipant(domain, uri, name, os.urandom(16), TagRole.NODE)
        self._signal = Signal(self._participant)
        topics = endpoints.open_topics(self._participant)
        where = (endpoints.PARTITION,)
        self._requests = endpoints.open_reader(
            self._participant, topics[endpoints.STATE_REQUEST], where, self._signal
        )
        self._states = endpoints.open_writer(self._participant, topics[endpoints.STATE], where)
        self._is_closing = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while not self._is_closing:
            self._signal.wait(1.0)
            for record in self._requests.drain():
                if record.status & DATA and self._left > 0:
                    self._left -= 1
                    self._answer(decode(StateRequest, record.payload).request)

    def _answer(self, request: RequestId) -> None:
        added = extensions.pack(
            extensions.StateAddition(
                name=self._name,
                answers=self._version or 0,
                required=True,
                complete=True,
                partitions=("stock",),
                reason="not yet",
            )
        )
        verdicts = {naming.VERDICTS: bytes([SampleVerdict.IN_MEMORY])}
        state = StateAnswer(self._participant.guid, (request,), (), {**added, **verdicts})
        self._states.write(encode(state), time.time_ns())

    def close(self) -> None:
        self._is_closing = True
        self._signal.set()
        self._thread.join(20)
        self._participant.close()


@pytest.fixture
def client() -> Iterator[DurabilityClient]:
    """A client of two services: n1 answers once, n2 always."""
    domain, tag = own_domain()
    uri = cyclone_uri(tag=f"surveys-{tag}", environment={})
    services = [Service(domain, uri, name, answers) for name, answers in (("n1", 1), ("n2", ALL))]
    with DurabilityClient(domain, uri=uri) as made:
        yield made
    for service in services:
        service.close()


def complaint(client: DurabilityClient, timeout_s: float) -> str:
    assert client.session.wait_until(lambda: len(client.session.state_services()) == 2, time.monotonic() + 20)
    with pytest.raises(NotStored) as raised:
        client.wait_for_durable(WRITTEN, timeout_s)
    return str(raised.value)


def test_who_has_no_time_to_answer_the_last_question_is_not_called_silent(client: DurabilityClient) -> None:
    said = complaint(client, 1.0)
    for node in ("n1", "n2"):
        assert f"{node}: 1 sample in memory, not on disk yet, the first of 5 ns" in said
    assert "not answered" not in said


def test_who_had_all_the_time_for_an_answer_is_silent(
    client: DurabilityClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ospltool.client.asking.HOLD_S", 0.2)
    monkeypatch.setattr("ospltool.client.asking.GRACE_S", 0.2)
    said = complaint(client, 2.0)
    assert "1 service has not answered" in said
    assert "n1" not in said
    assert "n2: 1 sample in memory" in said


def test_services_that_take_no_questions_are_asked_again(
    client: DurabilityClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, refusals = client.session._state_requests.write, iter(range(3))

    def refuse(payload: bytes, time_ns: int) -> None:
        if next(refusals, None) is not None:
            raise DdsTimeout(TIMEOUT, "write")
        write(payload, time_ns)

    monkeypatch.setattr(client.session._state_requests, "write", refuse)
    assert "n2: 1 sample in memory" in complaint(client, 2.0)


def test_a_node_that_does_not_answer_for_samples_is_refused_by_name() -> None:
    domain, tag = own_domain()
    uri = cyclone_uri(tag=f"surveys-{tag}", environment={})
    service = Service(domain, uri, "old", ALL, version=None)
    try:
        with DurabilityClient(domain, uri=uri) as made, pytest.raises(OutdatedService, match="node old is"):
            made.wait_for_durable(WRITTEN, 20)
    finally:
        service.close()
