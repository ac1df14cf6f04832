"""Another library of Cyclone DDS than that of the package: it is tried before it is used, or refused."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest
from cyclonedds.internal import DDS

from engine import native
from engine.dds import abi, selfcheck
from engine.dds.errors import UnsupportedCyclone

if TYPE_CHECKING:
    from pathlib import Path

LOOK: Final = "from engine.dds.selfcheck import check_layouts; check_layouts()"
LOOK_AT_BOTH: Final = "from engine.dds.selfcheck import check_layouts; check_layouts(of_package=True)"

needs_native = pytest.mark.skipif(bool(native.absence()), reason="there is no compiled library")


@pytest.fixture
def other(tmp_path: Path) -> str:
    """Another library: a copy of the same one counts as another, too."""
    return shutil.copy(DDS._dll_handle._name, str(tmp_path / "libddsc.so"))


def run(program: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


@needs_native
@pytest.mark.parametrize("is_copied", [False, True])
def test_a_library_that_behaves_as_expected_is_used(other: str, is_copied: bool) -> None:
    named = other if is_copied else DDS._dll_handle._name
    done = run(f"{LOOK}\nprint(open('/proc/self/maps').read())", **{abi.CHOICE: named})
    assert done.returncode == 0, done.stderr
    assert (other in done.stdout) == is_copied


def test_without_the_compiled_library_another_one_is_refused(other: str) -> None:
    refused = run(LOOK, **{abi.CHOICE: other, native.CHOICE: "no"})
    assert refused.returncode != 0
    assert f"{abi.CHOICE} names {other}, which needs the compiled library of ospltool" in refused.stderr


@needs_native
def test_an_application_of_the_package_is_refused_another_library(other: str) -> None:
    """Its writers are in the library of the package."""
    refused = run(LOOK_AT_BOTH, **{abi.CHOICE: other})
    assert refused.returncode != 0
    assert (
        f"{abi.CHOICE} names {other}, but topics of the package cyclonedds are in its own" in refused.stderr
    )
    assert run(LOOK_AT_BOTH).returncode == 0


@needs_native
def test_a_library_that_crashes_is_found_out_by_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashing = tmp_path / "python"
    crashing.write_text("#!/bin/sh\nkill -SEGV $$\n")
    crashing.chmod(0o700)
    monkeypatch.setattr(abi, "OTHER", "/opt/libddsc.so")
    monkeypatch.setattr(abi, "NAME", "/opt/libddsc.so")
    monkeypatch.setattr(sys, "executable", str(crashing))
    why = r"/opt/libddsc.so does not .*: a process that tries it is ended by signal 11"
    with pytest.raises(UnsupportedCyclone, match=why):
        selfcheck.check_layouts()
