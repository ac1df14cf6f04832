"""What every command of the command line has, whoever wrote it."""

from __future__ import annotations

import typing

import pytest
import typer.main

from ospltool.cli import app
from ospltool.cli.options import examples

WITHOUT_JSON: dict[str, str] = {
    "cat": "it always answers in JSON lines",
    "help": "it is for people",
    "metrics": "its one format is that of Prometheus; `health --json` says the same",
}
"""Commands without --json, and why."""


def commands(node: typing.Any, path: tuple[str, ...] = ()) -> typing.Iterator[tuple[str, typing.Any]]:
    """Every command that can be run, with its name as it is typed."""
    children = getattr(node, "commands", None)
    if children is None:
        yield " ".join(path), node
        return
    for name, child in children.items():
        yield from commands(child, (*path, name))


COMMANDS = {
    name: command
    for verb in app.VERBS
    for name, command in commands(typer.main.get_command(app.build([verb])))
}


def options_of(command: typing.Any) -> dict[str, typing.Any]:
    return {name: parameter for parameter in command.params for name in parameter.opts}


def test_every_verb_that_is_there_registers_itself() -> None:
    assert {name.partition(" ")[0] for name in COMMANDS} <= {*app.VERBS, "help"}
    assert {"start", "stop", "status", "list", "top", "env", "info"} <= set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_answers_in_json_or_says_why_not(name: str) -> None:
    options = options_of(COMMANDS[name])
    speaks_json = "--json" in options or any("json" in str(each.help) for each in options.values())
    assert speaks_json != (name in WITHOUT_JSON)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_explains_itself_and_its_exit_codes(name: str) -> None:
    command = COMMANDS[name]
    assert command.help
    assert "Exit code" in command.help
    short = command.get_short_help_str(limit=200)
    assert short.endswith(".")
    assert len(short) <= 62, "the list of commands must not cut it off"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_and_argument_is_explained(name: str) -> None:
    silent = [parameter.name for parameter in COMMANDS[name].params if not getattr(parameter, "help", None)]
    assert [each for each in silent if each != "help"] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_long_options_have_words_and_short_ones_one_letter(name: str) -> None:
    for option in options_of(COMMANDS[name]):
        if option.startswith("--"):
            assert option == option.lower()
            assert "_" not in option
        elif option.startswith("-"):
            assert len(option) == 2


def test_every_page_ends_with_two_examples_of_its_command() -> None:
    found = examples()
    assert found.keys() == COMMANDS.keys()
    for name, lines in found.items():
        default = {"health report": "health", "trace view": "trace"}.get(name, name)
        assert len(set(lines)) == 2, name
        assert {line.startswith((f"ospltool {name}", f"ospltool {default}")) for line in lines} == {True}, (
            name
        )


def test_the_list_of_commands_fits_a_screen(capfd: pytest.CaptureFixture[str]) -> None:
    app.main(["--help"])
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    app.main(["help", "start"])
    assert capfd.readouterr().out.endswith(
        "Examples:\n" + "".join(f"  {line}\n" for line in examples()["start"])
    )
