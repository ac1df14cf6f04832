"""What README and the pages for users print runs as printed, on a machine where nothing else runs."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.integration.programs import ROOT
from tests.integration.test_tutorial import DATA, fits, steps

pytestmark = [pytest.mark.dds, pytest.mark.netns, pytest.mark.timeout(600)]

ALONE: Final = ("unshare", "--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
"""A loopback interface, domains and processes of its own; all of them end with the first one."""
ENDS: Final = "@@@"
"""What the shell prints before the exit code of each command."""

LEFT_OUT: Final[Mapping[str, str]] = {
    r"make |python -m benchmarks": "it measures or breaks for minutes, and has tests of its own",
    r"git clone|pip install|pipx |uv tool|uvx |python3 -m venv": "it installs, from a network",
    r"sudo |iptables": "it changes the machine",
    r"ospltool top": "it needs a terminal: tests/console",
    r"history delete 'Obs\*' ships  ": "it asks on a terminal",
    r"ospltool demo": "tests/commands plays it",
    r"\. \.venv": "the environment of the tests is active",
    r" -f ": "it goes on until Ctrl-C",
    r"--runs 2000": "it takes many minutes: tests/simulation",
    r"spark|pipeline run|https?://": "it needs a cluster or a server: tests/analytics",
}
"""Commands that do not run here, and why."""

PLACES: Final[Mapping[str, str]] = {
    DATA: "demo",
    "/etc/ospltool/node.xml": "n1.xml",
    "/etc/opt/ospl.secret": "secret",
    "/var/lib/ospltool/store": "store",
    "/opt/ospl/durability-store": "samples/stores/after-merge/n3",
    "STORE": "store",
}
"""What the reader of a page has elsewhere."""

FILES: Final = "cp samples/three-nodes/*.*ml ."
FLEET: Final = "ospltool start samples/three-nodes/fleet.toml"
LOGS: Final = "for log in info error; do cp samples/traces/late-joiner/n1/ospl-info.log ospl-$log.log; done"
KILL: Final = "node=$(pgrep -f 'engine .*three-nodes/n[2].xml'); kill -9 $(ps -o ppid= -p $node) $node"
STORE: Final = "ospltool store import samples/stores/after-merge/n3 store"
HAS: Final[Mapping[str, tuple[str, ...]]] = {
    "backup.md": (FILES, STORE),
    "doctor.md": (FLEET, "cp samples/three-nodes/n1.xml ospl.xml"),
    "durability-qos.md": (FLEET,),
    "faq.md": (LOGS,),
    "filters.md": (FILES,),
    "health.md": (FILES, FLEET, KILL),
    "interoperability.md": (FLEET,),
    "migrate.md": ("cp samples/three-nodes/n1.xml ospl.xml",),
    "security.md": (
        FILES,
        r"sed -i 's|<Domain>|<Domain><DomainSecret>${HOME}/secret</DomainSecret>|' n?.xml",
    ),
    "service.md": (FILES, FLEET),
    "settings.md": ("cp samples/three-nodes/n1.xml ospl.xml",),
    "show.md": (FLEET, "ospltool record samples/three-nodes/fleet.toml -o night.rec --for 3s"),
    "simulator.md": (FILES,),
    "trace.md": (LOGS, "cp samples/three-nodes/n1.xml ospl.xml", "export CYCLONEDDS_URI='<CycloneDDS/>'"),
    "stores.md": (STORE, "ospltool store replace samples/stores/after-merge/n1 store"),
}
"""What a page says that its reader has, as the commands that make it."""

CODES: Final[Mapping[str, frozenset[int]]] = {
    "doctor --domain 7": frozenset({3}),  # nobody is there
    "doctor": frozenset({0, 1}),
    "trace anomalies": frozenset({0, 1}),
    "store diff": frozenset({0, 1}),
    "health": frozenset({0, 1, 2}),
}
"""Exit codes of commands that may find something; of all others it is 0."""

EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    "sql": ("duckdb", "pyarrow"),
    "metrics": ("prometheus_client",),
    "mcap": ("mcap",),
    "serve": ("textual_serve",),
    "spark": ("pyspark", "sqlglot"),
}
"""Packages that only an extra installs. One that a page does not name is missing there."""


def commands_of(page: Path) -> list[tuple[str, list[str]]]:
    """The commands of a page that run here, with the output that it shows."""
    return [each for each in steps(page) if not any(re.search(one, each[0]) for one in LEFT_OUT)]


PAGES: Final = sorted(
    path.relative_to(ROOT)
    for path in (ROOT / "README.md", *ROOT.glob("docs/*.md"))
    if commands_of(path.relative_to(ROOT)) and path.name != "tutorial.md"  # test_tutorial.py has that
)


def hide(extras: list[str], folder: Path) -> str:
    """Make packages that cannot be imported; return the folder that has them."""
    folder.mkdir()
    for package in (package for extra in extras for package in EXTRAS[extra]):
        (folder / f"{package}.py").write_text(f"raise ModuleNotFoundError(name={package!r})\n")
    return str(folder)


def script(commands: list[str]) -> str:
    """Run commands in one shell, as at a prompt: each finds the exit code of the one before."""
    ran = [f"(exit $code); eval {shlex.quote(one)}; code=$?; echo; echo {ENDS} $code" for one in commands]
    return "\n".join(["exec 2>&1; ip link set lo up; code=0", *ran])


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_the_commands_of_a_page_run_as_printed(page: Path, tmp_path: Path) -> None:
    text = (ROOT / page).read_text("utf-8")
    missing = [extra for extra in EXTRAS if f"`{extra}`" not in text]
    for name in ("samples", ".venv"):
        (tmp_path / name).symlink_to(ROOT / name)
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("OSPL", "CYCLONE"))},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": f"{hide(missing, tmp_path / 'missing')}:{ROOT}",
        "NO_COLOR": "1",
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "OSPLTOOL_RUNDIR": str(tmp_path / "run"),
        "OSPLTOOL_DEMO_DIR": str(tmp_path / "demo"),
    }
    shown = commands_of(page)
    commands = [*HAS.get(page.name, ()), *(command for command, _ in shown)]
    for place, here in PLACES.items():
        commands = [re.sub(rf"{re.escape(place)}(?!\w)", here, one) for one in commands]
    done = subprocess.run(
        [*ALONE, "bash", "-c", script(commands)],
        cwd=tmp_path,
        env=environ,
        input="y\n" * 9,
        stdout=subprocess.PIPE,
        text=True,
        timeout=500,
        check=False,
        start_new_session=True,  # a page that kills its process group ends no test
    )
    outputs = re.split(rf"^{ENDS} (\d+)\n", done.stdout, flags=re.MULTILINE)
    ends = list(zip(commands, map(int, outputs[1::2]), outputs[::2], strict=False))
    assert len(ends) == len(commands), done.stdout
    wrong = [
        each
        for each in ends
        if each[1] not in next((codes for word, codes in CODES.items() if f"ospltool {word}" in each[0]), {0})
        or re.search(r"Traceback|installs it$|this needs ", each[2])
    ]
    assert wrong == []
    for (command, lines), (_, _, output) in zip(shown, ends[-len(shown) :], strict=True):
        assert [line for line in lines if not fits(line, output)] == [], (command, output)
