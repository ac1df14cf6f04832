"""Nodes on another library of Cyclone DDS than that of the package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from cyclonedds.internal import DDS

from engine import native
from engine.dds.abi import CHOICE
from engine.supervisor.policy import EXIT_CONFIGURATION
from tests.integration.configurations import Settings
from tests.integration.programs import ROOT
from tests.integration.test_security import SECURED

if TYPE_CHECKING:
    from tests.integration.lab import Lab

pytestmark = [
    pytest.mark.dds,
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
    assert lab.trace("n1", "lifecycle.capture") == [
        {"event": "lifecycle.capture", "path": str(native.LIBRARY)}
    ]
    assert lab.stop("n1") == [0]
    assert lab.on_disk("n1") == lab.on_disk("n2")


def test_a_node_on_another_library_refuses_security_too(lab: Lab, other: str) -> None:
    """The library might have it; but deliveries have settings of their own."""
    lab.configure("n1", Settings())
    lab.start("n1", environ={CHOICE: other, "CYCLONEDDS_URI": SECURED})
    assert lab.process("n1").wait(60) == EXIT_CONFIGURATION
    assert "what hands over history has no identity of its own" in lab.output("n1")
    assert "Traceback" not in lab.output("n1")


@pytest.mark.parametrize(
    ("named", "why"),
    [
        ("/nowhere/libddsc.so", "cannot be opened"),
        ("libm.so.6", "has no dds_create_domain"),
        ("/tmp", "is not a file"),
        ("./libddsc.so", "; write the whole path, which begins with /"),
        ("{cut}", "is ended by signal 7 (SIGBUS)"),
    ],
    ids=["missing", "of something else", "directory", "relative", "cut off"],
)
def test_what_cannot_be_used_ends_a_node_once_as_a_configuration(
    lab: Lab, other: str, named: str, why: str
) -> None:
    """With the exit code after which the supervisor does not start it again, and with one sentence."""
    cut = lab.directory / "cut.so"
    cut.write_bytes(Path(other).read_bytes()[:3_000_000])
    path = named.format(cut=cut)
    lab.configure("n1", Settings())
    lab.start("n1", environ={CHOICE: path})
    assert lab.process("n1").wait(60) == EXIT_CONFIGURATION
    (said,) = (line for line in lab.output("n1").splitlines() if line.startswith("ospltool: "))
    assert path in said
    assert why in said
    assert "Traceback" not in lab.output("n1")


@pytest.mark.parametrize(
    ("named", "why"),
    [
        ("/nowhere/libddsc.so", "/nowhere/libddsc.so, which cannot be opened"),
        ("/nowhere/\udcff.so", r"'/nowhere/\udcff.so', which is not text"),
    ],
    ids=["missing", "bytes that are no text"],
)
def test_a_command_says_it_in_a_sentence(named: str, why: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ospltool.cli.app", "doctor", "--domain", "97"],
        cwd=ROOT,
        env={**os.environ, CHOICE: named},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"ospltool: {CHOICE} names {why}")
    assert "Traceback" not in done.stderr
