"""What every command of the command line has, whoever wrote it."""

from __future__ import annotations

import re
import shlex
import typing

import typer.main

from docs import command_pages
from ospltool.cli import app
from ospltool.cli.options import examples

if typing.TYPE_CHECKING:
    import pathlib

    import pytest

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


def test_a_command_answers_in_json_or_says_why_not() -> None:
    for name, command in COMMANDS.items():
        options = options_of(command)
        speaks_json = "--json" in options or any("json" in str(each.help) for each in options.values())
        assert speaks_json != (name in WITHOUT_JSON), name


def test_a_command_explains_itself_and_its_exit_codes() -> None:
    for name, command in COMMANDS.items():
        assert "Exit code" in command.help, name
        short = command.get_short_help_str(limit=200)
        assert short.endswith("."), name
        assert len(short) <= 62, f"the list of commands must not cut {name} off"


def test_every_option_and_argument_is_explained() -> None:
    for name, command in COMMANDS.items():
        silent = [parameter.name for parameter in command.params if not getattr(parameter, "help", None)]
        assert [each for each in silent if each != "help"] == [], name


def test_long_options_have_words_and_short_ones_one_letter() -> None:
    for option in {option for command in COMMANDS.values() for option in options_of(command)}:
        if option.startswith("--"):
            assert option == option.lower()
            assert "_" not in option
        elif option.startswith("-"):
            assert len(option) == 2, option


def printed(text: str) -> typing.Iterator[str]:
    """Each command line and option that a page prints: in a block, or in code font between other words."""
    for number, part in enumerate(
        re.split(r"^```(?:console|sh)?\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    ):
        lines = part.splitlines() if number % 2 else re.findall(r"`([^`]+)`", part)
        yield from (line.removeprefix("$ ") for line in lines)


def unknown_options(line: str, known: set[str]) -> list[str]:
    """Options of a printed line that its command lacks, or that are not `known` where it names no command."""
    try:
        words = shlex.split(line.replace("…", "..."), comments=True)
    except ValueError:  # not a command: a text with an apostrophe
        return []
    for at, word in enumerate(words):
        if word.rpartition("/")[2] == "ospltool" and at + 1 < len(words) and words[at + 1] in app.VERBS:
            verb, *words = words[at + 1 :]
            named = [f"{verb} {words[0]}"] if words else []
            first = (name for name in COMMANDS if name.partition(" ")[0] == verb)
            name = next(each for each in [*named, verb, *first] if each in COMMANDS)
            known = {*options_of(COMMANDS[name]), "--help", "-h"}
            break
    else:
        if not line.startswith("-"):
            return []
    used = (word.partition("=")[0] for word in words[: words.index("|") if "|" in words else None])
    return [word for word in used if re.fullmatch(r"-[a-zA-Z]|--[a-z][a-z-]+", word) and word not in known]


def test_every_option_that_a_page_prints_exists(root: pathlib.Path) -> None:
    known = {"--version", "-v", "--help", "-h", "--install-completion"}
    known |= {option for command in COMMANDS.values() for option in options_of(command)}
    pages = [root / "README.md", *(root / "docs").rglob("*.md"), *(root / "ospltool").rglob("*.toml")]
    lines = [
        (page.name, line)
        for page in pages
        for line in printed(page.read_text("utf-8"))
        if "ospltool" in line or page.parent.name != "internals"  # those have options of benchmarks, too
    ]
    lines += [(name, line) for name, every in examples().items() for line in every]
    assert sum("ospltool " in line for _, line in lines) > 200
    assert [(page, line) for page, line in lines if unknown_options(" ".join(line.split()), known)] == []
    assert unknown_options("ospltool store ls STORE --limit 1 --stat", known) == ["--stat"]
    assert unknown_options("--statistic", known) == ["--statistic"]


def test_every_page_ends_with_two_examples_of_its_command() -> None:
    found = examples()
    assert found.keys() == COMMANDS.keys()
    for name, lines in found.items():
        default = {"health report": "health", "trace view": "trace"}.get(name, name)
        assert len(set(lines)) == 2, name
        assert {line.startswith((f"ospltool {name}", f"ospltool {default}")) for line in lines} == {True}, (
            name
        )


def test_pages_of_commands_are_made_from_the_command_line() -> None:
    folders = (command_pages.DIRECTORY, command_pages.MAN)
    there = {path: path.read_text("utf-8") for folder in folders for path in folder.iterdir()}
    assert there == command_pages.files(), "run `python -m docs.command_pages`"
    assert len(there) > 50


def test_the_list_of_commands_fits_a_screen(capfd: pytest.CaptureFixture[str]) -> None:
    app.main(["--help"])
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    app.main(["help", "start"])
    assert capfd.readouterr().out.endswith(
        "Examples:\n" + "".join(f"  {line}\n" for line in examples()["start"])
    )
