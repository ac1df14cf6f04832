from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from engine.dds import abi, discovery
from engine.dds.discovery import (
    Change,
    Discovery,
    EndpointGone,
    EndpointSeen,
    ParticipantGone,
    ParticipantSeen,
    take_raw,
)
from engine.dds.participant import NodeParticipant, Tag, TagRole
from engine.dds.waiting import Signal
from tests.integration.dds.processes import Arena, wait_until
from tests.integration.programs import ROOT

pytestmark = pytest.mark.dds


class Watcher:
    """All changes that a participant has seen."""

    def __init__(self, participant: NodeParticipant) -> None:
        self.signal = Signal(participant)
        self.discovery = Discovery(participant, self.signal)
        self.changes: list[Change] = []

    def until(self, kind: type, count: int = 1, timeout_s: float = 30.0) -> None:
        def there() -> bool:
            self.changes += self.discovery.take()
            return sum(isinstance(one, kind) for one in self.changes) >= count

        wait_until(there, self.signal.wait, timeout_s)

    def of(self, kind: type) -> list[Change]:
        return [one for one in self.changes if isinstance(one, kind)]


def test_a_participant_is_known_by_tag_address_process_and_name(
    arena: Arena, participant: NodeParticipant
) -> None:
    watcher = Watcher(participant)
    node = arena.start("node", name="a node")
    node_guid = bytes.fromhex(node.ready()["guid"])
    application = arena.start("reader", types=["Plain"])
    watcher.until(ParticipantSeen, 3)
    seen = {one.pid: one for one in watcher.changes if isinstance(one, ParticipantSeen)}
    own, other, foreign = seen[os.getpid()], seen[node.pid], seen[application.pid]
    assert (own.is_own, own.tag, own.name) == (True, Tag(TagRole.NODE, b"n" * 16), "under-test")
    assert (other.guid, other.is_own, other.is_ours, other.name) == (node_guid, False, True, "a node")
    assert other.hostname == own.hostname != ""
    assert foreign.tag is None
    assert not foreign.is_ours
    assert foreign.address is not None
    assert foreign.address.startswith("127.0.0.1:")


def test_participants_come_before_their_endpoints_and_go_after_them(
    arena: Arena, participant: NodeParticipant
) -> None:
    watcher = Watcher(participant)
    watcher.until(ParticipantSeen)
    watcher.changes.clear()
    peer = arena.start("reader", types=["Plain", "Flagged", "Keyless"])
    peer.ready()
    watcher.until(EndpointSeen, 3)
    peer.kill()
    watcher.until(ParticipantGone)
    kinds = [type(one) for one in watcher.changes]
    assert kinds == [ParticipantSeen, *[EndpointSeen] * 3, *[EndpointGone] * 3, ParticipantGone]


def test_the_same_participant_that_is_back_after_its_lease_is_seen_anew(
    arena: Arena, participant: NodeParticipant
) -> None:
    watcher = Watcher(participant)
    peer = arena.start("reader", types=["Plain"])
    peer.ready()
    watcher.until(EndpointSeen)
    (first,) = (one for one in watcher.changes if isinstance(one, EndpointSeen))
    watcher.changes.clear()
    peer.signal(signal.SIGSTOP)
    watcher.until(ParticipantGone)
    peer.signal(signal.SIGCONT)
    watcher.until(EndpointSeen)
    gone = [one.guid for one in watcher.changes if isinstance(one, EndpointGone)]
    again = [one.guid for one in watcher.changes if isinstance(one, EndpointSeen)]
    assert gone == again == [first.guid]


def test_a_participant_that_went_and_came_back_between_two_looks_is_reported_gone_first(
    arena: Arena, participant: NodeParticipant
) -> None:
    watcher, absent = Watcher(participant), Watcher(participant)
    peer = arena.start("reader", types=["Plain"])
    peer.ready()
    watcher.until(EndpointSeen)
    absent.until(EndpointSeen)
    absent.changes.clear()
    peer.signal(signal.SIGSTOP)
    watcher.until(ParticipantGone)
    peer.signal(signal.SIGCONT)
    watcher.until(EndpointSeen, 2)
    absent.until(EndpointSeen)
    kinds = [type(one) for one in absent.changes]
    assert kinds == [EndpointGone, ParticipantGone, ParticipantSeen, EndpointSeen]


def test_a_process_that_came_and_went_between_two_looks_is_told_of(
    arena: Arena, participant: NodeParticipant
) -> None:
    """What it wrote meanwhile could not be told from anybody's otherwise."""
    watcher, absent = Watcher(participant), Watcher(participant)
    absent.until(ParticipantSeen)
    absent.changes.clear()
    peer = arena.start("reader", types=["Plain", "Flagged"])
    peer.ready()
    watcher.until(EndpointSeen, 2)
    peer.kill()
    watcher.until(ParticipantGone)
    absent.until(ParticipantGone)
    first, *between, last = absent.changes
    assert (type(first), type(last)) == (ParticipantSeen, ParticipantGone)
    of_each: dict[bytes, list[type]] = {}
    for one in between:
        of_each.setdefault(one.guid, []).append(type(one))
    assert list(of_each.values()) == [[EndpointSeen, EndpointGone]] * 2


@pytest.mark.parametrize("moment", range(3))
@pytest.mark.parametrize("lives_on", [False, True], ids=["came and went", "came"])
def test_what_happens_in_the_middle_of_a_look_is_told_of_in_order(
    arena: Arena,
    participant: NodeParticipant,
    monkeypatch: pytest.MonkeyPatch,
    moment: int,
    lives_on: bool,
) -> None:
    """A look is three: at participants, writers and readers, one after the other."""
    watcher, interrupted = Watcher(participant), Watcher(participant)
    interrupted.until(ParticipantSeen)
    interrupted.changes.clear()
    looks: list[int] = []

    def happen() -> None:
        peer = arena.start("reader", types=["Plain"])
        peer.ready()
        watcher.until(EndpointSeen)
        if not lives_on:
            peer.kill()
            watcher.until(ParticipantGone)

    def take_later(reader: int) -> Iterator[tuple[int, abi.SampleInfo]]:
        looks.append(reader)
        if len(looks) == moment + 1:
            monkeypatch.setattr(discovery, "take_raw", take_raw)
            happen()
        return take_raw(reader)

    monkeypatch.setattr(discovery, "take_raw", take_later)
    interrupted.until(EndpointSeen if lives_on else ParticipantGone)
    kinds = [type(one) for one in interrupted.changes]
    assert kinds == [ParticipantSeen, EndpointSeen, *([] if lives_on else [EndpointGone, ParticipantGone])]


def test_a_writer_that_is_replaced_between_two_looks_leaves_no_trace_of_the_old(
    arena: Arena, participant: NodeParticipant
) -> None:
    from engine.dds.own_types import Message
    from engine.dds.qos import EndpointQos
    from engine.dds.topics import Topic
    from engine.dds.writer import RawWriter

    watcher = Watcher(participant)
    topic = Topic.of_class(participant, "T", Message)
    first = RawWriter(participant, topic, EndpointQos())
    watcher.until(EndpointSeen)
    first.close()
    second = RawWriter(participant, topic, EndpointQos())
    watcher.until(EndpointSeen, 2)
    seen = [one.guid for one in watcher.changes if isinstance(one, EndpointSeen)]
    assert seen == [first.guid, second.guid]
    assert [one.guid for one in watcher.changes if isinstance(one, EndpointGone)] == [first.guid]


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)


def test_a_process_that_ends_without_closing_anything_ends_in_order(arena: Arena) -> None:
    code = f"""
from engine.dds.participant import NodeParticipant
from engine.dds.channel import Channel
from engine.dds.capture_reader import CaptureReader
from engine.dds.topics import Topic
from engine.dds.own_types import Batch
kept = NodeParticipant({arena.domain}, {arena.uri!r}, "careless", b"c" * 16)
channel = Channel(kept)
tap = CaptureReader(kept, Topic.of_class(kept, "T", Batch))
channel.publish("d_status", "me", b"x")
print("end")
"""
    ended = run_python(code)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "end\n", "")


def test_an_application_that_has_the_domain_already_keeps_it(arena: Arena) -> None:
    code = f"""
import os
os.environ["CYCLONEDDS_URI"] = {arena.uri!r}
from cyclonedds.domain import DomainParticipant
from engine.dds.participant import NodeParticipant, TagRole
application = DomainParticipant({arena.domain})
for _ in range(2):
    with NodeParticipant({arena.domain}, "", "library", b"c" * 16, TagRole.CLIENT) as ours:
        assert ours.guid
print(len(application.guid.bytes))
"""
    ended = run_python(code)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "16\n", "")


def test_the_check_of_layouts_passes_and_leaves_nothing_behind() -> None:
    code = """
import threading, os
from engine.dds.selfcheck import check_layouts
check_layouts()
before = len(os.listdir("/proc/self/task"))
check_layouts()
print(len(os.listdir("/proc/self/task")) - before)
"""
    ended = run_python(code)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "0\n", "")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            "import engine.dds.wheel as v; v.installed_version = lambda: '0.10.5'",
            "cyclonedds 0.10.5 is installed, but the memory layouts of 11.0.1 are needed",
        ),
        (
            "import engine.dds.capture_reader as t; t.CaptureReader.drain = lambda self: []",
            "does not behave as expected on this machine: a tap gave",
        ),
        (
            "import engine.dds.discovery as d; d.read_endpoint_qos = lambda qos: None",
            "does not behave as expected on this machine: discovery told",
        ),
    ],
    ids=["version", "tap", "discovery"],
)
def test_another_cyclone_is_refused_with_a_sentence(change: str, words: str) -> None:
    code = f"""
{change}
from engine.dds.errors import UnsupportedCyclone
try:
    from engine.dds.selfcheck import check_layouts
    check_layouts()
except UnsupportedCyclone as error:
    print(error)
"""
    ended = run_python(code)
    assert words in ended.stdout, ended
