"""Options, errors and exit codes that the commands on stores share."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ospltool.analytics.case import CaseError, is_case_directory
from ospltool.cli.exits import CommandError, Exit
from ospltool.output import progress, streams
from ospltool.output.installation import extra_command
from ospltool.stores.model import StoreUnreadable

if TYPE_CHECKING:
    from engine.store.interface import DamageLog
    from ospltool.stores.model import StoreReader

Stores = Annotated[
    list[str],
    typer.Argument(metavar="STORE|CASE...", help="Open these stores; a case stands for all stores in it."),
]
OneStore = Annotated[str, typer.Argument(metavar="STORE", help="Open this store.")]
Sets = Annotated[
    list[int] | None, typer.Option("--set", metavar="NUMBER", help="Use only this set; repeatable.")
]
Group = Annotated[
    str, typer.Option("--group", metavar="PARTITION.TOPIC", help="Show only matching groups (* and ?).")
]
Key = Annotated[str, typer.Option("--key", metavar="HEX", help="Show only keys with this prefix.")]
NameSpace = Annotated[
    str,
    typer.Option("--name-space", metavar="NAME", help="Give the set this name-space in the target."),
]
WithoutDamaged = Annotated[bool, typer.Option("--without-damaged", help="Skip records that cannot be read.")]

# A screenful; `verify` lists all.
_SHOWN_DAMAGE = 10
_EXTRAS = {
    "duckdb": "sql",
    "numpy": "sql",
    "pyarrow": "sql",
    "pyspark": "spark",
    "lxml": "sql",
    "mcap": "mcap",
}


@contextlib.contextmanager
def opened(name: str) -> Iterator[StoreReader]:
    """Open a store, and close it at the end of the context."""
    with reading():
        from ospltool.stores.opening import open_reader

        with progress.shown(f"opening {name}", unit=""):  # a copy of a large store takes its time
            reader = open_reader(pathlib.Path(name))
        try:
            yield reader
        finally:
            reader.close()


class UnreadStores:
    """The stores of a command that could not be read; it goes on with the others, and ends with 2."""

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}

    @contextlib.contextmanager
    def noting(self, name: str) -> Iterator[None]:
        """Report and note a store that proves unreadable in the context."""
        try:
            yield
        except CommandError as error:
            self.reasons[name] = str(error)
            error.notify()

    def end(self) -> None:
        """Exit with 2 if there is any."""
        if self.reasons:
            raise typer.Exit(Exit.USAGE)


@contextlib.contextmanager
def reading() -> Iterator[None]:
    """Turn unreadable stores, files of others and missing packages into command errors with exit code 2."""
    try:
        yield
    except StoreUnreadable as error:
        raise CommandError(str(error)) from error
    except PermissionError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from error
    except ModuleNotFoundError as error:
        raise _missing(error) from error


def _missing(error: ModuleNotFoundError) -> CommandError | ModuleNotFoundError:
    """Make the error for a missing package of an extra; any other missing module is a bug and stays."""
    name = (error.name or "").partition(".")[0]
    if name not in _EXTRAS:
        return error
    return CommandError(f"this needs {name}: `{extra_command(_EXTRAS[name])}`")


def end_with(damage: DamageLog) -> None:
    """Report damage, and exit with 1 if there is any."""
    for one in damage.first[:_SHOWN_DAMAGE]:
        streams.notify(f"damaged: {one}")
    if damage.count > _SHOWN_DAMAGE:
        streams.notify(f"... and {damage.count - _SHOWN_DAMAGE} more; `ospltool store verify` lists them")
    if damage.count:
        raise typer.Exit(Exit.FINDINGS)


def with_cases(names: Sequence[str], kinds: Sequence[str] = ("store",)) -> list[str]:
    """Replace each case among the names by what it holds of these kinds.

    Raises:
        CommandError: a case holds nothing of the kind, or cannot be read.
    """
    found: list[str] = []
    for name in names:
        path = pathlib.Path(name)
        if not is_case_directory(path):
            found.append(name)
            continue
        from ospltool.forensics.attachments import kept_in

        try:
            listed = [one for one in kept_in(path) if one.what in kinds]
        except CaseError as error:
            raise CommandError(str(error)) from error
        if not listed:
            raise CommandError(f"{name}: the case holds no {' and no '.join(kinds)}")
        for one in (one for one in listed if one.unread):
            streams.notify(f"{one.path}: not in the case, as it could not be read: {one.unread}")
        found += [str(one.path) for one in listed]
    return found


def hexadecimal(text: str, name: str) -> str:
    """Check an argument that is a prefix of a key or digest, and return it in lower case.

    Raises:
        CommandError: it has other characters.
    """
    if not all(character in "0123456789abcdef" for character in text.lower()):
        raise CommandError(f"{name}: {text!r} is not hexadecimal")
    return text.lower()


def put_lines(lines: Iterable[str]) -> None:
    """Write lines that are already terminal-safe."""
    for line in lines:
        streams.put(f"{line}\n")
