"""Nodes on another library of Cyclone DDS than that of the package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest
from cyclonedds.internal import DDS

from engine import native
from engine.dds.abi import CHOICE
from tests.integration.configurations import Settings
from tests.integration.programs import ROOT
from tests.integration.test_security import SECURED

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.lab import Lab

pytestmark = [
    pytest.mark.dds,
    pytest.mark.skipif(bool(native.absence()), reason="there is no compiled library"),
]

COUNT: Final = 500


@pytest.fixture
def other(tmp_path: Path) -> str:
    """Another library: a copy of the same one counts as another, too."""
    return shutil.copy(DDS._dll_handle._name, str(tmp_path / "libddsc.so"))


def test_a_node_on_another_library_keeps_aligns_and_hands_over(lab: Lab, other: str) -> None:
    for name in ("n1", "n2"):
        lab.configure(name, Settings())
    lab.start("n1", environ={CHOICE: other})
    lab.start("n2")
    lab.seen.wait_for("both are complete", lambda: lab.seen.are_complete("n1", "n2"))
    lab.write({"count": COUNT, "time": 1_000}, readers=2)
    lab.seen.wait_for("all is on disk", lambda: lab.seen.stored("n1") == lab.seen.stored("n2") == COUNT)
    assert lab.stop("n2") == [0]
    lab.reader().wait(COUNT)
    said = lab.information("n1")
    assert "The durability service uses the library of Cyclone DDS" in said
    assert other in said
    assert lab.stop("n1") == [0]
    assert lab.on_disk("n1") == lab.on_disk("n2")


def test_a_node_on_another_library_refuses_security_too(lab: Lab, other: str) -> None:
    """The library might have it; but deliveries have settings of their own."""
    lab.configure("n1", Settings())
    lab.start("n1", environ={CHOICE: other, "CYCLONEDDS_URI": SECURED})
    assert lab.process("n1").wait(60) != 0
    assert "what hands over history has no identity of its own" in lab.output("n1")
    assert "Traceback" not in lab.output("n1")


@pytest.mark.parametrize(
    ("named", "why"),
    [("/nowhere/libddsc.so", "cannot be opened"), ("libm.so.6", "has no dds_create_domain")],
)
def test_a_library_that_cannot_be_used_is_refused(lab: Lab, named: str, why: str) -> None:
    lab.configure("n1", Settings())
    lab.start("n1", environ={CHOICE: named})
    assert lab.process("n1").wait(60) != 0
    assert named in lab.output("n1")
    assert why in lab.output("n1")
    assert "Traceback" not in lab.output("n1")


def test_a_command_says_it_in_a_sentence() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ospltool.cli.app", "doctor", "--domain", "97"],
        cwd=ROOT,
        env={**os.environ, CHOICE: "/nowhere/libddsc.so"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"ospltool: {CHOICE} names /nowhere/libddsc.so, which cannot be opened")
    assert "Traceback" not in done.stderr
