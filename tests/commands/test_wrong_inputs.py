"""Every command with every wrong place of a file, whatever commands there are.

The commands and their parameters are read from the program. An argument that is no file is named in
WORDS, so a new command takes part by itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
import typer.main

from ospltool.cli import app
from tests.commands.shell import Shell

SAMPLES: Final = pathlib.Path(app.__file__).parents[2] / "samples"
TRACES, STORE = str(SAMPLES / "traces" / "late-joiner"), str(SAMPLES / "stores" / "after-merge" / "n1")

WORDS: Final = {
    "topic": "T", "partition": "P", "group": "p.T", "text": "text", "digest": "", "query": "", "words": "",
    "incidents": "DUL-NODE-GONE", "length": "1h", "directory": "made", "what": "nodes", "name": "",
}  # fmt: skip
"""Arguments that are no files, with a value where they are required."""
OPTIONS: Final = {"uri", "replay", "recording", "simulate", "trace", "stores"}
"""Options that name a file to read."""
TARGETS: Final = {"target"}
"""Arguments that name what is written; `GOOD` has it for the commands that need another."""
GOOD: Final = {"target": "made", "source": STORE, "store": STORE, "name": "n1"}
"""What the other arguments of a command get."""
FURTHER: Final = {
    "top": ["--json"],
    "store watch": ["--looks", "1"],
    "store export": ["-o", "made"],
    "report": ["--force"],
    "store diff": [STORE],
    "record": ["--once"],
    "simulate": ["--minutes", "0.1"],
}
"""Further words, so that a command ends, and comes to its files."""
NO_DIRECTORIES: Final = {("check", "paths")}
"""Where a directory without any configuration is no error."""


def leaves(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The commands below one, with the words that name them."""
    commands = getattr(command, "commands", None)
    if commands is None:
        yield path, command
    for name, one in (commands or {}).items():
        yield from leaves(one, (*path, name))


COMMANDS: Final = [  # by path: each program that is built for one verb has `help`, too
    *dict(
        found for verb in app.VERBS for found in leaves(typer.main.get_command(app.build([verb])), ())
    ).items()
]


@dataclasses.dataclass(frozen=True)
class Place:
    """A parameter of a command that names a file to read."""

    command: tuple[str, ...]
    name: str
    words: Callable[[str], list[str]]


def places() -> Iterator[Place]:
    """Every place of every command where a file is named."""
    for path, command in COMMANDS:
        for chosen in command.params:
            is_argument = not chosen.opts[0].startswith("-")
            known = {*WORDS, *TARGETS}
            if chosen.name in (OPTIONS if not is_argument else {chosen.name} - known):

                def words(given: str, command: Any = command, chosen: Any = chosen) -> list[str]:
                    found = []
                    is_argument = not chosen.opts[0].startswith("-")
                    before = command.params[: command.params.index(chosen)]
                    for one in command.params:
                        if one.opts[0].startswith("-"):
                            found += [one.opts[0], given] if one is chosen else []
                        elif one is chosen:
                            found.append(given)
                        elif one.required or (is_argument and one in before):
                            found.append(WORDS.get(one.name) or GOOD[one.name])
                    return found

                yield Place(path, chosen.name, words)


@contextlib.contextmanager
def without_privileges() -> Iterator[None]:
    """Take from this thread, for a while, what lets an administrator open every file."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3 of the interface, this thread
    before = (ctypes.c_uint32 * 6)()
    assert libc.capget(header, before) == 0
    without = type(before).from_buffer_copy(before)
    without[0] &= ~0b110  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH
    assert libc.capset(header, without) == 0
    try:
        yield
    finally:
        assert libc.capset(header, before) == 0


def wrong_files(root: pathlib.Path) -> dict[str, bool]:
    """Make one file or directory of each wrong kind; return the names, and which are directories."""
    contents = {
        "empty-file.xml": b"",
        "empty-fleet.toml": b"",
        "garbage.bin": bytes(range(256)) * 20,
        "garbage.gz": b"\x1f\x8b" + bytes(range(256)) * 20,
        "prose.txt": b"It was a dark night.\nNothing happened.\n",
        "page.xml": b"<html><body>hello</body></html>",
        "locked.xml": b"<OpenSplice/>",
        "other/read.me": b"hello\n",
    }
    for name in ("hollow", "other", "locked"):
        (root / name).mkdir()
    for name, content in contents.items():
        (root / name).write_bytes(content)
    (root / "locked.xml").chmod(0)
    (root / "locked").chmod(0)
    directories = ("hollow", "other", "locked")
    return {name: name in directories for name in ("missing.xml", *contents, *directories) if "/" not in name}


@pytest.mark.parametrize("place", list(places()), ids=lambda place: " ".join((*place.command, place.name)))
def test_a_command_says_what_is_wrong_with_the_file_that_it_is_given(shell: Shell, place: Place) -> None:
    for name, is_directory in wrong_files(shell.root).items():
        if is_directory and (*place.command, place.name) in NO_DIRECTORIES:
            continue
        words = [*place.command, *place.words(name), *FURTHER.get(" ".join(place.command), [])]
        with without_privileges():
            code, out, err = shell.run(*words)
        may_end_well = place.command == ("explain",) and name.endswith(".toml")  # what is wrong is the answer
        assert code in (1, 2) or may_end_well, (words, err)
        assert "Traceback" not in err
        assert name in err or name in out, (words, err)  # findings of `check` are its result
    (shell.root / "locked").chmod(0o700)


READING: Final = {
    ("trace", "view"): [TRACES],
    ("trace", "timeline"): [TRACES],
    ("trace", "anomalies"): [TRACES],
    ("trace", "conversation"): ["partA.T1", TRACES],
    ("trace", "explain"): ["d_admin:1053"],
    ("store", "info"): [STORE],
    ("store", "backups"): [STORE],
    ("store", "ls"): [STORE],
    ("store", "show"): [STORE],
    ("store", "verify"): [STORE],
    ("store", "diff"): [STORE, STORE],
    ("store", "watch"): [STORE, "--looks", "1"],
    ("check",): [str(SAMPLES / "three-nodes" / "n1.xml"), "--show", "info"],
    ("explain",): ["DUR201"],
    ("env",): [],
    ("info",): [str(SAMPLES / "three-nodes" / "n1.xml")],
    ("list",): [],
}
"""Commands that only read, and end by themselves."""


@pytest.mark.parametrize("path", READING, ids=" ".join)
def test_a_reader_that_leaves_ends_a_command_without_a_word(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, path: tuple[str, ...]
) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w", encoding="utf-8") as closed:
        monkeypatch.setattr("sys.stdout", closed)
        code, _, err = shell.run(*path, *READING[path])
        monkeypatch.undo()
    assert (code, "Traceback" in err) == (141, False), err


WRITING: Final = {
    ("trace", "load"): [TRACES, "-o"],
    ("trace", "load", "--follow"): [TRACES, "-o"],
    ("report",): [TRACES, "-o"],
    ("record",): ["--once", "-o"],
    ("demo",): ["--headless", "--directory"],
    ("store", "export"): [STORE, "-o"],
    ("store", "import"): [STORE],
    ("store", "diff"): [STORE, STORE, "--format", "html", "-o"],
    ("store", "replace"): [STORE],
    ("persistence", "run"): [str(SAMPLES / "three-nodes" / "n1.xml"), "--store"],
}
"""Commands that write where the next word says."""


@pytest.mark.parametrize(
    "path", [*WRITING, ("trace", "view"), ("sql",), ("trace", "anomalies")], ids=" ".join
)
def test_a_uri_that_nothing_can_open_is_one_sentence(shell: Shell, path: tuple[str, ...]) -> None:
    """It is no path, so no directory gets the name of its scheme."""
    for uri in ("gopher://host/made", "file://other/made"):
        code, out, err = shell.run(*path, *WRITING.get(path, []), uri)
        assert (code, out) == (2, ""), (path, err)
        places = (f"ospltool: {uri}: ", f"ospltool: {uri.replace('//', '/')}: ")
        assert err.startswith(places), err
        assert err.count("\n") == 1, err
    assert not list(shell.root.glob("*:"))
