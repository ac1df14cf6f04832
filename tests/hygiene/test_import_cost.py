from __future__ import annotations

import os
import resource
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import pathlib

HEAVY = {"textual", "duckdb", "pyspark", "cyclonedds", "lxml", "rich", "numpy", "pandas", "pyarrow"}
"""Not pydantic: Typer imports it itself as soon as a command has a parameter."""
HELP_PER_TYPER = 1.9
"""The whole of `ospltool --help` to a bare import of Typer: 1.5 is usual, 2.1 with help drawn by Rich."""
ATTEMPTS = 8


def imported_by(code: str, root: pathlib.Path) -> set[str]:
    """The modules that a fresh interpreter has after running `code`."""
    ended = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint('\\0' + ' '.join(sys.modules))"],
        cwd=root,
        env={"PYTHONPATH": str(root), "PATH": os.environ.get("PATH", "")},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(ended.stdout.rpartition("\0")[2].split())


def roots(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


@pytest.mark.parametrize(
    "arguments", [["--help"], ["start", "--help"], ["status"], ["list"], ["env"], ["info"], ["--version"]]
)
def test_light_commands_import_nothing_heavy(
    arguments: list[str], root: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    code = (
        f"import os; os.environ['OSPLTOOL_RUNDIR'] = {str(tmp_path / 'run')!r}\n"
        f"from ospltool.cli.app import main; main({arguments!r})"
    )
    assert roots(imported_by(code, root)) & HEAVY == set()


def test_the_supervisor_knows_no_dds_and_no_configuration(root: pathlib.Path) -> None:
    modules = imported_by("import engine.supervisor.__main__, engine.supervisor.control", root)
    assert {"cyclonedds", "lxml"} & roots(modules) == set()
    assert {
        name for name in modules if name.startswith(("engine.dds", "engine.node", "engine.config"))
    } == set()


def test_the_console_and_the_tools_import_without_dds(root: pathlib.Path) -> None:
    modules = imported_by("import ospltool.cli.app as app\nfor v in app.VERBS: app.build([v])", root)
    assert roots(modules) & HEAVY == set()


def processor_time_s(code: str, root: pathlib.Path) -> float:
    """Of a fresh interpreter that runs `code`: what else the machine does does not count."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-c", code],
        cwd=root,
        env={"PYTHONPATH": str(root)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_help_answers_at_once(root: pathlib.Path) -> None:
    """Little more than Typer itself costs on this machine: the best of several attempts, side by side."""
    own_s = typer_s = float("inf")
    for _ in range(ATTEMPTS):
        typer_s = min(typer_s, processor_time_s("import typer", root))
        own_s = min(own_s, processor_time_s("from ospltool.cli.app import main; main(['--help'])", root))
    assert own_s < HELP_PER_TYPER * typer_s
