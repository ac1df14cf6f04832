"""Options that several commands have, groups of options, and parsers of values with units.

A group is a dataclass for what belongs together, used by every command that has it.

The fields of a group are declared as the parameters of a command are. A command takes a keyword parameter of
the class; `grouped` shows Typer the fields in its place, so that they stand there in the help, and makes the
instance when the command runs.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import pathlib
import time
import typing
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from ospltool.cli.exits import CommandError
from ospltool.output.locations import scheme_of
from ospltool.output.times import SECOND_NS, TimeError, parse_duration, parse_time

CONTEXT: Final[dict[str, Any]] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
EngineName = Annotated[
    typing.Literal["duckdb", "spark"],
    typer.Option("--engine", help="Work on this machine (duckdb), or on a cluster (spark)."),
]
SparkMaster = Annotated[
    str,
    typer.Option(help="Connect to this Spark master: local[*], spark://host:port or sc://host:port."),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the file.")]


@dataclasses.dataclass(frozen=True, slots=True)
class LiveTarget:
    """Which domain to watch in place of that of the configuration."""

    domain: Annotated[int | None, typer.Option(min=0, max=230, help="Use this domain instead.")] = None
    partition: Annotated[
        str | None,
        typer.Option(help="Set the durability partition of the nodes, if it is not the default."),
    ] = None


Minutes = Annotated[
    float | None,
    typer.Option(
        min=0.1,
        max=1440,
        metavar="N",
        help="Inject faults for N simulated minutes (default: drawn from the seed).",
    ),
]


@dataclasses.dataclass(frozen=True, slots=True)
class SourceOptions:
    """What is shown in place of a live system."""

    replay: Annotated[
        pathlib.Path | None, typer.Option(help="Show a recording instead of a live domain.")
    ] = None
    simulate: Annotated[
        str | None,
        typer.Option(
            metavar="DEPLOYMENT",
            help="Show a simulation of this fleet file, or, with `none`, of a system drawn from the seed.",
        ),
    ] = None
    seed: Annotated[int, typer.Option(help="Simulate this run.")] = 1
    faults: Annotated[
        str, typer.Option(help="Simulate these faults: any, all, none, or a list such as crash,partition.")
    ] = "any"
    minutes: Minutes = None

    @property
    def is_live(self) -> bool:
        """Whether a live domain is shown."""
        return self.replay is None and self.simulate is None


def duration_s(text: str) -> float:
    """Parse a duration such as `500ms`, `2s`, `1h30m` or, in seconds, `7` into seconds.

    Raises:
        typer.BadParameter: the text is not a duration, or a negative one.
    """
    try:
        length_ns = parse_duration(text)
    except TimeError as error:
        raise typer.BadParameter(str(error)) from None
    if length_ns < 0:
        raise typer.BadParameter(f"{text!r} is not a duration: it is negative")
    return length_ns / SECOND_NS


def time_ns(text: str) -> int:
    """Parse a time, such as 2026-11-21T01:08:34, 01:08:34 of today in UTC or -10s, into ns since 1970.

    Raises:
        typer.BadParameter: the text is not a time, or is before 1970.
    """
    try:
        moment_ns = parse_time(text, time.time_ns())
    except TimeError as error:
        raise typer.BadParameter(str(error)) from None
    if moment_ns < 0:
        raise typer.BadParameter(f"{text!r} is before 1970")
    return moment_ns


def duration(default: str | None, about: str, *names: str) -> Any:
    """Return the option of a duration in seconds.

    Args:
        default: as on the command line; None for none.
        about: its help.
        names: how it is written, by default as its parameter.
    """
    return typer.Option(default, *names, parser=duration_s, metavar="DURATION", help=about)


def uri_argument(about: str) -> Any:
    """Return the argument for a URI, by default that of OSPL_URI; `about` is its help."""
    return typer.Argument(metavar="URI", envvar="OSPL_URI", help=about)


class Page(TyperCommand):
    """A command whose help ends with examples."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples, each on a line of its own, so that it can be copied."""
        with formatter.section("Examples"):
            for line in examples().get(ctx.command_path.removeprefix("ospltool "), ()):
                formatter.write(f"{' ' * formatter.current_indent}{line}\n")


def examples() -> dict[str, list[str]]:
    """Return the examples of each command by its name, in an order in which they run."""
    import tomllib  # for help only

    return tomllib.loads((pathlib.Path(__file__).parent / "examples.toml").read_text("utf-8"))


class DefaultGroup(TyperGroup):
    """A group whose first command is meant where none is named.

    If the group can do without arguments, that command answers for it, and its help is that of the group.
    """

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]  # of Click
        """Put the first command before arguments that name none."""
        asks_for_group = not args or args[0] in CONTEXT["help_option_names"]
        if (args[:1] or [""])[0] not in self.commands and not (asks_for_group and self.no_args_is_help):
            args = [next(iter(self.commands)), *args]
        return super().parse_args(ctx, args)


def command_group(
    about: str, commands: Iterable[tuple[str, Callable[..., None], str]], **settings: Any
) -> typer.Typer:
    """Return a group of commands.

    Args:
        about: what it does.
        commands: the name, function and short help of each.
        settings: more for Typer.
    """
    settings = {"no_args_is_help": True, "context_settings": CONTEXT, "rich_markup_mode": None, **settings}
    group = typer.Typer(help=about, **settings)
    for name, command, short_help in commands:
        group.command(name, cls=Page, short_help=short_help)(grouped(command))
    return group


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command for Typer, in which each group of options is the options themselves."""
    hints = typing.get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if dataclasses.is_dataclass(kind)}
    parameters: list[inspect.Parameter] = []
    for each in inspect.signature(command).parameters.values():
        if each.name not in groups:
            parameters.append(each.replace(annotation=hints[each.name]))
            continue
        own = typing.get_type_hints(groups[each.name], include_extras=True)
        parameters += [
            inspect.Parameter(one.name, each.KEYWORD_ONLY, default=one.default, annotation=own[one.name])
            for one in dataclasses.fields(groups[each.name])
        ]

    @functools.wraps(command)
    def flat(**given: Any) -> None:
        for one in given.values():
            if isinstance(one, pathlib.Path) and scheme_of(str(one)):
                # A URI that is taken for a path becomes a directory with the name of its scheme.
                raise CommandError(f"{one}: a URI, where only a path of this machine will do")
        made = {
            name: kind(**{one.name: given.pop(one.name) for one in dataclasses.fields(kind)})
            for name, kind in groups.items()
        }
        command(**given, **made)

    keyword = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    flat.__signature__ = inspect.Signature(keyword)  # type: ignore[attr-defined]  # what Typer reads
    flat.__annotations__ = {each.name: each.annotation for each in keyword}
    return flat
