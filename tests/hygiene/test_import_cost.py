from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.machine import check_ratio, child_s, typer_s

if TYPE_CHECKING:
    import pathlib

HEAVY = {"textual", "duckdb", "pyspark", "cyclonedds", "lxml", "rich.console", "numpy", "pandas", "pyarrow"}
"""Not pydantic: Typer imports it itself as soon as a command has a parameter. Nor `rich.cells`, a table."""
HELP_PER_TYPER = 1.9
"""The whole of `ospltool --help` to a bare import of Typer: 1.5 is usual, 2.1 with help drawn by Rich."""


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
    """Packages, and the modules that draw."""
    return {name.partition(".")[0] for name in modules} | ({"rich.console"} & modules)


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
        name
        for name in modules
        if name.startswith(("engine.dds", "engine.capture", "engine.node", "engine.config"))
    } == set()


def test_the_console_and_the_tools_import_without_dds(root: pathlib.Path) -> None:
    modules = imported_by("import ospltool.cli.app as app\nfor v in app.VERBS: app.build([v])", root)
    assert roots(modules) & HEAVY == set()


def test_a_node_imports_nothing_that_it_may_never_need(root: pathlib.Path) -> None:
    code = (
        "from engine.dds.wheel import import_used_parts_only; import_used_parts_only()\n"
        "import engine.__main__, engine.node.process"
    )
    modules = imported_by(code, root)
    assert {"numpy", "asyncio", "ssl", "urllib.request", "importlib.metadata", "email"} & modules == set()
    assert {"cyclonedds.core", "cyclonedds.qos", "cyclonedds.builtin"} & modules == set()
    assert {"engine.config.fleet", "engine.config.persistence"} & modules == set()
    assert "engine.client_service.service" not in modules


def test_a_persistence_service_imports_only_what_it_uses_of_cyclonedds(
    root: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "store").write_text("a file")  # so that it ends at once
    group = '<persistence_group name="all" filter="*"/>'
    file = tmp_path / "service.xml"
    file.write_text(f'<dds><persistence_service name="s">{group}</persistence_service></dds>')
    arguments = ["persistence", "run", str(file), "--name", "a", "--store", str(tmp_path / "store")]
    modules = imported_by(f"from ospltool.cli.app import main; assert main({arguments!r}) == 2", root)
    assert "engine.persistence.service.service_process" in modules
    assert {"cyclonedds.builtin", "asyncio"} & modules == set()


def test_an_analysis_of_traces_imports_no_stores_until_there_are_some(root: pathlib.Path) -> None:
    modules = imported_by("import ospltool.forensics.evidence, ospltool.forensics.investigation", root)
    assert {"duckdb", "numpy", "pyarrow"} & roots(modules) == set()
    assert {"ospltool.stores.ours", "ospltool.stores.diff", "ospltool.stores.describe"} & modules == set()
    assert {"ospltool.diagnostics.model", "engine.runtime", "engine.store.read_only"} & modules == set()


def test_help_answers_at_once() -> None:
    """Little more than Typer itself costs on this machine."""
    check_ratio(
        lambda: child_s(["-c", "from ospltool.cli.app import main; main(['--help'])"]),
        typer_s,
        HELP_PER_TYPER,
    )
