"""More faults on real processes: of sets, of the copies that are kept of them, and of slow and broken disks.

`make faults` runs them, with those of `test_health_faults`.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from tests.integration.clinic import BUSY_S, TOLD_S, Clinic, check_fault, report, watched
from tests.integration.configurations import Settings, Space
from tests.integration.hanging import hooked
from tests.integration.lab import Lab

pytestmark = [
    pytest.mark.dds,
    pytest.mark.skipif("OSPLTOOL_FAULTS" not in os.environ, reason="`make faults` runs it"),
]

NAMES = ("n1", "n2", "n3")
LAZY = Settings(spaces=(Space(alignee="Lazy"),)).with_priority(50)
MANY = 20_000

DISK = """
import os, pathlib, threading
from engine.runtime import store_queue
from engine.runtime.store_queue import StoreQueue
from engine.store.interface import StoreError
carry_out, places = StoreQueue._carry_out, pathlib.Path(os.environ["DISK_DIRECTORY"])
def on_a_bad_disk(self, *arguments):
    if (places / "fails").exists():
        raise StoreError("disk I/O error")
    if (places / "slow").exists():
        threading.Event().wait(0.4)
    return carry_out(self, *arguments)
StoreQueue._carry_out = on_a_bad_disk
store_queue.BATCH_CHANGES = 500
"""


def on_a_bad_disk(directory: Path) -> dict[str, str]:
    """The environment of a node whose disk is slow, or fails, while there is a file of that name."""
    return hooked(directory, DISK, "DISK_DIRECTORY")


def start_with_a_bad_disk(lab: Lab, directory: Path) -> None:
    """n1, n2 and n3, of which n3 has it."""
    lab.configure_three()
    lab.start("n1", "n2")
    lab.start("n3", environ=on_a_bad_disk(directory))
    lab.seen.wait_for("all are complete", lambda: lab.seen.are_complete(*NAMES))


def test_a_disk_that_fails(lab: Lab, tmp_path: Path) -> None:
    start_with_a_bad_disk(lab, tmp_path)
    with watched(Clinic(lab, NAMES, copies=3)) as clinic:

        def fail() -> None:
            (tmp_path / "fails").touch()
            lab.write({"count": 10, "time": 1_000})

        check_fault(
            clinic, "a disk fails", "DUL-STORE-FAILED", "n3", fail, lambda: (tmp_path / "fails").unlink()
        )
        lab.seen.wait_for("it has all of it", lambda: lab.seen.stored("n3") == 10)


def test_a_disk_that_is_slow(lab: Lab, tmp_path: Path) -> None:
    start_with_a_bad_disk(lab, tmp_path)
    with watched(Clinic(lab, NAMES, copies=3)) as clinic:

        def slow_down() -> None:
            (tmp_path / "slow").touch()
            lab.write({"count": MANY, "time": 1_000})

        check_fault(
            clinic,
            "a disk is slow",
            "DUL-STORE-BEHIND",
            "n3",
            slow_down,
            lambda: (tmp_path / "slow").unlink(),
        )


def test_a_node_without_a_store(lab: Lab) -> None:
    names = lab.configure_three()
    lab.configure("n3", dataclasses.replace(Settings().with_priority(50), store=False))
    lab.start(*names)
    lab.seen.wait_for("all are complete", lambda: lab.seen.are_complete(*names))
    lab.write({"count": 10, "time": 1_000})
    with watched(Clinic(lab, names, copies=3)) as clinic:
        told_s = clinic.check("DUL-DISK-COPIES-LOW", "stock")
        assert "n3" in clinic.open[0].document["why"]
        lab.stop("n3")
        lab.configure("n3", Settings().with_priority(50))
        lab.start("n3")
        report("a copy on disk less than expected", told_s, clinic.check_well())


def test_what_only_a_non_aligner_holds(lab: Lab) -> None:
    lab.configure("n1", Settings().with_priority(200))
    lab.configure("n2", Settings(spaces=(Space(aligner=False),)))
    lab.start("n2")
    lab.seen.wait_for("n2 is there", lambda: lab.seen.node("n2") is not None)
    lab.write({"count": 5, "time": 1_000}, readers=1)
    lab.seen.wait_for("n2 alone has it", lambda: lab.seen.samples("n2") == 5)
    lab.start("n1")
    with watched(Clinic(lab, NAMES[:2], bare=True)) as clinic:
        told_s = clinic.check("DUL-SET-DIFFERS", "stock")
        assert "n2 is not an aligner" in clinic.open[0].document["why"]
        lab.stop("n2")
        lab.configure("n2", Settings().with_priority(100))
        lab.start("n2")
        report("only a non-aligner holds it", told_s, clinic.check_well())
        lab.seen.wait_for("it is given to all", lambda: lab.seen.stored("n1") == 5)


def test_parts_of_a_set_that_nobody_has_whole(lab: Lab) -> None:
    lab.configure("n1", Settings().with_priority(200))
    lab.configure("n2", LAZY)
    lab.start("n1", "n2")
    lab.seen.wait_for("n1 is complete", lambda: lab.seen.are_complete("n1"))
    lab.write({"count": 5, "time": 1_000})
    lab.reader().wait(5)
    lab.seen.wait_for("n2 keeps what is wanted", lambda: lab.seen.stored("n2") == 5)
    with watched(Clinic(lab, NAMES[:2], bare=True)) as clinic:
        clinic.check_well()
        check_fault(
            clinic, "only a Lazy node is left", "DUL-ONLY-PARTS", "stock",
            lambda: lab.stop("n1"), lambda: lab.start("n1"),
        )  # fmt: skip

        def begin_with_parts() -> None:
            lab.stop("n1", "n2")
            lab.configure("n2", Settings().with_priority(100))
            lab.start("n2")

        check_fault(
            clinic, "a set comes from parts", "DUL-SET-FROM-PARTS", "stock",
            begin_with_parts, lambda: lab.start("n1"),
        )  # fmt: skip


def test_samples_that_do_not_fit_into_limits(lab: Lab) -> None:
    """All nodes reject the same samples: that is one incident."""
    lab.start_three()
    with watched(Clinic(lab, NAMES, copies=3)) as clinic:
        lab.write({"count": 10, "time": 1_000}, limits=(5, -1, -1), depth=0, readers=3)
        told_s = clinic.wait(
            "it is told", lambda: [one.code for one in clinic.open] == ["DUL-REJECTED"], TOLD_S + BUSY_S
        )
        lab.stop(*NAMES)
        lab.start(*NAMES)
        report("limits reject samples", told_s, clinic.check_well())
