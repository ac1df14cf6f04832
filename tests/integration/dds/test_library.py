"""Another library of Cyclone DDS than that of the package: it is tried before it is used, or refused."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest
from cyclonedds.internal import DDS

from engine.dds import abi, selfcheck, trial
from engine.dds.errors import UnsupportedCyclone

ROOT: Final = Path(__file__).parents[3]
LOOK: Final = "from engine.dds.selfcheck import check_layouts; check_layouts()"
LOOK_AT_BOTH: Final = "from engine.dds.selfcheck import check_layouts; check_layouts(of_package=True)"


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


@pytest.mark.parametrize("is_copied", [False, True])
def test_a_library_that_behaves_as_expected_is_used(other: str, is_copied: bool) -> None:
    named = other if is_copied else DDS._dll_handle._name
    done = run(f"{LOOK}\nprint(open('/proc/self/maps').read())", **{abi.CHOICE: named})
    assert done.returncode == 0, done.stderr
    assert (other in done.stdout) == is_copied


def test_an_application_of_the_package_is_refused_another_library(other: str) -> None:
    """Its writers are in the library of the package."""
    refused = run(LOOK_AT_BOTH, **{abi.CHOICE: other})
    assert refused.returncode != 0
    assert (
        f"{abi.CHOICE} names {other}, but topics of the package cyclonedds are in its own" in refused.stderr
    )
    assert run(LOOK_AT_BOTH).returncode == 0


@pytest.mark.parametrize(
    ("does", "what"),
    [("kill -SEGV $$", "is ended by signal 11 .SIGSEGV."), ("exec sleep 100", "does not end within 0.5 s")],
    ids=["crashes", "hangs"],
)
def test_a_library_that_fails_is_found_out_by_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, what: str
) -> None:
    failing = tmp_path / "python"
    failing.write_text(f"#!/bin/sh\n{does}\n")
    failing.chmod(0o700)
    monkeypatch.setattr(abi, "IS_UNTRIED", True)
    monkeypatch.setattr(abi, "NAME", "/opt/libddsc.so")
    monkeypatch.setattr(sys, "executable", str(failing))
    monkeypatch.setattr(trial, "TRIES_S", 0.5)
    why = rf"/opt/libddsc.so .*: a process that tries it {what}"
    with pytest.raises(UnsupportedCyclone, match=why) as refused:
        selfcheck.check_layouts()
    assert refused.value.may_pass is does.startswith("exec")  # a busy machine may be quicker later


def test_settings_of_our_own_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial takes a process: the check of the library is in every start of a node and of a client."""
    monkeypatch.setattr(trial, "try_settings", lambda *_: pytest.fail("they are tried"))
    selfcheck.check_layouts()


@pytest.mark.parametrize(
    ("version", "is_used"),
    [("11.0.1", True), ("11.0.2", True), ("11.0.0", False), ("11.1.0", False), ("0.10.5", False)],
)
def test_a_release_of_the_range_is_tried_and_used_and_another_is_refused(
    tmp_path: Path, version: str, is_used: bool
) -> None:
    """The package is the same one; its directory of metadata says which release it is."""
    (tmp_path / f"cyclonedds-{version}.dist-info").mkdir()
    say = "from engine.dds import abi; print(abi.NAME, abi.IS_UNTRIED)"
    done = run(f"{LOOK_AT_BOTH}\n{say}", PYTHONPATH=str(tmp_path))
    if is_used:
        assert done.stdout == f"cyclonedds {version} {version != abi.TESTED}\n", done.stderr
    else:
        needs = f"cyclonedds {version} is installed, but the memory layouts of {abi.TESTED} are needed"
        assert needs in done.stderr
        assert done.returncode != 0


def test_the_project_asks_for_the_releases_that_are_used() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert abi.RANGE in project["optional-dependencies"]["dds"]
