"""One persistence service as a process: what it keeps, what it gives, and what it survives."""

from __future__ import annotations

import random
import signal
import struct
import subprocess
import sys
import time
import typing

import pytest

from engine.dataset.sample import DATA, DISPOSE
from engine.dds.activity import ThreadActivities
from engine.dds.channel import Channel
from engine.dds.discovery import Discovery, ParticipantSeen
from engine.dds.participant import NodeParticipant, TagRole
from engine.dds.subscription_endpoints import PARTITION
from engine.dds.waiting import Signal
from engine.persistence.core.messages import Hello, ReplicaMessage, Saved
from engine.persistence.service import replica_view as view
from engine.persistence.service.links import Links, ServicePart
from engine.persistence.service.service_process import STATUS_TOPICS
from tests.integration.lab import Lab
from tests.integration.programs import ROOT
from tests.redundancy.replicas import PATIENCE_S, Replicas, Values, as_json, write

pytestmark = pytest.mark.dds

COUNT = 100


def test_a_late_reader_gets_everything_once_from_one_of_three(lab: Lab, replicas: Replicas) -> None:
    names = ("a", "b", "c")
    replicas.start(*names)
    replicas.wait_connected(*names)
    writer = lab.program("kept", topic="Reading")
    writer.tell(partitions=["stock"], nodes=len(names))
    assert writer.answer("kept"), "a writer knows them by their readers"
    lab.write(
        {"count": COUNT, "time": 1_000},
        {"op": "dispose", "first": 10, "count": 5, "time": 2_000},
        {"op": "unregister", "first": 20, "count": 5, "time": 3_000},
        readers=3,
    )

    def disposed(values: Values) -> bool:
        statuses = [status for _, _, status in values]
        return (statuses.count(DATA), statuses.count(DISPOSE)) == (COUNT - 5, 5)

    replicas.wait_equal(*names, count=COUNT, where=disposed)  # an unregister is not kept
    readers = lab.readers(2)
    for reader in readers:
        reader.wait(COUNT - 5, disposed=5, no_writers=COUNT - 5)
    replicas.wait_for("it shows both", lambda: replicas.counter("a", "deliveries") == 2)
    for reader in readers:
        tally = reader.tally(detailed=True)
        assert (tally["arrivals"], tally["repeated"]) == (COUNT - 5, 0)
        for name, samples in tally["samples"].items():
            assert [time for time, _ in samples] == [1_000 + int(name.split()[1])]
    assert [replicas.counter(name, "deliveries") for name in "bc"] == [0, 0]
    replicas.kill("a")
    lab.reader().wait(COUNT - 5, disposed=5)
    replicas.kill("b", "c")
    replicas.start("c")
    lab.reader().wait(COUNT - 5, disposed=5)


def test_a_kill_at_any_time_leaves_the_state_of_one_moment(replicas: Replicas) -> None:
    chance = random.Random(7)
    replicas.start("a")
    count = 0
    for turn in range(2):
        writer = replicas.writer("a")
        writer.answer("done")
        writer.tell(steps=[{"first": turn * 20_000, "count": 20_000, "time": 1_000, "progress": True}])
        for _ in range(chance.randrange(1, 12)):
            writer.answer("progress")
        replicas.kill("a")
        writer.kill()
        saved = replicas.saved("a")
        check_one_moment(saved)
        assert len(saved.kept) >= count, "what was there before is there"
        count = len(saved.kept)
        replicas.start("a")
        replicas.wait_values(count, "a")
    replicas.start("b")
    replicas.wait_equal("a", "b", count=count)


def check_one_moment(saved: Saved) -> None:
    """Each writer wrote each instance once, with one timestamp after the other."""
    for writer, had in saved.had:
        ((first, last),) = had.intervals
        samples = [kept.sample for kept in saved.kept if kept.sample.writer == writer]
        assert (first, last) == (min(s.sequence for s in samples), max(s.sequence for s in samples))
        times = sorted(sample.source_time_ns for sample in samples)
        assert times == list(range(times[0], times[-1] + 1)), "no hole"


def test_equal_and_older_timestamps_end_the_same_everywhere(replicas: Replicas) -> None:
    replicas.start("a", "b", "c")
    replicas.wait_connected("a", "b", "c")
    chance = random.Random(3)
    writers = [replicas.writer(*names) for names in ("ab", "b", "c")]
    for writer in writers:
        writer.answer("done")
    for _ in range(30):
        one = {"first": chance.randrange(20), "count": 3, "time": chance.randrange(1_000, 1_010)}
        write(chance.choice(writers), {**one, "value": chance.randrange(5)})
    for writer in writers:
        write(writer, {"count": 23, "time": 990})
    replicas.wait_equal("a", "b", "c", count=23)
    end_s = time.monotonic() + PATIENCE_S
    assert replicas.watching.wait_equal(3, lambda: time.monotonic() >= end_s)


def test_without_enable_nothing_is_exchanged(lab: Lab, replicas: Replicas) -> None:
    replicas.file.write_text(replicas.file.read_text().replace("<enable>true", "<enable>false"))
    replicas.start("a", "b")
    for name, first in (("a", 0), ("b", 1_000)):
        writer = replicas.writer(name)
        writer.answer("done")
        write(writer, {"first": first, "count": COUNT, "time": 1_000})
    replicas.wait_values(COUNT, "a", "b")
    assert not replicas.values("a").keys() & replicas.values("b").keys()
    begun = {name: each.time_ns for name, each in replicas.shown().items()}
    assert not replicas.watching.wait_equal(  # until each has shown itself twice
        2, lambda: all(each.time_ns - begun[name] > 1.5e9 for name, each in replicas.shown().items())
    )
    lab.reader().wait(2 * COUNT)
    assert replicas.counter("a", "sent") == replicas.counter("b", "received") == 0


def test_a_topic_that_no_group_covers_is_left_alone(lab: Lab, replicas: Replicas) -> None:
    replicas.file.write_text(replicas.file.read_text().replace('filter="*"', 'filter="Other*, Rea?ing2"'))
    replicas.start("a")
    lab.write({"count": 5, "time": 1_000}, topic="Reading2")
    replicas.wait_values(5, "a")
    reader = lab.reader(durability=0)
    lab.write({"count": 5, "time": 1_000})
    reader.wait(5)
    lab.write({"first": 5, "count": 1, "time": 1_000}, topic="Reading2")
    replicas.wait_values(6, "a")


def test_what_is_wrong_between_replicas_is_said(lab: Lab, replicas: Replicas) -> None:
    replicas.start("a")
    second = command(replicas, "run", str(replicas.file), "--name", "a", "--store", str(replicas.home("a")))
    assert second.returncode == 2
    assert "the store is in use by node 'a' (process " in second.stderr
    replicas.launch("a2", "--name", "a")
    replicas.wait_for(
        "both say so",
        lambda: "it uses this replica's name" in "".join(replicas.log(n).read_text() for n in ("a", "a2")),
    )
    shown = command(replicas, "status", "--json")
    assert shown.returncode == 1
    problems = [problem for each in as_json(shown.stdout)["replicas"] for problem in each["problems"]]
    assert (
        problems
        == ["a: it uses this replica's name; give each replica its own with --name"] * len(problems)
        != []
    )


def test_status_shows_providers_lag_and_stability(lab: Lab, replicas: Replicas) -> None:
    assert command(replicas, "status").returncode == 3
    replicas.start("a", "b")
    replicas.wait_connected("a", "b")
    writer = replicas.writer("a")
    writer.answer("done")
    write(writer, {"count": COUNT, "time": 1_000})
    replicas.wait_equal("a", "b", count=COUNT)
    replicas.wait_for("b has its provider", lambda: [w.provider for w in replicas.writers("b")] == ["a"])
    shown = command(replicas, "status", "--json")
    assert shown.returncode == 0, shown.stderr
    one, other = as_json(shown.stdout)["replicas"]
    assert [group["values"] for each in (one, other) for group in each["groups"]] == [COUNT, COUNT]
    assert [peer["name"] for peer in one["peers"]] == ["b"]
    (writer_view,) = other["writers"]
    assert {name: writer_view[name] for name in ("topic", "provider", "selected", "path", "lag_ns")} == {
        "topic": "Reading",
        "provider": "a",
        "selected": "a",
        "path": ["a", "b"],
        "lag_ns": 0,
    }
    assert (writer_view["stable"], writer_view["stable_of"]) == (1, 1)
    text = command(replicas, "status").stdout
    assert "original" in text
    assert "a > b" in text


def test_status_can_be_watched(replicas: Replicas) -> None:
    replicas.start("a")
    with subprocess.Popen(
        arguments(replicas, "status", "--watch", "--json"),
        cwd=ROOT,
        env=replicas.lab.environ,
        stdout=subprocess.PIPE,
        text=True,
    ) as watching:
        try:
            assert watching.stdout is not None
            lines = ([each["name"] for each in as_json(line)["replicas"]] for line in watching.stdout)
            next(names for names in lines if names == ["a"])
            replicas.start("b")
            next(names for names in lines if names == ["a", "b"])
            replicas.kill("b")
            next(names for names in lines if names == ["a"])
            watching.send_signal(signal.SIGINT)
            assert watching.wait(20) == 130
        finally:
            watching.kill()


def arguments(replicas: Replicas, *words: str) -> list[str]:
    domain = ("--domain", str(replicas.lab.domain))
    return [sys.executable, "-m", "ospltool.cli.app", "persistence", *words, *domain]


def command(replicas: Replicas, *words: str) -> subprocess.CompletedProcess[str]:
    """`ospltool persistence ...` in the domain of the replicas."""
    return subprocess.run(
        arguments(replicas, *words),
        cwd=ROOT,
        env=replicas.lab.environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


def test_whatever_somebody_sends_is_survived_and_counted(lab: Lab, replicas: Replicas) -> None:
    replicas.start("a", "b")
    replicas.wait_connected("a", "b")
    with NodeParticipant(lab.domain, lab.uri, "hostile", b"h" * 16, TagRole.PERSISTENCE) as participant:
        channel = Channel(participant, PARTITION, topics=STATUS_TOPICS)
        channel.publish(view.TOPIC, "x", b"\x00nonsense")
        stranger = Stranger(participant, replicas.shown()["a"].id)
        for number, body in enumerate(HOSTILE, 1):
            stranger.say(body)
            replicas.wait_for(
                "it is counted",
                lambda: replicas.counter("a", "malformed") == number,  # noqa: B023 - at once
            )
        stranger.close()
    writer = replicas.writer("a")
    writer.answer("done")
    write(writer, {"count": COUNT, "time": 1_000})
    replicas.wait_equal("a", "b", count=COUNT)
    assert replicas.watching.faults >= 1


HOSTILE: list[bytes] = [
    b"",
    random.Random(1).randbytes(500),
    *(
        struct.pack(">BII", 1, 0, len(head)) + head
        for head in (
            b"[" * 100_000,
            b'{"type": "groups", "groups": [{"group": ["p", "t", "x"], "type": 5}]}',
            b'{"type": "served", "readers": {}}',
            b'{"type": "unheard of"}',
        )
    ),
]


class Deaf(ServicePart):
    """Takes everything, and does nothing."""

    kinds = typing.get_args(ReplicaMessage)


class Stranger:
    """Speaks to a replica as another one does, but without sense."""

    def __init__(self, participant: NodeParticipant, replica_id: str) -> None:
        self._signal = Signal(participant)
        self._discovery = Discovery(participant, self._signal)
        hello = Hello("redundant", "x", (b"h" * 16).hex())
        self._links = Links(
            participant, hello, (Deaf(),), self._signal, lambda: None, ThreadActivities(), lambda _: None
        )
        self._id = replica_id
        self._guid = b""

    def connect(self) -> None:
        """Until the link is up; it may have to begin anew."""
        deadline = time.monotonic() + 20
        while not self._is_up():
            assert time.monotonic() < deadline
            self._signal.wait(0.2)

    def _is_up(self) -> bool:
        for change in self._discovery.take():
            if isinstance(change, ParticipantSeen) and change.tag and change.tag.node_id.hex() == self._id:
                self._guid = change.guid
                self._links.seen(change.guid, self._id)
        self._links.turn(time.monotonic())
        self._links.exchanged(self._links.receiver.take())
        return bool(self._guid) and self._guid not in self._links.beginning

    def say(self, body: bytes) -> None:
        """Send it; the other side begins the link anew after it."""
        self.connect()
        self._links.send_to(self._guid, body)

    def close(self) -> None:
        self._links.close(1.0)
