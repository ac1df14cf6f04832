"""What it costs to keep instances ALIVE in the processes of late joiners.

N real processes read M topics each; of every topic one instance with a living writer is delivered to each
of them, and kept. Counted are the entities and the memory of the process that keeps them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.rows import Bar, Is, Row
from engine.core.name_spaces import Group
from engine.dataset.groups import DurabilityKind, GroupDescription, GroupQos
from engine.dataset.living import DeliveryStep
from engine.dataset.sample import DATA, make_sample
from engine.dds.directed import DirectedSession, Portion
from engine.dds.discovery import Discovery, ParticipantSeen
from engine.dds.own_types import SelfCheck
from engine.dds.participant import NodeParticipant, TagRole
from engine.dds.topics import description_of
from engine.dds.uri import cyclone_uri
from engine.dds.waiting import Signal

if TYPE_CHECKING:
    from collections.abc import Iterator

AREA: Final = "alive"
DOMAIN: Final = 229
LOADS: Final = ((50, 20), (1, 1_000))
"""Processes, and topics that each of them reads."""
MEMORY: Final = {(50, 20): Bar(Is.AT_MOST, 100), (1, 1_000): Bar(Is.AT_MOST, 60)}
_PAYLOAD: Final = b"\0\1\0\0" + (7).to_bytes(4, "little") + b"\2\0\0\0x\0\0\0"
_KEY: Final = (7).to_bytes(4, "little")


def run(_: int) -> list[Row]:
    """Each load once: it is memory that is measured."""
    rows = []
    for processes, topics in LOADS:
        memory, writers, threads, seconds = _measure(processes, topics)
        name = f"{processes} processes of {topics:,} topics"
        rows += [
            Row(AREA, f"{name}, memory", "MiB", (memory,), bar=MEMORY[processes, topics]),
            Row(AREA, f"{name}, writers that stay", "", (writers,)),
            Row(AREA, f"{name}, threads", "", (threads,)),
            Row(AREA, f"{name}, until all is delivered", "s", (seconds,)),
        ]
    return rows


def _measure(processes: int, topics: int) -> tuple[float, float, float, float]:
    """MiB, writers, threads and seconds that it takes to keep one instance of each topic in each process."""
    uri = cyclone_uri(tag=f"alive-{os.getpid()}", environment={})
    environ = {**os.environ, "CYCLONEDDS_URI": uri}
    readers = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.alive", json.dumps([number * topics, topics])],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(processes)
    ]
    sessions: list[DirectedSession] = []
    try:
        for reader in readers:
            assert reader.stdout is not None
            reader.stdout.readline()
        with NodeParticipant(DOMAIN, uri, "measures", os.urandom(16), TagRole.CLIENT) as participant:
            addresses = _addresses(participant, {reader.pid for reader in readers})
            before = _memory_mib(), _threads()
            started = time.monotonic()
            for number, reader in enumerate(readers):
                guid, address = addresses[reader.pid]
                session = DirectedSession(address, "lo", DOMAIN, bytes(16), guid, f"alive-{os.getpid()}")
                sessions.append(session)
                _deliver(session, range(number * topics, (number + 1) * topics))
            seconds = time.monotonic() - started
            kept = sum(session.kept for session in sessions)
            return _memory_mib() - before[0], kept, _threads() - before[1], seconds
    finally:
        for session in sessions:
            session.close()
        for reader in readers:
            assert reader.stdin is not None
            reader.stdin.close()
        for reader in readers:
            reader.wait(20)


def _deliver(session: DirectedSession, topics: range) -> None:
    qos = GroupQos(DurabilityKind.TRANSIENT)
    for number in topics:
        sample = make_sample(1_000, b"w" * 16, DATA, _KEY, _PAYLOAD)
        type_ = description_of(SelfCheck)
        description = GroupDescription(Group("", f"T{number}", type_.type_id), type_, qos)
        report = session.deliver(
            Portion(description, [DeliveryStep(sample, is_written=True)], keeps=True), 30
        )
        if report.problem:
            raise RuntimeError(report.problem)


def _addresses(participant: NodeParticipant, wanted: set[int]) -> dict[int, tuple[bytes, str]]:
    signal = Signal(participant)
    discovery = Discovery(participant, signal)
    found: dict[int, tuple[bytes, str]] = {}

    def has_found_all() -> bool:
        for change in discovery.take():
            if isinstance(change, ParticipantSeen) and change.pid in wanted and change.address:
                found[change.pid] = change.guid, change.address
        return len(found) == len(wanted)

    if not signal.wait_until(has_found_all, 60.0):
        raise RuntimeError("not every process was discovered")
    return found


def _memory_mib() -> float:
    return _status("VmRSS") / 1024


def _threads() -> int:
    """The threads of this process, those of Cyclone DDS included."""
    return _status("Threads")


def _status(key: str) -> int:
    lines: Iterator[str] = iter(Path("/proc/self/status").read_text(encoding="ascii").splitlines())
    return next(int(line.split()[1]) for line in lines if line.startswith(key))


def read(first: int, count: int) -> None:
    """A process that reads topics until its standard input ends."""
    from cyclonedds.core import Policy, Qos
    from cyclonedds.domain import DomainParticipant
    from cyclonedds.sub import DataReader
    from cyclonedds.topic import Topic

    participant = DomainParticipant(DOMAIN)
    qos = Qos(Policy.Durability.Transient, Policy.Reliability.Reliable(1_000_000_000))
    kept = [
        DataReader(participant, Topic(participant, f"T{number}", SelfCheck), qos=qos)
        for number in range(first, first + count)
    ]
    print("ready", flush=True)
    sys.stdin.read()
    del kept


if __name__ == "__main__":
    read(*json.loads(sys.argv[1]))
