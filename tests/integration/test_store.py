from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.store.tables import PAGE_BYTES
from engine.supervisor.policy import EXIT_CONFIGURATION
from tests.integration.configurations import Settings
from tests.integration.lab import Lab

pytestmark = pytest.mark.dds

PERIOD_S = 15.0
"""ServiceTerminatePeriod of nodes that end while much is written: they need 1 s, 5 s beside much else."""


def start_alone(lab: Lab, settings: Settings | None = None) -> None:
    lab.configure("n1", settings or Settings())
    lab.start("n1")
    lab.seen.wait_for("n1 is complete", lambda: lab.seen.are_complete("n1"))


def findings(lab: Lab, name: str) -> tuple[str, ...]:
    shown = lab.seen.node(name)
    assert shown is not None
    return shown.store.findings


def disk_digests(lab: Lab, name: str) -> set[bytes]:
    return {digest for digests in lab.on_disk(name).values() for digest in digests}


def shown_bytes(lab: Lab, name: str) -> int:
    node = lab.seen.node(name)
    return node.store.disk_bytes if node else 0


def du(lab: Lab, name: str) -> int:
    """What the files of a store take up on the disk."""
    files = [path for path in (lab.home(name) / "store").iterdir() if not path.name.startswith("store.past")]
    return sum(path.stat().st_blocks * 512 for path in files)


def test_a_second_node_on_the_same_store_is_refused_and_told_who_has_it(lab: Lab) -> None:
    start_alone(lab)
    second = lab.launch("n1")
    assert second.wait(20) not in (0, None)
    text = lab.output("n1")
    assert f"the store is in use by node 'n1' (process {lab.pid('n1')})" in text
    assert "Traceback" not in text
    (fatal,) = lab.trace("n1", "lifecycle.bad-configuration")
    assert fatal["cause"] in text
    lab.configure("n2", Settings())
    path = lab.home("n2") / "ospl.xml"
    path.write_text(path.read_text().replace(str(lab.home("n2") / "store"), str(lab.home("n1") / "store")))
    assert lab.ospltool("n2", "start")[0] == EXIT_CONFIGURATION
    (told,) = json.loads(lab.ospltool("n2", "health", "--json")[1])["data"]
    (found,) = told["incidents"]
    assert (found["code"], found["who"]) == ("DUL-NODE-NOT-STARTED", "n2")
    assert found["what"] == "n2 did not start, and was not heard since this watch began"
    assert "the store is in use by node 'n1'" in found["why"]
    lab.write({"count": 10, "time": 1_000})
    lab.seen.wait_for("the first one goes on", lambda: lab.seen.stored("n1") == 10)
    lab.seen.wait_for("it shows what its files take up", lambda: shown_bytes(lab, "n1") == du(lab, "n1") > 10)


def test_sigterm_ends_in_order_within_the_terminate_period_and_leaves_a_clean_store(lab: Lab) -> None:
    names = lab.configure_three(Settings(terminate_s=PERIOD_S))
    lab.start(*names)
    lab.seen.wait_for("all complete", lambda: lab.seen.are_complete(*names))
    writer = lab.program("writer", steps=[{"count": 200_000, "time": 1_000, "progress": True}])
    for _ in range(4):
        writer.answer("progress")
    processes = [lab.process(name) for name in names]
    for process in processes:
        process.terminate()
    assert [process.wait(PERIOD_S) for process in processes] == [0, 0, 0]
    writer.kill()
    lab.stop(*names)
    for name in names:
        assert lab.trace(name, "lifecycle.stopped")
    lab.start_again(*names)
    assert {findings(lab, name) for name in names} == {()}


def test_a_node_that_was_killed_says_so_at_its_next_start(lab: Lab) -> None:
    start_alone(lab)
    lab.write({"count": 10, "time": 1_000})
    lab.seen.wait_for("it is stored", lambda: lab.seen.stored("n1") == 10)
    lab.kill("n1")
    lab.start("n1")
    lab.seen.wait_for("n1 is complete again", lambda: lab.seen.are_complete("n1"))
    assert findings(lab, "n1") == ("the last run did not close the store",)


@pytest.mark.parametrize("seed", range(3))
def test_what_was_shown_as_stored_is_there_after_all_were_killed_while_writing(lab: Lab, seed: int) -> None:
    chance = random.Random(seed)
    names = lab.start_three()
    writer = lab.program("writer", steps=[{"count": 200_000, "time": 1_000, "progress": True}], readers=3)
    threshold = chance.randrange(500, 8_000)
    lab.seen.wait_for(
        "some of it is stored", lambda: max(lab.seen.stored(name) for name in names) >= threshold
    )
    order = chance.sample(names, 3)
    shown = {name: lab.seen.stored(name) for name in names}
    lab.kill(*order)
    writer.kill()
    for name in names:
        assert len(disk_digests(lab, name)) >= shown[name]

    before = set().union(*(disk_digests(lab, name) for name in names))  # one injects, the others join
    began_ns = lab.start_again(*names)
    injected = [name for name in names if lab.trace(name, "injection.started", since_ns=began_ns)]
    assert injected == ["n1"], "one source injects: the master"
    reader = lab.reader()
    reader.wait(len(before))
    lab.wait_delivered()
    assert reader.tally()["arrivals"] == len(before) >= shown["n1"]
    lab.stop(*names)
    assert all(disk_digests(lab, name) == before for name in names)


# No free disk.


class SmallDisk:
    """A disk of some megabytes for one node, with something on it that can be removed."""

    def __init__(self, lab: Lab) -> None:
        self.path = lab.home("n1") / "store"
        self._ballast = self.path / "ballast"
        self.path.mkdir(parents=True)
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=8m", "ospltool-test", str(self.path)],
            check=False,
            capture_output=True,
            text=True,
            timeout=10,
        )
        if done.returncode:
            pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")

    def fill(self, _: int) -> None:
        with self._ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass

    def free(self, _: int) -> None:
        self._ballast.unlink()

    def close(self) -> None:
        subprocess.run(["umount", "-l", str(self.path)], check=True, timeout=10)


class SmallFiles:
    """A node that may not write files beyond what they are now."""

    def __init__(self, lab: Lab) -> None:
        self.path = lab.home("n1") / "store"

    def fill(self, pid: int) -> None:
        size = (self.path / "store.sqlite-wal").stat().st_size
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def free(self, pid: int) -> None:
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, unlimited)

    def close(self) -> None:
        pass


@pytest.fixture(params=[SmallDisk, SmallFiles], ids=["full disk", "file size limit"])
def disk(request: pytest.FixtureRequest, lab: Lab) -> Iterator[SmallDisk | SmallFiles]:
    made: SmallDisk | SmallFiles = request.param(lab)
    yield made
    lab.stop_all()
    made.close()


def write_beyond(lab: Lab, disk: SmallDisk | SmallFiles) -> None:
    """A node stores 500 samples; then its disk is full, and 2,000 more are written."""
    start_alone(lab)
    writer = lab.program("writer", steps=[{"count": 500, "time": 1_000}])
    writer.answer("done")
    lab.seen.wait_for("it is stored", lambda: lab.seen.stored("n1") == 500)
    disk.fill(lab.pid("n1"))
    writer.tell(steps=[{"first": 500, "count": 2_000, "time": 2_000}])
    writer.answer("done")


def test_without_free_disk_a_node_goes_on_says_so_and_returns_by_itself(
    lab: Lab, disk: SmallDisk | SmallFiles
) -> None:
    write_beyond(lab, disk)

    def problem() -> str:
        shown = lab.seen.node("n1")
        return shown.store.problem if shown else ""

    lab.seen.wait_for("it says that the disk is full", problem)
    lab.seen.wait_for("it holds all the same", lambda: lab.seen.samples("n1") == 2_500)
    degraded = lab.seen.stored("n1")
    assert 500 <= degraded < 2_500
    assert "cannot be stored on disk" in lab.errors("n1")
    reader = lab.reader()
    reader.wait(2_500)

    disk.free(lab.pid("n1"))
    lab.seen.wait_for("the disk has all", lambda: not problem() and lab.seen.stored("n1") == 2_500)
    (recovered,) = lab.trace("n1", "store.recovered")
    assert int(recovered["samples"]) >= 2_500 - degraded
    assert float(recovered["elapsed_ns"]) > 0
    lab.kill("n1")
    assert len(disk_digests(lab, "n1")) == 2_500


def test_what_was_stored_before_the_disk_was_full_survives_a_kill(
    lab: Lab, disk: SmallDisk | SmallFiles
) -> None:
    write_beyond(lab, disk)
    lab.seen.wait_for("it holds all", lambda: lab.seen.samples("n1") == 2_500)
    shown = lab.seen.stored("n1")
    lab.kill("n1")
    assert shown >= 500
    assert len(disk_digests(lab, "n1")) >= shown


# A store that is taken away.


@pytest.mark.parametrize("taken", ["the file", "the log", "all files", "replaced", "the directory", "moved"])
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_a_store_that_is_taken_away_under_a_node_is_noticed_and_written_again(
    lab: Lab, taken: str, *, busy: bool
) -> None:
    start_alone(lab)
    lab.write({"count": 20, "time": 1_000})
    lab.seen.wait_for("it is stored", lambda: lab.seen.stored("n1") == 20)
    store = lab.home("n1") / "store"
    file = store / "store.sqlite"
    if taken == "all files":
        for one in list(store.iterdir()):
            one.unlink()
    elif taken == "the file":
        file.unlink()
    elif taken == "the log":
        (store / "store.sqlite-wal").unlink()
    elif taken == "the directory":
        shutil.rmtree(store)
    elif taken == "moved":
        store.rename(lab.home("n1") / "moved")
    else:
        copy = store / "copy"
        shutil.copy(file, copy)
        copy.replace(file)
    count = 20
    if busy:
        count = 40
        lab.write({"count": 20, "first": 20, "time": 2_000})
    said = "the file was removed or replaced while it was in use"
    trace = lab.home("n1") / "trace.log"
    lab.seen.wait_for("it is told", lambda: said in trace.read_text(encoding="utf-8"))
    lab.seen.wait_for("all is stored again", lambda: file.exists() and len(disk_digests(lab, "n1")) == count)
    second = lab.launch("n1")
    assert second.wait(20) not in (0, None), "a second node finds the store in use"
    lab.kill("n1")
    assert len(disk_digests(lab, "n1")) == count


# No free disk at a start. Only a full file system will do: beyond a limit of the file size, writing fails as
# with a broken disk, and a limit would have to be set before the node opens its store.


@pytest.fixture
def small_disk(lab: Lab) -> Iterator[SmallDisk]:
    made = SmallDisk(lab)
    yield made
    lab.stop_all()
    made.close()


def fill_store(lab: Lab, disk: SmallDisk, pid: int) -> int:
    """Store 500 samples, fill the disk and write 2,000 more; returns how many are stored."""
    writer = lab.program("writer", steps=[{"count": 500, "time": 1_000}])
    writer.answer("done")
    lab.seen.wait_for("it is stored", lambda: lab.seen.stored("n1") == 500)
    disk.fill(pid)
    writer.tell(steps=[{"first": 500, "count": 2_000, "time": 2_000}])
    writer.answer("done")
    lab.seen.wait_for("it holds all", lambda: lab.seen.samples("n1") == 2_500)
    return lab.seen.stored("n1")


def test_a_node_that_finds_its_disk_full_waits_for_room_and_goes_on(lab: Lab, small_disk: SmallDisk) -> None:
    start_alone(lab)
    stored = fill_store(lab, small_disk, lab.pid("n1"))
    lab.kill("n1")
    small_disk.fill(0)

    lab.start("n1")
    warning = "has no room to open the store"
    lab.seen.wait_for("it says that it waits", lambda: warning in lab.information("n1"))
    assert lab.seen.node("n1") is None, "it is not in the domain yet"
    assert lab.stop("n1") == [0], "it ends in order while it waits"
    assert lab.trace("n1", "lifecycle.stopped")
    (waiting,) = lab.trace("n1", "store.waiting")
    assert waiting["directory"] == str(lab.home("n1") / "store")

    lab.start("n1")
    lab.seen.wait_for("it waits again", lambda: lab.information("n1").count(warning) == 2)
    small_disk.free(0)
    lab.seen.wait_for("n1 is complete again", lambda: lab.seen.are_complete("n1"))
    assert lab.seen.samples("n1") >= stored
    assert "Traceback" not in lab.output("n1")


def test_status_tells_of_a_full_disk_and_a_supervisor_bears_with_a_start_on_it(
    lab: Lab, small_disk: SmallDisk
) -> None:
    path = lab.configure("n1", Settings(failure_action="restart"))
    lease = '<Lease><ExpiryTime update_factor="0.2">2.0</ExpiryTime></Lease>'  # far less than it waits
    path.write_text(path.read_text("utf-8").replace("</Role>", f"</Role>{lease}"), "utf-8")
    assert lab.ospltool("n1", "start")[0] == 0
    try:
        lab.seen.wait_for("n1 is complete", lambda: lab.seen.are_complete("n1"))
        stored = fill_store(lab, small_disk, 0)
        lab.seen.wait_for("status says so", lambda: lab.status("n1")["in_memory_only"] == 2_500 - stored)
        shown = lab.status("n1")
        assert shown["condition"] == "operational"
        assert "space" in shown["store_problem"]
        code, text = lab.ospltool("n1", "status")
        assert code == 0
        assert "is operational, but its store refuses: " in text
        assert f"; {2_500 - stored} samples are in memory only" in text

        os.kill(shown["node_pid"], signal.SIGKILL)
        small_disk.fill(0)
        lab.seen.wait_for("it is waited for", lambda: "waits for room" in lab.ospltool("n1", "status")[1])
        waiting = lab.status("n1")
        assert (waiting["condition"], waiting["restarts"]) == ("starting", 1)
        warning = "has no room to open the store"
        lab.seen.wait_for("it still waits", lambda: lab.information("n1").count(warning) == 2)
        assert lab.status("n1")["node_pid"] == waiting["node_pid"], "its lease was renewed"

        lab.seen.forget("n1")
        small_disk.free(0)
        lab.seen.wait_for("n1 is complete again", lambda: lab.seen.are_complete("n1"))
        assert lab.seen.samples("n1") >= stored
        lab.seen.wait_for("status is plain", lambda: lab.status("n1")["condition"] == "operational")
        assert (lab.status("n1")["store_problem"], lab.status("n1")["in_memory_only"]) == ("", 0)
        assert "store" not in lab.ospltool("n1", "status")[1]
    finally:
        lab.ospltool("n1", "stop")


# Damage.


def flip_a_bit(path: Path, text: bytes) -> None:
    """Change one bit in the middle of some text that is in a file."""
    content = bytearray(path.read_bytes())
    at = content.index(text) + len(text) // 2
    content[at] ^= 0x04
    path.write_bytes(content)


def clear_a_page(path: Path, text: bytes) -> None:
    """Overwrite the header of the page that has some text, so that SQLite cannot read it."""
    content = bytearray(path.read_bytes())
    start = content.index(text) // PAGE_BYTES * PAGE_BYTES
    content[start : start + 64] = bytes(64)
    path.write_bytes(content)


def lose(path: Path, _: bytes) -> None:
    path.unlink()


@pytest.mark.parametrize(
    ("spoil", "file", "text", "in_order"),
    [
        pytest.param(flip_a_bit, "store.sqlite", b"reading 150", True, id="a sample"),
        pytest.param(flip_a_bit, "store.sqlite", b"SQLite format", True, id="the file's header"),
        pytest.param(flip_a_bit, "store.sqlite-wal", b"reading 290", False, id="the write-ahead log"),
        pytest.param(clear_a_page, "store.sqlite", b"reading 150", True, id="a page of samples"),
        pytest.param(lose, "store.sqlite-wal", b"", False, id="no log"),
    ],
)
def test_a_damaged_store_is_noticed_not_injected_and_repaired_from_a_fellow(
    lab: Lab, spoil: Callable[[Path, bytes], None], file: str, text: bytes, in_order: bool
) -> None:
    names = lab.start_three()
    lab.write({"count": 300, "time": 1_000}, readers=3)
    lab.seen.wait_for("it is stored", lambda: all(lab.seen.stored(name) == 300 for name in names))
    (lab.stop if in_order else lab.kill)(*names)
    whole = disk_digests(lab, "n2")
    assert len(whole) == 300
    spoil(lab.home("n1") / "store" / file, text)

    began_ns = lab.start_again(*names)  # n1 has the highest masterPriority
    assert lab.trace("n1", "store.corrupt")
    assert "Stored data is corrupt" in lab.errors("n1")
    assert not lab.trace("n1", "injection.started", since_ns=began_ns), "a damaged set must not win"
    assert {lab.seen.samples(name) for name in names} == {300}
    lab.seen.wait_for("n1 has it on disk", lambda: lab.seen.stored("n1") == 300)
    lab.seen.wait_for("n1 is master again", lambda: lab.seen.master("n3") == "n1")
    lab.stop(*names)
    assert all(disk_digests(lab, name) == whole for name in names)
    assert "Traceback" not in lab.output("n1")
