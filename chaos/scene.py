"""What a round's nemesis acts on, and the account of what it may cost."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from chaos import checker
from chaos.hosts import CUT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from chaos.checker import Confirmed, Records, Write
    from chaos.ground import Application, Ground
    from chaos.switch import Rule
    from tests.integration.forks import Process

DISK_BYTES: Final = 256 << 20
"""Size of the disk of each node: room for a database and its log."""
STORED_NS: Final = 5_000_000_000
"""What a node has acknowledged is on its disk after this time, unless the node is disturbed."""
NOTED_NS: Final = 1_000_000_000
"""At most this long after the nodes have given a confirmation, the writer notes it."""
UNDER_WAY_NS: Final = 60_000_000_000
"""What was written longer ago has been confirmed or not."""
END_S: Final = 30.0


@dataclasses.dataclass
class Disturbance:
    """From when to when a node could not store what it acknowledged; wall clock, ns."""

    node: str
    began_ns: int
    ended_ns: int

    def may_have_prevented(self, name: str, confirmed: Confirmed) -> bool:
        """Whether the node acknowledged a write, perhaps, and then had not the time to store it.

        A node that is killed right after it acknowledged is matched until its lease ends, so that a busy
        writer still confirms in its name.
        """
        return (
            self.node == name
            and self.began_ns - STORED_NS <= confirmed.wall_ns
            and confirmed.since_ns <= self.ended_ns
        )


class Scene:
    """Nodes and writers of one round, with the account of disturbed nodes and destroyed copies.

    Args:
        ground: with every node configured and none started.
        rate: samples a second of each of the writers that write all the time.
        promise: what they call confirmed, one of `chaos.promises.PROMISES`.
    """

    def __init__(self, ground: Ground, rate: int, promise: str) -> None:
        self.ground = ground
        self.nodes = ground.nodes
        self.writers = ground.writers[:-1]  # the last host is that of late joiners
        self.topics: set[str] = set()
        self._rate, self._promise = rate, promise
        self._number = 0
        self._applications: dict[str, list[tuple[Application, dict[str, Any]]]] = {}
        self._disturbances: list[Disturbance] = []
        self._stored: set[Write] = set()
        self._destructions: list[tuple[int, list[list[checker.Held]]]] = []
        self._damaged: set[str] = set()
        for name in self.nodes:
            store = ground.home(name) / "store"
            store.mkdir(parents=True)
            _mount("-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(store))

    def others(self, name: str) -> tuple[str, ...]:
        """The nodes but this."""
        return tuple(other for other in self.nodes if other != name)

    def number(self) -> int:
        """A new number, for names."""
        self._number += 1
        return self._number

    def pass_time(self, seconds: float) -> None:
        """A fault lasts; what nodes show goes into the recording meanwhile."""
        until = time.monotonic() + seconds
        self.ground.seen.wait_for("time passes", lambda: time.monotonic() >= until, seconds + 5)

    # Processes.

    def start(self, name: str, *, shift_s: int = 0) -> None:
        """Start a node unless it runs; with a wrong wall clock it has no supervisor."""
        if self.ground.is_running(name):
            return
        self.ground.shifts[name] = shift_s
        self.ground.start(name)

    def stop(self, name: str) -> None:
        """Stop a node in order; nothing if it does not run."""
        process = self.ground.release(name)
        if process is None:
            return
        _signal(_family(process.pid), signal.SIGCONT)
        process.terminate()
        with _reaped(process):
            process.wait(END_S)
        self.ground.seen.forget(name)

    def kill(self, name: str, *, node: bool = True, supervisor: bool = True) -> None:
        """SIGKILL to a node and its supervisor, or to one of them; nothing if they do not run.

        A supervisor alone restarts its node; a node alone ends, in order.
        """
        process = self.ground.process_of(name)
        if process is None:
            return
        parent, *children = _family(process.pid)
        if node:
            self._note_stored(name)
            self._disturb(name, time.time_ns())
        if name in self.ground.supervised and children and not supervisor:
            _signal(children, signal.SIGKILL)
            return
        _signal([parent], signal.SIGKILL)
        if node:
            _signal(children, signal.SIGKILL)
        process.wait(END_S)
        for child in children:
            _wait_gone(child)
        self.ground.release(name)
        self.ground.seen.forget(name)

    @contextlib.contextmanager
    def stopped(self, name: str) -> Iterator[None]:
        """SIGSTOP to a node (not to its supervisor), SIGCONT at the end."""
        process = self.ground.process_of(name)
        pids = _family(process.pid)[-1:] if process else []
        self._note_stored(name)
        began_ns = time.time_ns()
        _signal(pids, signal.SIGSTOP)
        try:
            yield
        finally:
            _signal(pids, signal.SIGCONT)
            self._disturb(name, began_ns)

    # Links and disks.

    @contextlib.contextmanager
    def linked(
        self, ones: Iterable[str], others: Iterable[str], rule: Rule = CUT, *, both_ways: bool = True
    ) -> Iterator[None]:
        """Links from these hosts to those are bad in this way."""
        fault = self.ground.hosts.add(ones, others, rule, both_ways=both_ways)
        try:
            yield
        finally:
            self.ground.hosts.remove(fault)

    @contextlib.contextmanager
    def full(self, name: str) -> Iterator[None]:
        """The disk of a node has no room."""
        store = self.ground.home(name) / "store"
        self._note_stored(name)
        began_ns = time.time_ns()
        for _ in range(20):  # the node may just take more, and less than what is taken is refused
            room = os.statvfs(store)
            used = (room.f_blocks - room.f_bfree + 1) * room.f_frsize
            with contextlib.suppress(subprocess.CalledProcessError):
                _mount("-o", f"remount,size={used}", str(store))
                break
        try:
            yield
        finally:
            _mount("-o", f"remount,size={DISK_BYTES}", str(store))
            self._disturb(name, began_ns)

    def destroy(self, name: str) -> None:
        """The disk of a stopped node is about to be harmed: what is on no other disk may be lost."""
        sound = [
            self.ground.held(other)
            for other in self.others(name)
            if other not in self._damaged or (self.ground.is_running(other) and self.ground.are_up(other))
        ]
        self._destructions.append((time.time_ns(), sound))
        self._damaged.add(name)

    # Writers.

    def add_writer(self, host: str, topics: list[str], **options: Any) -> None:
        """A writer that writes to these topics until the end of the round."""
        self.topics.update(topics)
        given = {"topics": topics, "seed": self.number(), "promise": self._promise, **options}
        self._applications.setdefault(host, []).append((self._write(host, given), given))

    def _write(self, host: str, options: dict[str, Any]) -> Application:
        made = self.ground.writer(host, **options)
        made.tell(rate=self._rate, stations=40, disposes=0.1)
        return made

    def kill_writer(self, host: str) -> None:
        """SIGKILL to the writers on a host; others take their places."""
        for place, (application, options) in enumerate(self._applications[host]):
            application.kill()
            again = {**options, "seed": self.number()}
            self._applications[host][place] = self._write(host, again), again

    def end_writers(self) -> None:
        """Let all writers end."""
        codes = [one.end() for host in self._applications.values() for one, _ in host]
        if broken := [code for code in codes if code > 0]:  # one that is blocked for too long is killed
            raise AssertionError(f"a writer of the harness ended with code {broken[0]}")

    def save_disks(self) -> None:
        """Disks go with the capsule: leave copies in their places. Nothing runs any more."""
        for name in self.nodes:
            disk = self.ground.home(name) / "store"
            saved = shutil.copytree(disk, disk.with_name("saved"))
            subprocess.run(["umount", str(disk)], check=True, capture_output=True, timeout=10)
            disk.rmdir()
            saved.rename(disk)

    # The account.

    def _disturb(self, name: str, began_ns: int) -> None:
        self._disturbances.append(Disturbance(name, began_ns, time.time_ns()))

    def _note_stored(self, name: str) -> None:
        """What a node has confirmed and has on its disk, right before it is disturbed."""
        confirmed = [one.write for one in self.ground.records().confirmed if name in one.nodes]
        self._stored.update(set(confirmed).difference(checker.lost(self.ground.held(name), confirmed)))

    def _is_stored(self, confirmed: Confirmed) -> bool:
        """Whether it was seen on a disk, or a node that confirmed it had the time to store it."""
        return (
            confirmed.nodes == ("*",)
            or confirmed.write in self._stored
            or any(
                not any(each.may_have_prevented(name, confirmed) for each in self._disturbances)
                for name in confirmed.nodes
            )
        )

    def promised(self, records: Records) -> list[Write]:
        """What must not be lost: confirmed, stored, and never on destroyed disks alone."""
        destroyed = self._destroyed(records)
        return [one.write for one in records.confirmed if one.write not in destroyed and self._is_stored(one)]

    def _destroyed(self, records: Records) -> set[Write]:
        """What may have been counted as stored on a disk that was harmed, and was on no sound one then.

        A DurableWriter counts the nodes that have stored a sample one by one, and tells when all before it
        are stored, too, which may be long after a disk that counted is gone. So what was under way then is
        left out, whenever it was confirmed.
        """
        destroyed: set[Write] = set()
        for at_ns, sound in self._destructions:
            left = [
                one.write
                for one in records.confirmed
                if one.wall_ns <= at_ns + NOTED_NS or at_ns - UNDER_WAY_NS <= one.write.time_ns <= at_ns
            ]
            for held in sound:
                left = checker.lost(held, left)
            destroyed.update(left)
        return destroyed


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True, text=True, timeout=10)


def _family(pid: int) -> list[int]:
    """A process and its children."""
    children = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
                if int(fields[1]) == pid and fields[0] != "Z":
                    children.append(int(entry.name))
    return [pid, *sorted(children)]


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _wait_gone(pid: int) -> None:
    """Until a process that is not our child, or has become it, has ended."""
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            if not select.select([handle], [], [], END_S)[0]:
                raise AssertionError(f"process {pid} does not end")
        finally:
            os.close(handle)


@contextlib.contextmanager
def _reaped(process: Process) -> Iterator[None]:
    """A process that does not end in order is killed, and that is a violation."""
    try:
        yield
    except subprocess.TimeoutExpired:
        _signal(_family(process.pid), signal.SIGKILL)
        process.wait(END_S)
        raise AssertionError(f"a node did not end within {END_S:g} s of SIGTERM") from None
