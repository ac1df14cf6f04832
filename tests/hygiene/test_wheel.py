from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import pathlib

TOP_LEVEL = {"engine", "ospltool", "tui"}


LIBRARY = "engine/native/libnative.so"


def build(kind: str, root: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
    """The wheel or the source distribution."""
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling, which builds it, is not installed")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(target)],
        cwd=root,
        capture_output=True,
        check=True,
    )
    (built,) = target.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(root: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The wheel."""
    return build("wheel", root, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def names(wheel: pathlib.Path) -> set[str]:
    """The files in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_has_the_compiled_library_and_is_for_this_machine_only(
    wheel: pathlib.Path, names: set[str]
) -> None:
    """For every Python of it: the library knows nothing of Python."""
    has_compiler = any(shutil.which(name) for name in ("cc", "gcc", "clang"))
    assert (LIBRARY in names) == has_compiler
    assert wheel.stem.endswith(f"-py3-none-linux_{platform.machine()}" if has_compiler else "-py3-none-any")


def test_the_source_distribution_has_what_the_library_is_compiled_from(
    root: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    with tarfile.open(build("sdist", root, tmp_path)) as archive:
        found = {name.partition("/")[2] for name in archive.getnames()}
    assert {"hatch_build.py", "engine/native/ring.c", "pyproject.toml"} <= found
    assert LIBRARY not in found


def test_the_wheel_adds_only_our_packages(names: set[str]) -> None:
    found = {name.partition("/")[0] for name in names}
    assert {name for name in found if not name.endswith((".dist-info", ".data"))} == TOP_LEVEL
    assert any(name.endswith(".data/data/share/man/man1/ospltool-start.1") for name in names)


def test_data_files_travel_with_their_modules(
    names: set[str], tracked: list[pathlib.Path], root: pathlib.Path
) -> None:
    wanted = {
        path.relative_to(root).as_posix() for path in tracked if path.relative_to(root).parts[0] in TOP_LEVEL
    }
    assert wanted - names == set()


def test_every_package_says_that_it_is_typed(names: set[str]) -> None:
    assert {f"{package}/py.typed" for package in TOP_LEVEL} <= names


def test_the_command_is_installed(root: pathlib.Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    module, function = project["scripts"]["ospltool"].split(":")
    assert callable(getattr(importlib.import_module(module), function))
