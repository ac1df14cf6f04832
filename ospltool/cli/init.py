"""`ospltool init`: write a configuration for one node or a fleet."""

from __future__ import annotations

import pathlib
import re
import shlex
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Final
from xml.sax.saxutils import escape

import typer

from ospltool.cli.exits import CommandError
from ospltool.cli.options import AsJson
from ospltool.cli.targets import DEFAULT
from ospltool.output import envelope, streams
from ospltool.output.text import visible

_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,59}", re.ASCII)
_LAST_DOMAIN: Final = 230
_HEAD: Final = """<!--
  A node of ospltool, written by `ospltool init`: change what you like, then `ospltool check` it.
"""


def init(
    directory: Annotated[
        pathlib.Path, typer.Argument(metavar="DIRECTORY", help="Write the files to this directory.")
    ] = pathlib.Path(),
    nodes: Annotated[
        list[str] | None,
        typer.Option("--node", metavar="NAME", help="Configure this node; several make a fleet."),
    ] = None,
    domain: Annotated[
        int | None, typer.Option(min=0, max=_LAST_DOMAIN, metavar="N", help="Join this DDS domain.")
    ] = None,
    partitions: Annotated[
        list[str] | None,
        typer.Option("--partition", metavar="P", help="Keep this partition (* and ?); repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a commented configuration for one node, or for each node of a fleet.

    On a terminal, the command asks for what no option says: the names of the nodes, the DDS domain and the
    partitions to keep. Elsewhere it takes the name of this host, domain 0 and all partitions. It overwrites
    no file.

    Exit codes: 0 success, 2 wrong usage, a file that exists, or a directory that cannot be written.
    """
    host = socket.gethostname().partition(".")[0]
    own_name = host if _NAME.fullmatch(host) else "node"
    names = _names(nodes) if nodes else _asked("Names of the nodes", own_name, _names)
    if domain is None:
        domain = int(_asked("DDS domain of the applications", "0", _domain)[0])
    kept = _partitions(partitions) if partitions else _asked("Partitions to keep (* and ?)", "*", _partitions)
    texts = {f"{name}.xml": _configuration(name, domain, kept) for name in names}
    if len(names) > 1:
        texts["fleet.toml"] = _fleet(names)
    written = _write(directory, texts)
    if as_json:
        streams.put(envelope.document("init", {"files": written}))
        return
    for path in written:
        streams.notify(f"ospltool: {visible(str(path))} written")
    word = visible(shlex.quote(str(written[-1])))
    them, alone, begun = "it", "", "the node"
    if len(names) > 1:
        them, alone, begun = "them", f" --node {names[0]}", f"{names[0]} on its host; so for each node"
    streams.notify(
        f"ospltool: `ospltool check {word}` checks {them}; `ospltool start {word}{alone}` starts {begun}"
    )


def _asked(question: str, default: str, parsed: Callable[[Sequence[str]], Sequence[str]]) -> Sequence[str]:
    """Ask on a terminal until the answer is good; elsewhere take the default.

    Raises:
        KeyboardInterrupt: the input ended.
    """
    while sys.stdin.isatty() and sys.stderr.isatty():
        sys.stderr.write(f"{question} [{default}]: ")
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            raise KeyboardInterrupt
        try:
            return parsed([word.strip() for word in (line.strip() or default).split(",")])
        except CommandError as error:
            error.notify()
    return parsed([default])


def _names(words: Sequence[str]) -> Sequence[str]:
    """Return names of nodes, which are also names of files; raise `CommandError` if one cannot be that."""
    for word in words:
        if not _NAME.fullmatch(word):
            raise CommandError(
                f"{visible(word)!r} cannot name a node: write letters, digits, '_', '-' and '.'"
            )
    lower = [word.lower() for word in words]
    twice = next((word for word in words if lower.count(word.lower()) > 1), None)
    if twice is not None:
        raise CommandError(f"two nodes are named {twice!r}; each needs a name of its own")
    return words


def _domain(words: Sequence[str]) -> Sequence[str]:
    """Return the number of a domain; raise `CommandError` if it is none."""
    text = ",".join(words)
    if not (text.isascii() and text.isdecimal() and int(text) <= _LAST_DOMAIN):
        raise CommandError(f"{visible(text)!r} is not a domain: write a number from 0 to {_LAST_DOMAIN}")
    return words


def _partitions(words: Sequence[str]) -> Sequence[str]:
    """Return expressions for partitions; raise `CommandError` if one cannot be written in a configuration."""
    for word in words:
        if not word or not word.isprintable() or set(word) & set("\\$,"):
            raise CommandError(f"{visible(word)!r} cannot be a partition here")
    return words


def _configuration(name: str, domain: int, partitions: Sequence[str]) -> str:
    """Return the default configuration with these values."""
    text = pathlib.Path(DEFAULT).read_text("utf-8")
    expressions = "\n        ".join(f"<Partition>{escape(one)}</Partition>" for one in partitions)
    changes = {
        text[text.index("<!--") : text.index("\n\n") + 1]: _HEAD,
        "${HOSTNAME:-node}": name,
        "${OSPLTOOL_DOMAIN:-0}": str(domain),
        "/ospltool/store": f"/ospltool/{name}",
        "One name-space with all partitions.": "The partitions that this node keeps, as one set of data.",
        "<Partition>*</Partition>": expressions,
    }
    for before, after in changes.items():
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    return text


def _fleet(names: Sequence[str]) -> str:
    """Return the fleet file of some nodes that all keep everything."""
    nodes = "".join(f'[[node]]\nname = "{name}"\nfile = "{name}.xml"\n\n' for name in names)
    return (
        "# The nodes that belong together: the commands of ospltool take this file.\n\n"
        f"{nodes}# What `ospltool health` expects: how many nodes hold the data, how many on disk.\n\n"
        f'[[name-space]]\nname = "defaultNamespace"\ncopies = {len(names)}\non-disk = {len(names)}\n'
    )


def _write(directory: pathlib.Path, texts: dict[str, str]) -> list[pathlib.Path]:
    """Write new files, or none; return their paths.

    Raises:
        CommandError: one exists, or cannot be written.
    """
    made: list[pathlib.Path] = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            with (directory / name).open("x", encoding="utf-8") as file:
                made.append(directory / name)
                file.write(text)
    except OSError as error:
        for path in made:
            path.unlink()
        why = (
            "the file exists, and is not overwritten"
            if isinstance(error, FileExistsError) and directory.is_dir()
            else error.strerror
        )
        raise CommandError(f"{visible(str(error.filename or directory))}: {why}") from error
    return made
