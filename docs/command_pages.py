"""Make docs/commands and docs/man from the command line itself: `python -m docs.command_pages`.

A test fails if the files differ from what this module makes. The wheel installs the man pages.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import typer.main

from docs.rule_pages import escaped
from ospltool.cli import app
from ospltool.cli.options import examples

DIRECTORY = pathlib.Path(__file__).with_name("commands")
MAN = pathlib.Path(__file__).with_name("man")
_NOTE = "<!-- Made by `python -m docs.command_pages` from the command line. -->"
_CODES = "Exit codes:"
_TYPES = re.compile(r" <(?:list\[)?(?:str|path|float|int|int range|float range)\]?>$")
"""Types that a terminal shows, and that the explanation says."""


@dataclasses.dataclass(frozen=True)
class Page:
    """What the help of one command has.

    Attributes:
        name: the command as it is typed, without `ospltool`.
        usage: how it is called.
        text: its paragraphs; the last one has the exit codes.
        options: each argument and option, with its explanation.
        examples: command lines.
    """

    name: str
    usage: str
    text: tuple[str, ...]
    options: tuple[tuple[str, str], ...]
    examples: tuple[str, ...]


def pages_of(verb: str) -> list[Page]:
    """Return the help of a command, or of each command in its group."""
    root: Any = typer.main.get_command(app.build([verb]))
    command = root.commands[verb]
    members = getattr(command, "commands", None) or {"": command}
    return [_page(f"{verb} {name}".strip(), member) for name, member in members.items()]


def _page(name: str, command: Any) -> Page:
    context = typer.Context(command, info_name=f"ospltool {name}")
    records = filter(None, (each.get_help_record(context) for each in command.get_params(context)))
    return Page(
        name,
        " ".join(command.get_usage(context).removeprefix("Usage: ").split()),
        tuple(" ".join(each.split()) for each in command.help.split("\n\n")),
        tuple((_TYPES.sub("", option), " ".join(about.split())) for option, about in records),
        tuple(examples()[name]),
    )


def files() -> dict[pathlib.Path, str]:
    """Return the text of every file by its path."""
    found = {DIRECTORY / "README.md": _index(), MAN / "ospltool.1": _man("ospltool", app.ABOUT, _list())}
    for verb, about in app.VERBS.items():
        pages = pages_of(verb)
        found[DIRECTORY / f"{verb}.md"] = "\n".join(_markdown(verb, about, pages))
        found[MAN / f"ospltool-{verb}.1"] = _man(f"ospltool-{verb}", about, _sections(pages))
    return found


def _index() -> str:
    lines = ["# Commands", "", _NOTE, "", "`ospltool help COMMAND` shows the same in a terminal.", ""]
    for group, verbs in app.GROUPS.items():
        lines += [f"## {group}", "", "| Command | |", "|---|---|"]
        lines += [f"| [{verb}]({verb}.md) | {about} |" for verb, about in verbs.items()]
        lines.append("")
    return "\n".join(lines)


def _markdown(verb: str, about: str, pages: list[Page]) -> Iterator[str]:
    yield from (f"# ospltool {verb}", "", _NOTE, "", about, "")
    for page in pages:
        if len(pages) > 1:
            yield from (f"## {page.name}", "")
        yield from ("```text", page.usage, "```", "")
        for paragraph in page.text:
            head, marked, rest = paragraph.partition(_CODES)
            yield from ((f"**{_CODES}**{escaped(rest)}" if marked and not head else escaped(paragraph)), "")
        yield from ("| Option | |", "|---|---|")
        yield from (
            f"| `{option.replace('|', chr(92) + '|')}` | {escaped(text)} |" for option, text in page.options
        )
        yield from ("", "```console", *(f"$ {line}" for line in page.examples), "```", "")


def _man(name: str, about: str, body: Iterator[str]) -> str:
    head = [
        '.\\" Made by `python -m docs.command_pages` from the command line.',
        f'.TH "{name.upper()}" "1" "" "ospltool" "Commands of ospltool"',
        ".SH NAME",
        f"{_roff(name)} \\- {_roff(about)}",
    ]
    return "\n".join([*head, *body, ""])


def _sections(pages: list[Page]) -> Iterator[str]:
    for page in pages:
        yield from (
            f".SH {page.name.upper()}" if len(pages) > 1 else ".SH DESCRIPTION",
            ".B",
            _roff(page.usage),
        )
        for paragraph in page.text:
            yield from (".PP", *map(_roff, textwrap.wrap(paragraph.replace("`", ""), 100)))
        for option, about in page.options:
            yield from (".TP", f".B {_roff(option)}", *map(_roff, textwrap.wrap(about, 100)))
        yield from (
            ".PP",
            "Examples:",
            ".PP",
            ".nf",
            *(f"    {_roff(line)}" for line in page.examples),
            ".fi",
        )


def _list() -> Iterator[str]:
    for group, verbs in app.GROUPS.items():
        yield f".SH {group.upper()}"
        for verb, about in verbs.items():
            yield from (".TP", f".BR ospltool\\-{verb} (1)", _roff(about))


def _roff(text: str) -> str:
    """Return text that no letter of which is a request or an escape of roff."""
    plain = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("…", "...")
    return f"\\&{plain}" if plain.startswith(".") else plain


if __name__ == "__main__":
    for folder in (DIRECTORY, MAN):
        folder.mkdir(exist_ok=True)
    for path, text in files().items():
        path.write_text(text, "utf-8")
