"""Another library of Cyclone DDS is refused, with the reason; and the reason is still true."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest
from cyclonedds.internal import DDS

if TYPE_CHECKING:
    from pathlib import Path

LOOK: Final = "from engine.dds.selfcheck import check_layouts; check_layouts()"
MIX: Final = """
import ctypes, sys
from cyclonedds import _clayer
from engine.dds.own_types import Message
other = ctypes.CDLL(sys.argv[1])
participant = other.dds_create_participant(0, None, None)
assert participant > 0, participant
Message.__idl__.populate()
Message.__idl__.fill_type_data()
print(_clayer.ddspy_topic_create(participant, "T", Message, None, None))
"""
LOOPBACK: Final = (
    '<CycloneDDS><Domain Id="any"><General><Interfaces><NetworkInterface name="lo"/></Interfaces></General>'
    "</Domain></CycloneDDS>"
)


@pytest.fixture
def other(tmp_path: Path) -> str:
    """Another library: a copy of the same one counts as another, too."""
    return shutil.copy(DDS._dll_handle._name, str(tmp_path / "libddsc.so"))


def run(program: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "CYCLONEDDS_URI": LOOPBACK, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def test_another_library_is_refused_and_the_own_one_is_not(other: str) -> None:
    refused = run(LOOK, OSPLTOOL_DDSC=other)
    assert refused.returncode != 0
    assert f"OSPLTOOL_DDSC names {other}" in refused.stderr
    assert run(LOOK, OSPLTOOL_DDSC=DDS._dll_handle._name).returncode == 0


def test_the_package_makes_no_topic_on_a_participant_of_another_library(other: str) -> None:
    """Once this fails, another library may be possible."""
    mixed = run(MIX, other)
    assert mixed.returncode == 0, mixed.stderr
    assert int(mixed.stdout) < 0
