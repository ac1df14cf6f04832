"""What `make compilers` runs: the project built without a C compiler, and the ring on other processors."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.dds import native
from engine.dds.native import load
from tests.unit.native.building import BUILD_S, ROOT, library_of, pip_wheel

hatch_build: Any = pytest.importorskip("hatch_build", reason="hatchling, which compiles, is not installed")

RECORDS = "20000"
DRIVER = Path(__file__).with_name("driver.c")
DRIVER_FLAGS = (
    *("-O2", "-std=c11", "-Wall", "-Wextra", "-Werror", "-pthread"),
    *('-DRING_SOURCE="driver"', "-I", str(native.SOURCE.parent)),
)
TARGETS = {"aarch64": "aarch64-linux-musl", "x86_64": "x86_64-linux-musl"}

long_way = pytest.mark.skipif("OSPLTOOL_COMPILERS" not in os.environ, reason="`make compilers` runs it")


def run(*command: str, **environ: str) -> str:
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=BUILD_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with hatchling and what it needs: an index that has no compiler."""
    directory = tmp_path_factory.mktemp("packages")
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check")
    command = [*pip, "--dest", str(directory), "hatchling>=1.27,<2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S, check=False)
    if done.returncode:
        pytest.skip(f"the package index cannot be reached: {done.stderr.strip()[-200:]}")
    return directory


@pytest.fixture(scope="module")
def zig(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the package ziglang; `packages` shows that the index is there."""
    directory = tmp_path_factory.mktemp("zig")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*pip, "--target", str(directory), hatch_build.ZIGLANG)
    return directory


@long_way
@pytest.mark.timeout(BUILD_S)
def test_without_a_compiler_the_index_brings_one(packages: Path, tmp_path: Path) -> None:
    wheel, said = pip_wheel(tmp_path / "out", PATH="/nowhere", OSPLTOOL_NATIVE="")
    assert "-m ziglang cc" in said, said
    assert not wheel.stem.endswith("-any")
    library = library_of(wheel, tmp_path)
    assert library is not None
    assert load(library, native.SOURCE).ring_bytes() > 0


@long_way
@pytest.mark.timeout(BUILD_S)
def test_where_the_index_has_no_compiler_either_the_project_is_installed_all_the_same(
    packages: Path, tmp_path: Path
) -> None:
    index = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(packages)}
    wheel, _ = pip_wheel(tmp_path / "out", PATH="/nowhere", OSPLTOOL_NATIVE="", **index)
    assert wheel.stem.endswith("-py3-none-any")
    assert library_of(wheel, tmp_path) is None


def test_the_ring_gives_every_record_once_and_in_order(tmp_path: Path) -> None:
    if not hatch_build.system_works(ROOT):
        pytest.skip("there is no C compiler")
    (compiler, *_) = hatch_build.system_compilers()
    run(*compiler, *DRIVER_FLAGS, "-o", str(tmp_path / "driver"), str(DRIVER))
    assert " taken, " in run(str(tmp_path / "driver"), RECORDS)


@long_way
@pytest.mark.timeout(BUILD_S)
@pytest.mark.parametrize("machine", TARGETS)
def test_the_ring_does_so_on_an_emulated_processor(machine: str, zig: Path, tmp_path: Path) -> None:
    emulators = [shutil.which(f"qemu-{machine}{suffix}") for suffix in ("-static", "")]
    emulator = next((found for found in emulators if found), None)
    if emulator is None:
        pytest.skip(f"there is no qemu-{machine}: install qemu-user-static")
    compiler = (sys.executable, "-m", "ziglang", "cc", "-target", TARGETS[machine], "-static")
    driver = str(tmp_path / "driver")
    caches = {name: str(zig / "cache") for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")}
    run(*compiler, *DRIVER_FLAGS, "-o", driver, str(DRIVER), PYTHONPATH=str(zig), **caches)
    assert " taken, " in run(emulator, driver, RECORDS)
