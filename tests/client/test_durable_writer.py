"""Nothing that a DurableWriter has written is lost, whoever dies: real nodes and applications, killed."""

from __future__ import annotations

import functools
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.client.applications import ClientProgram, done
from tests.client.places import ClientLab
from tests.integration import application_types as types
from tests.integration.configurations import Settings, Space
from tests.integration.programs import ROOT

pytestmark = pytest.mark.dds

STOCK = ("stock", "Reading")


def keeper(lab: ClientLab, readers: int, **options: Any) -> ClientProgram:
    """An application with a durable writer that so many readers match."""
    program = ClientProgram("keeper", {"domain": lab.domain, **options}, lab.environ)
    lab._programs.append(program)
    program.recovered = program.expect(lambda line: "ready" in line)["recovered"]
    done(program, matched=readers)
    return program


def written(program: ClientProgram, **command: Any) -> list[bytes]:
    """Let it write, and wait until it has; the digests of what was written."""
    program.tell(**command)
    found = []
    while "done" not in (line := program.line(30)):
        found.append(bytes.fromhex(line["wrote"]))
    assert line == {"done": {}}
    return found


def check_disks(lab: ClientLab, digests: list[bytes], *names: str) -> None:
    """Exactly these samples are on the disks, once each; the nodes have ended."""
    for name in names:
        assert sorted(lab.on_disk(name).get(STOCK, [])) == sorted(digests), name


def test_what_a_node_lost_when_it_was_killed_it_gets_again(lab: ClientLab) -> None:
    lab.start_one()
    program = keeper(lab, 1)
    wrote = written(program, write=[0, 5])
    assert done(program, flush=20) == {}
    lab.process("n1").send_signal(signal.SIGSTOP)  # what comes now stays in its sockets
    wrote += written(program, write=[5, 200])
    lab.process("n1").send_signal(signal.SIGCONT)
    lab.kill("n1")
    wrote += written(program, write=[205, 5], dispose=[0, 1])
    lab.start("n1")
    assert done(program, flush=40) == {}
    counters = done(program, counters=1)["counters"]
    assert counters["handed_over"] >= 6
    lab.stop("n1")
    check_disks(lab, wrote, "n1")


def test_samples_written_while_all_nodes_are_dead_reach_all_of_them(lab: ClientLab) -> None:
    names = lab.start_three()
    program = keeper(lab, 3, nodes=3)
    wrote = written(program, write=[0, 20])
    lab.kill(*names)
    wrote += written(program, write=[20, 20], dispose=[7, 1])
    said = done(program, flush=0.5)
    assert said["error"] == "NotStored"
    lab.start(*names)
    assert done(program, flush=60) == {}
    lab.stop(*names)
    check_disks(lab, wrote, *names)


def test_an_application_that_was_killed_hands_over_from_its_journal_what_no_node_has(
    lab: ClientLab, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    lab.start_one()
    first = keeper(lab, 1, journal=str(journal))
    wrote = written(first, write=[0, 10])
    assert done(first, flush=20) == {}
    lab.kill("n1")
    wrote += written(first, write=[10, 10])
    wrote += written(first, dispose=[3, 1], unregister=[4, 1])
    first.tell(write=[20, 100_000])  # it is killed in the middle of this
    while len(wrote) < 200:
        wrote.append(bytes.fromhex(first.answer("wrote")))
    first.kill()
    while True:
        try:
            wrote.append(bytes.fromhex(first.line(5)["wrote"]))
        except AssertionError:
            break
    lab.start("n1")
    second = keeper(lab, 1, journal=str(journal))
    assert second.recovered >= len(wrote) - 10
    assert done(second, flush=60) == {}
    counters = done(second, counters=1)["counters"]
    assert counters["handed_over"] == counters["stored"] == second.recovered
    assert second.end() == 0
    third = keeper(lab, 1, journal=str(journal))
    assert third.recovered == 0
    lab.stop("n1")
    on_disk = lab.on_disk("n1")[STOCK]
    assert len(on_disk) == len(set(on_disk))
    assert set(wrote) <= set(on_disk)
    assert len(on_disk) - len(wrote) <= 1, "at most the write that was cut short"


def test_a_quorum_of_the_expected_nodes_is_enough_and_fewer_are_not(lab: ClientLab) -> None:
    names = lab.start_three()
    program = keeper(lab, 3, expected=list(names))
    lab.kill("n3")
    wrote = written(program, write=[0, 20])
    assert done(program, flush=20) == {}
    lab.kill("n2")
    wrote += written(program, write=[20, 20])
    said = done(program, flush=3)
    assert said["error"] == "NotStored"
    assert ["", "TOO_FEW_NODES", 20] in said["missing"]
    lab.start("n2")
    assert done(program, flush=40) == {}
    lab.stop("n1", "n2")
    check_disks(lab, wrote, "n1", "n2")


def test_samples_of_a_new_topic_written_when_one_node_reads_it_reach_all(lab: ClientLab) -> None:
    names = lab.start_three()
    program = ClientProgram("keeper", {"domain": lab.domain, "nodes": 3}, lab.environ)
    lab._programs.append(program)
    program.answer("ready")
    wrote = written(program, write=[0, 50])  # at once: perhaps nobody reads it yet
    assert done(program, flush=40) == {}
    lab.stop(*names)
    check_disks(lab, wrote, *names)


def test_each_partition_of_the_writer_has_each_sample(lab: ClientLab) -> None:
    names = lab.start_two()
    partitions = ["stock", "stock2"]
    program = keeper(lab, 2, nodes=2, partitions=partitions)
    wrote = written(program, write=[0, 20])
    assert done(program, flush=20) == {}
    lab.kill("n1")
    wrote += written(program, write=[20, 20])
    lab.start("n1")
    assert done(program, flush=40) == {}
    lab.stop(*names)
    for name in names:
        on_disk = lab.on_disk(name)
        for partition in partitions:
            assert sorted(on_disk[partition, "Reading"]) == sorted(wrote)


def test_a_sample_of_any_type_is_for_the_node_the_one_that_was_written(lab: ClientLab) -> None:
    """Else what is handed over would be another sample beside what was captured."""
    lab.start_one()
    programs = {name: keeper(lab, 1, type=name) for name in types.TYPES}
    wrote = {name: written(one, write=[0, 3], dispose=[1, 1]) for name, one in programs.items()}
    for name, program in programs.items():
        assert done(program, flush=20) == {}, name
        counters = done(program, counters=1)["counters"]
        assert (name, counters["handed_over"]) == (name, 0)
    lab.kill("n1")
    for name, program in programs.items():
        wrote[name] += written(program, write=[2, 3], dispose=[3, 1], unregister=[2, 1])
    lab.start("n1")
    for name, program in programs.items():
        assert done(program, flush=60) == {}, name
    lab.stop("n1")
    on_disk = lab.on_disk("n1")
    for name, digests in wrote.items():
        assert sorted(on_disk["stock", name]) == sorted(set(digests)), name


def test_what_is_kept_in_memory_is_not_called_stored_on_disk(lab: ClientLab) -> None:
    lab.configure("n1", Settings())
    lab.configure("n2", Settings(spaces=(Space(durability="Transient", priority=50),)))
    lab.start("n1", "n2")
    lab.seen.wait_for("both are complete", lambda: lab.seen.are_complete("n1", "n2"))
    transient = keeper(lab, 2, durability=2, topic="Passing")
    written(transient, write=[0, 5])
    found = done(transient, ask=0, timeout=20, nodes=2)
    assert (found["stored"], found["disk"]) == (["n1", "n2"], [False, False])
    persistent = keeper(lab, 2)
    written(persistent, write=[0, 5])
    found = done(persistent, ask=0, timeout=20)
    assert (found["stored"], found["disk"]) == (["n1", "n2"], [True, False])
    said = done(persistent, ask=0, timeout=2, nodes=2)
    assert ["n2", "MEMORY_ONLY", 0] in said["missing"]
    lab.stop("n1")
    written(persistent, write=[5, 2])
    said = done(persistent, flush=1)
    assert said["missing"] == [["n2", "MEMORY_ONLY", 0], ["", "TOO_FEW_NODES", 2]]
    assert "2 samples are not stored by 1 node: n2: kept in memory only" in said["text"]


def test_a_node_that_is_no_aligner_does_not_count(lab: ClientLab) -> None:
    lab.configure("n1", Settings())
    lab.configure("n2", Settings(spaces=(Space(aligner=False),)))
    lab.start("n1", "n2")
    lab.seen.wait_for("both are complete", lambda: lab.seen.are_complete("n1", "n2"))
    program = keeper(lab, 2, nodes=2)
    written(program, write=[0, 5])
    said = done(program, flush=2)
    assert said["missing"] == [["n2", "NOT_SHARED", 0], ["", "TOO_FEW_NODES", 5]]
    assert "it is no aligner of name-space 'stock'" in said["text"]
    found = done(program, ask=0, timeout=20)
    assert (found["stored"], found["disk"]) == (["n1"], [True])
    said = done(program, ask=0, timeout=1, nodes=2)
    assert [fact[:2] for fact in said["missing"]] == [["n2", "NOT_SHARED"], ["", "TOO_FEW_NODES"]]
    assert "ValueError" in str(done(program, ask=0, timeout=1, nodes=0))
    assert "ValueError" in str(done(program, ask=0, timeout=0))


def test_what_is_older_than_a_deletion_is_not_called_stored(lab: ClientLab) -> None:
    names = lab.start_two()
    program, plain = keeper(lab, 2, nodes=2), keeper(lab, 2, plain=True)
    written(program, write=[0, 5])
    assert done(program, flush=20) == {}
    done(program, delete=["stock", "Reading"])
    lab.seen.wait_for("it is deleted", lambda: [lab.seen.samples(name) for name in names] == [0, 0])
    said = done(program, ask=0, timeout=1)
    assert said["missing"] == [["n1", "DELETED", 5], ["n2", "DELETED", 5]]
    written(program, write=[10, 3], age_s=60)
    wrote = written(program, write=[20, 2])
    assert done(program, flush=20)["missing"] == [["", "DELETED", 3]]
    assert done(program, flush=20) == {}
    counters = done(program, counters=1)["counters"]
    assert [counters[one] for one in ("written", "stored", "deleted", "pending")] == [10, 7, 3, 0]
    done(plain, write=[30, 3], age_s=60)
    said = done(plain, wait=2)
    assert said["missing"] == [["n1", "DELETED", 0], ["n2", "DELETED", 0]]
    lab.stop(*names)
    check_disks(lab, wrote, *names)


@pytest.mark.parametrize("starts_stale", [False, True])
def test_what_was_deleted_stays_deleted_if_all_nodes_are_killed_at_once(
    lab: ClientLab, *, starts_stale: bool
) -> None:
    names = lab.start_two()
    program = keeper(lab, 2, nodes=2)
    written(program, write=[0, 200])
    assert done(program, flush=20) == {}
    assert done(program, delete=["stock", "Reading"]) == {}
    lab.kill(*names)
    program.end()
    order = sorted(names, key=lambda name: len(lab.on_disk(name).get(STOCK, [])), reverse=starts_stale)
    assert min(len(lab.on_disk(name).get(STOCK, [])) for name in names) == 0, "it is on one disk"
    lab.start(order[0])
    lab.seen.wait_for("the first is complete", lambda: lab.seen.are_complete(order[0]))
    lab.start(order[1])
    lab.seen.wait_for("both are complete", lambda: lab.seen.are_complete(*names))
    lab.seen.wait_for("it is deleted", lambda: [lab.seen.samples(name) for name in names] == [0, 0])
    lab.stop(*names)
    check_disks(lab, [], *names)


@pytest.mark.parametrize(
    ("limits", "kept"), [((-1, 5, -1), range(5)), ((5, -1, -1), range(7, 12))], ids=["instances", "samples"]
)
def test_what_a_limit_of_the_group_keeps_out_is_refused(
    lab: ClientLab, limits: tuple[int, int, int], kept: range
) -> None:
    names = lab.start_two()
    program, plain = (keeper(lab, 2, limits=limits, **options) for options in ({"nodes": 2}, {"plain": True}))
    lab.process("n2").send_signal(signal.SIGSTOP)
    wrote = written(program, write=[0, 12])  # the oldest are displaced before both nodes have confirmed them
    lab.process("n2").send_signal(signal.SIGCONT)
    said = done(program, flush=20)
    assert said["missing"] == [["", "REFUSED", 7]]
    assert "DURABILITY_SERVICE" in said["text"]
    assert done(program, flush=20) == {}, "it is told once"
    counters = done(program, counters=1)["counters"]
    assert [counters[one] for one in ("written", "stored", "refused", "pending")] == [12, 5, 7, 0]
    said = done(program, ask=0, timeout=1, nodes=2)
    assert said["missing"] == [["n1", "REFUSED", 7], ["n2", "REFUSED", 7]]
    done(plain, write=[20, 12])
    said = done(plain, wait=2, nodes=2)
    assert {(node, reason) for node, reason, _ in said["missing"]} == {
        ("n1", "CANNOT_TELL"),
        ("n2", "CANNOT_TELL"),
    }
    if limits[1] > 0:  # the later writer has the newest samples, but not the first instances
        lab.stop(*names)
        check_disks(lab, [wrote[number] for number in kept], *names)


def test_what_newer_samples_of_its_instance_displace_is_stored_under_limits_too(lab: ClientLab) -> None:
    lab.start_one()
    program = keeper(lab, 1, limits=(-1, 5, 2))
    for value in range(20):
        written(program, write=[0, 5], value=value)
    assert done(program, flush=20) == {}
    assert done(program, ask=0, timeout=20)["stored"] == ["n1"]


def test_samples_that_newer_ones_pushed_out_are_done_when_the_newer_ones_are_stored(lab: ClientLab) -> None:
    lab.start_one()
    program = keeper(lab, 1, depth=1)
    for value in range(20):
        wrote = written(program, write=[0, 3], value=value)
    assert done(program, flush=20) == {}
    assert done(program, ask=0, timeout=20)["stored"] == ["n1"]
    lab.stop("n1")
    check_disks(lab, wrote, "n1")


def test_a_full_disk_of_the_only_node_is_said_and_what_waited_is_stored_later(lab: ClientLab) -> None:
    lab.start_one()
    program = keeper(lab, 1)
    wrote = written(program, write=[0, 5])
    assert done(program, flush=20) == {}
    size = (lab.home("n1") / "store" / "store.sqlite-wal").stat().st_size
    pid = lab.pid("n1")
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    wrote += written(program, write=[5, 200])
    said = done(program, flush=3)
    assert said["error"] == "NotStored"
    assert [fact[:2] for fact in said["missing"]] == [["n1", "NOT_ON_DISK"]]
    assert "the disk refuses" in said["text"]
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, unlimited)
    assert done(program, flush=40) == {}
    lab.kill("n1")
    check_disks(lab, wrote, "n1")


def test_a_node_that_is_killed_between_capture_and_store_is_given_it_again(lab: ClientLab) -> None:
    lab.start_one()
    program = keeper(lab, 1)
    wrote = written(program, write=[0, 5])
    assert done(program, flush=20) == {}
    size = (lab.home("n1") / "store" / "store.sqlite-wal").stat().st_size
    resource.prlimit(lab.pid("n1"), resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    wrote += written(program, write=[5, 200])
    lab.seen.wait_for("it is captured", lambda: lab.seen.samples("n1") == 205)
    assert done(program, flush=1)["error"] == "NotStored"
    lab.kill("n1")
    assert len(lab.on_disk("n1")[STOCK]) < 205
    lab.start("n1")
    assert done(program, flush=40) == {}
    lab.kill("n1")
    check_disks(lab, wrote, "n1")


def test_a_writer_at_its_bound_blocks_as_its_reliability_says_and_then_refuses(lab: ClientLab) -> None:
    program = ClientProgram(
        "keeper", {"domain": lab.domain, "max_samples": 5, "blocking_ns": 300_000_000}, lab.environ
    )
    lab._programs.append(program)
    program.answer("ready")
    wrote = written(program, write=[0, 5])
    began = time.monotonic()
    assert done(program, write=[5, 1])["error"] == "WriterFull"
    assert time.monotonic() - began >= 0.3
    counters = done(program, counters=1)["counters"]
    assert (counters["written"], counters["pending"], counters["blocked"]) == (5, 5, 1)
    assert done(program, flush=0.2)["missing"] == [["", "NO_ANSWER", 5]]
    lab.start_one()
    assert done(program, flush=40) == {}
    wrote += written(program, write=[5, 1])
    assert done(program, flush=40) == {}
    lab.stop("n1")
    check_disks(lab, wrote, "n1")


def test_an_application_that_does_not_acknowledge_does_not_stand_in_the_way(lab: ClientLab) -> None:
    """`DataWriter.wait_for_acks` of cyclonedds 11.0.1 raises AttributeError then."""
    lab.start_one()
    deaf = lab.program("reader", reliable=True)
    deaf.answer("ready")
    plain = keeper(lab, 2, plain=True)
    os.kill(deaf._process.pid, signal.SIGSTOP)
    try:
        done(plain, write=[0, 10])
        assert done(plain, wait=20)["stored"] == ["n1"]
        os.kill(lab.pid("n1"), signal.SIGSTOP)
        done(plain, write=[10, 10])
        assert done(plain, wait=1)["missing"] == [["", "NO_ANSWER", 0], ["", "TOO_FEW_NODES", 0]]
    finally:
        os.kill(lab.pid("n1"), signal.SIGCONT)
        os.kill(deaf._process.pid, signal.SIGCONT)
    assert done(plain, wait=20)["stored"] == ["n1"]


def test_a_node_that_got_the_samples_from_another_is_confirmed_too(lab: ClientLab) -> None:
    lab.configure("n2", Settings().with_priority(100))
    lab.start_one("n1", Settings().with_priority(200))
    plain = keeper(lab, 1, plain=True)
    done(plain, write=[0, 20])
    lab.start("n2")
    lab.seen.wait_for("both are complete", lambda: lab.seen.are_complete("n1", "n2"))
    assert done(plain, wait=20, nodes=2)["stored"] == ["n1", "n2"]
    lab.stop("n1")
    lab.start("n1")
    lab.seen.wait_for("n1 is back", lambda: lab.seen.are_complete("n1", "n2"))
    said = done(plain, wait=4)
    assert ["n2", "CANNOT_TELL", 0] in said["missing"], "nobody is left who has seen all of it"
    assert "NEVER_ARRIVED" not in {fact[1] for fact in said["missing"]}


def test_a_node_that_takes_nothing_holds_up_only_until_it_is_lost(lab: ClientLab) -> None:
    lab.start_two()
    program = keeper(lab, 2)
    pid = lab.pid("n2")
    wrote = written(program, write=[0, 5])
    os.kill(pid, signal.SIGSTOP)
    try:
        wrote += written(program, write=[5, 10_000])
        assert done(program, flush=60) == {}
    finally:
        os.kill(pid, signal.SIGCONT)
    lab.stop("n1")
    check_disks(lab, wrote, "n1")


def test_a_node_without_a_store_never_says_that_something_is_on_disk(lab: ClientLab) -> None:
    lab.start_one("n1", Settings(store=False))
    program = keeper(lab, 1)
    written(program, write=[0, 5])
    said = done(program, ask=0, timeout=2)
    assert ["n1", "MEMORY_ONLY", 0] in said["missing"]
    lab.seen.wait_for("it has them", lambda: lab.seen.samples("n1") == 5)
    assert lab.seen.stored("n1") == 0


def test_the_sample_publisher_leaves_in_its_journal_what_no_node_was_there_for(
    lab: ClientLab, tmp_path: Path
) -> None:
    journal = tmp_path / "ships.journal"
    command = [sys.executable, "samples/durable_publisher.py", "--domain", str(lab.domain)]
    command += ["--journal", str(journal), "--count", "50"]
    run = functools.partial(
        subprocess.run, cwd=ROOT, env=lab.environ, capture_output=True, text=True, timeout=90, check=False
    )
    alone = run([*command, "--timeout", "0.5"])
    assert alone.returncode == 1
    assert "50 samples are not stored by 1 node" in alone.stderr
    lab.start_one("n1", Settings(spaces=(Space(elements=("ships",)),)))
    again = run([*command, "--first", "50"])
    assert again.returncode == 0, again.stderr
    assert "50 samples were left in the journal" in again.stdout
    assert "100 samples are stored" in again.stdout
    lab.stop("n1")
    assert len(set(lab.on_disk("n1")["ships", "Observation"])) == 100


@pytest.mark.parametrize(
    "options", [{"nodes": 2}, {"expected": ["n1", "n2", "n3"]}], ids=["nodes", "expected"]
)
def test_a_node_with_a_new_disk_is_the_same_node(lab: ClientLab, options: dict[str, Any]) -> None:
    lab.start_one()
    program = keeper(lab, 1, **options)
    wrote = written(program, write=[0, 20])
    assert done(program, flush=2)["error"] == "NotStored"
    lab.kill("n1")
    shutil.rmtree(lab.home("n1") / "store")
    lab.start("n1")
    lab.seen.wait_for("it was given them", lambda: lab.seen.stored("n1") == 20)
    said = done(program, flush=3)
    assert said.get("error") == "NotStored", said
    assert ["", "TOO_FEW_NODES", 20] in said["missing"]
    lab.configure("n2", Settings().with_priority(100))
    lab.start("n2")
    assert done(program, flush=40) == {}
    lab.stop("n1", "n2")
    check_disks(lab, wrote, "n1", "n2")
