from __future__ import annotations

import importlib.util
import subprocess
import sys
import tomllib
import zipfile
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import pathlib

TOP_LEVEL = {"engine", "ospltool", "tui"}


@pytest.fixture(scope="module")
def names(root: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The files in the wheel."""
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling, which builds the wheel, is not installed")
    target = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(target)],
        cwd=root,
        capture_output=True,
        check=True,
    )
    (wheel,) = target.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_adds_only_our_packages(names: set[str]) -> None:
    found = {name.partition("/")[0] for name in names}
    assert {name for name in found if not name.endswith(".dist-info")} == TOP_LEVEL


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
