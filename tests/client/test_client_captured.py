"""The client library and the answers of real OpenSplice servers, as they were captured on the wire.

The file has what a client sent and two servers answered, the master (0x2a9c72a0) and another, with the first
two samples of each answer. `test_client_opensplice.py` has an imitated server.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import msgspec
import pytest

from engine.capture.neighbourhood import ForeignServices
from engine.dataset.sample import Sample
from engine.dds.client_protocol import extensions
from engine.dds.client_protocol.messages import Bead, HistoryRequest, decode, decode_history
from ospltool.client import HistorySelection, InstanceState
from ospltool.client.cache import SampleCache
from ospltool.client.samples import HistoryFetch

FILE = Path(__file__).parent / "data" / "opensplice_answers.jsonl"
MASTER = bytes.fromhex("2a9c72a0")
DDSI = MASTER + bytes.fromhex("0000008100000001000001c1")
"""The participant of the master's networking service, as discovery told of it."""
NOW_S = 100.0


def lines(label: str, *, sent: bool) -> list[bytes]:
    found = map(json.loads, FILE.read_text(encoding="utf-8").splitlines())
    return [bytes.fromhex(one["hex"]) for one in found if (one["label"], one["sent"]) == (label, sent)]


def request(label: str) -> HistoryRequest:
    (sent,) = lines(label, sent=True)
    return decode(HistoryRequest, sent)


def answer(fetch: HistoryFetch, number: int, label: str) -> frozenset[bytes]:
    """Play what was answered to a request; who did."""
    exchange = fetch.exchange(number)
    assert exchange is not None
    servers: dict[bytes, int] = {}
    for message in (decode_history(line) for line in lines(label, sent=False)):
        server = message.server[:4]
        if isinstance(message.content, Bead):
            sample, depth = extensions.sample_of(message.content, message.extensions)
            assert depth is None, "no addition of ours"
            exchange.part(server, number, sample, NOW_S, exact=False)
            servers[server] = servers.get(server, 0) + 1
        else:
            # The file has two samples of the answer, whose link counts all.
            link = msgspec.structs.replace(message.content, count=servers.setdefault(server, 0))
            fetch.end(
                server,
                number,
                message.server,
                link,
                extensions.unpack(message.extensions, extensions.LinkAddition),
            )
    return frozenset(servers)


def samples_of(label: str) -> list[Sample]:
    messages = [decode_history(line) for line in lines(label, sent=False)]
    found = [one.content for one in messages if isinstance(one.content, Bead)]
    return [extensions.sample_of(bead, {})[0] for bead in found]


def test_a_real_server_answers_an_expression_for_one_group_so_each_group_is_asked_for() -> None:
    assert request("part*").partitions == ("part*",)
    groups = {tuple(bead.partitions) for bead in beads("part*")}
    assert groups == {("partA",)}, "and its link says that this is complete"
    got: list[Sample] = []
    fetch = HistoryFetch(
        ("part*",),
        itertools.count(1),
        HistorySelection(),
        is_followed=False,
        on_history=lambda parts: got.extend(sample for sample, _ in parts),
        on_update=lambda _: None,
        resolve=lambda _: ("partA", "partB"),
    )
    servers = frozenset((MASTER, bytes.fromhex("1698a130")))
    assert [send.partition for send in fetch.turn(NOW_S, servers)] == ["part*"]
    assert answer(fetch, 1, "part*") == servers
    asked = [send for _ in range(2) for send in fetch.turn(NOW_S, servers)]
    assert [send.partition for send in asked] == ["partA", "partB"]
    for send in asked:
        assert not got, "nothing is called complete before each group has been answered"
        answer(fetch, send.number, "partA first")
    for _ in range(3):
        fetch.turn(NOW_S + 60.0, servers)
    assert fetch.done
    assert set(got) == {*samples_of("part*"), *samples_of("partA first")}


def beads(label: str) -> list[Bead]:
    messages = [decode_history(line) for line in lines(label, sent=False)]
    return [one.content for one in messages if isinstance(one.content, Bead)]


def test_a_real_server_leaves_out_instances_where_samples_are_limited() -> None:
    """Which is why the library sends no limits to it, and applies them itself."""
    assert request("T2 mspi=1").max_samples_per_instance == 1
    keys = [bead.payload[:4] for bead in beads("T2 mspi=1")]
    assert len(keys) == 2
    assert len(set(keys)) == 1, "two samples of one instance, where one was asked for, and none of others"


@pytest.mark.parametrize(("lives", "state"), [(True, None), (False, InstanceState.NOT_ALIVE_NO_WRITERS)])
def test_the_state_of_what_a_real_writer_wrote_is_unknown_while_its_system_lives(
    lives: bool, state: InstanceState | None
) -> None:
    cache = SampleCache(0)
    cache.group_depth(0)
    if lives:
        cache.found(DDSI)
    (first, _) = samples_of("partA first")
    assert first.writer[:4] == MASTER[::-1], "the server calls writers by its own numbers"
    cache.add([first], is_historical=True, exact=False)
    assert cache.state_of(first.key) is state


def test_nobody_gives_history_to_a_real_server() -> None:
    assert ForeignServices().is_one(DDSI)
