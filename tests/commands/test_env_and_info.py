"""env and info."""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

import pytest

from engine.dds.errors import UnsupportedCyclone
from ospltool.cli.exits import not_installed
from ospltool.output.installation import extra_command
from tests.commands.shell import Shell


def test_env_shows_values_and_where_they_come_from(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OSPL_LOGPATH", "/var/log\x1b")
    path = shell.write()

    def row(variable: str) -> dict[str, str]:
        return next(each for each in shell.data("env", path) if each["variable"] == variable)

    assert row("OSPL_LOGPATH")["origin"] == "environment"
    assert "SIZE[:FILES], such as 64M:5" in row("OSPLTOOL_TRACE_ROTATION")["meaning"]
    assert row("OSPL_INFOFILE")["value"] == "ospl-info.log"
    assert row("DOMAIN_ID")["origin"] == f"{path}:4:9, ${{DOMAIN_ID:-11}}"
    assert row("DOMAIN_ID")["value"] == "11"
    monkeypatch.setenv("DOMAIN_ID", "5")
    assert (row("DOMAIN_ID")["origin"], row("DOMAIN_ID")["value"]) == ("environment", "5")

    code, out, _ = shell.run("env", path)
    assert code == 0
    assert "/var/log\\x1b" in out
    assert shell.run("env", "/no/such.xml")[0] == 2


@pytest.mark.parametrize(
    ("variable", "refused", "accepted"),
    [
        ("OSPLTOOL_TRACE_ROTATION", "abc", "64M:5"),
        ("OSPL_VERBOSITY", "loud", "WARNING"),
        ("OSPL_LOGAPPEND", "perhaps", "no"),
        ("OSPL_INFOFILE", "host:99", "info.log"),
        ("OSPL_ERRORFILE", "host:99", "<stderr>"),
        ("OSPLTOOL_DDSC", "/nowhere.so", "libc.so.6"),
        ("OSPLTOOL_DDSC", "lib/libddsc.so", ""),
    ],
)
def test_env_names_what_a_node_refuses(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, variable: str, refused: str, accepted: str
) -> None:
    monkeypatch.setenv(variable, refused)
    code, out, err = shell.run("env")
    assert (code, "environment, refused" in out) == (1, True)
    assert variable in err
    assert refused in err
    monkeypatch.setenv(variable, accepted)
    assert shell.run("env")[0] == 0


def test_info_shows_versions_and_every_setting_with_its_origin(shell: Shell) -> None:
    path = shell.write()
    data = shell.data("info", path, "--role", "other")
    assert data["versions"]["typer"]
    assert data["configuration"]["role"] == "other"
    origins = {each["path"]: each["origin"] for each in data["configuration"]["settings"]}
    assert origins["//OpenSplice/Domain/Name"].startswith(f"{path}:3:")
    assert origins["//OpenSplice/Domain/ServiceTerminatePeriod"].startswith(f"{path}:7:")
    assert "default" in origins.values()
    code, out, _ = shell.run("info", path)
    assert code == 0
    assert "//OpenSplice/Domain/Name" in out
    assert shell.data("info")["configuration"]["name_spaces"] == ["defaultNamespace"]


def test_info_marks_what_has_no_effect(shell: Shell) -> None:
    path = shell.write()
    text = path.read_text().replace("<Role>", "<SingleProcess>true</SingleProcess>\n<Role>")
    path.write_text(text)
    settings = shell.data("info", path)["configuration"]["settings"]
    marked = {each["path"]: each["ignored"] for each in settings if each["ignored"]}
    assert {
        "//OpenSplice/Domain/SingleProcess",
        "//OpenSplice/DurabilityService/Network/WaitForAttachment/ServiceName",
    } <= {*marked}
    shown = shell.run("info", path)[1]
    assert all(f"no effect: {reason}" in shown for reason in marked.values())


@pytest.mark.parametrize(
    ("file", "text", "origin", "said"),
    [
        ("x", "", {}, "bin/python -m pip install 'ospltool[sql]'"),
        ("x", "", {"url": "file:///a%20b", "dir_info": {"editable": True}}, "--editable '/a b[sql]'"),
        ("x", "", {"url": "file:///w/o.whl"}, "bin/python -m pip install '/w/o.whl[sql]'"),
        ("x", "", {"url": "https://host/o.whl"}, "-m pip install 'ospltool[sql]'"),
        ("x", "", "damaged", "-m pip install 'ospltool[sql]'"),
        ("pyvenv.cfg", "home = x\nuv = 0.9\n", {}, "uv pip install --python "),
        ("uv-receipt.toml", "", {}, "uv tool install --force 'ospltool[sql]'"),
        ("pipx_metadata.json", "", {}, "pipx install --force 'ospltool[sql]'"),
        ("archive-v0/x", "", {}, "uvx --from 'ospltool[sql]' ospltool ..."),
    ],
)
def test_a_missing_extra_is_named_with_the_command_of_this_installation(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str, origin: Any, said: str
) -> None:
    class Installed:
        def read_text(self, name: str) -> str:
            return json.dumps(origin) if origin != "damaged" else origin

    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    monkeypatch.setattr(sys, "prefix", str(path.parent))
    monkeypatch.setattr("importlib.metadata.distribution", lambda _: Installed())
    assert said in extra_command("sql")
    assert said in str(not_installed("sql", ImportError("no duckdb")))


@pytest.mark.parametrize("arguments", [["start"], ["top", "--json"]])
def test_without_cyclone_the_command_that_installs_it_is_named(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    def missing(*_: object) -> None:
        raise UnsupportedCyclone("the package cyclonedds is not installed")

    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setattr("ospltool.cli.domains.place_of", missing)
    code, out, err = shell.run(*arguments)
    assert (code, out, "`" + extra_command("dds") in err) == (2, "", True), err
