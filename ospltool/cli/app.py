"""The `ospltool` command."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperGroup

from ospltool.cli.exits import CommandError, Exit, require_cyclone
from ospltool.cli.options import CONTEXT, Page, grouped
from ospltool.output import streams

if TYPE_CHECKING:
    from collections.abc import Sequence

GROUPS: Final = {
    "Run": {
        "start": "Start nodes, in the background or in front.",
        "stop": "Stop a node.",
        "restart": "Stop a node and start it again.",
        "init": "Write a configuration for one node or a fleet.",
        "persistence": "Run and inspect redundant persistence services.",
        "demo": "Run a checked demonstration with three nodes.",
    },
    "See": {
        "status": "Show the state of a node.",
        "list": "List the nodes on this machine.",
        "show": "Show tables: nodes, masters, alignment and more.",
        "logs": "Show the logs and the trace of nodes.",
        "health": "Report what is wrong in a running system.",
        "top": "Open the operations console.",
        "record": "Record the state of a system to a file.",
        "metrics": "Export the state of a system for Prometheus.",
        "cat": "Print the samples of a topic as JSON lines.",
        "history": "Wait for history, delete it, show its state.",
    },
    "Check": {
        "check": "Check configurations and deployments.",
        "doctor": "Find why readers and writers cannot agree.",
        "explain": "Explain a file, a text, a rule, a code, a setting.",
        "info": "Show versions, paths and effective settings.",
        "env": "Show environment variables and their origin.",
    },
    "Investigate": {
        "trace": "Read, follow, merge and explain traces and logs.",
        "store": "Open, verify and compare durability stores.",
        "sql": "Query a case with SQL or a named query.",
        "report": "Write an incident report as one HTML file.",
        "pipeline": "Load and judge a fleet by a plan.",
    },
    "Simulate": {
        "simulate": "Simulate a system with faults, by seed.",
    },
}
"""The verbs in the order of the help. `ospltool.cli.<verb>` has the function, or the `group` of commands."""
VERBS: Final = {verb: about for verbs in GROUPS.values() for verb, about in verbs.items()}
_PLACES: Final = {"env": "env.show_environment", "list": "list.list_nodes", "restart": "start.restart"}
"""Modules and functions with other names than their verb."""

# A console makes as many in a second with 200 nodes; any of that size would do.
YOUNG: Final = 50_000
"""New objects after which garbage is looked for."""
GOES_ON: Final = {
    **dict.fromkeys(("health", "show", "logs", "record", "metrics", "doctor", "cat"), "nodes go on running"),
    "persistence status": "replicas go on running",
    "history wait": "nodes go on running",
    "history delete": "nodes go on with a deletion that has reached them",
    "trace load": "the case has what was committed; the same command loads the rest",
    "pipeline": "the next run goes on with what this one did not commit",
}
"""What goes on after Ctrl-C, by the command; `start`, `restart` and `stop` say it themselves."""

ABOUT: Final = "A durability service for Cyclone DDS, like that of OpenSplice, and its tools."
_EPILOG: Final = "`ospltool help COMMAND` shows its options, examples and exit codes."


class _Root(TyperGroup):
    """The command without a verb; its help has the verbs by what they are for."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Suggest, for a word that is no command, what is meant: a command, one of a group, or a table."""
        word = args[0]
        if not ctx.resilient_parsing and not word.startswith("-") and self.get_command(ctx, word) is None:
            from engine.config.values import did_you_mean  # only a wrong word pays for these
            from ospltool.cli.options import examples
            from ospltool.views.pages import PAGES

            inner = dict.fromkeys((*examples(), *(f"show {page}" for page in PAGES)))
            hint = did_you_mean(word, [*VERBS, *(name for name in inner if " " in name)])
            ctx.fail(f"No such command {word!r}{f'; {hint}' if hint else ''}")
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, without the one that prints what --install-completion installs."""
        for option in self.params:
            option.hidden = option.name == "show_completion"  # type: ignore[attr-defined]  # a part of Click
        super().format_options(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the name of each group beside its first verb, so that all fit on a screen."""
        rows = [
            (f"{'' if number else group:<13}{verb}", about)
            for group, verbs in GROUPS.items()
            for number, (verb, about) in enumerate(verbs.items())
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (see `ospltool.cli.exits`)."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    # What is imported is no garbage: to look through it again and again takes a tenth of each start.
    gc.set_threshold(YOUNG)
    streams.prepare()
    code = _run(given)
    rest = GOES_ON.get(" ".join(given[:2])) or GOES_ON.get(" ".join(given[:1]))
    if code == Exit.INTERRUPTED and rest:
        streams.notify(f"ospltool: interrupted; {rest}")
    return streams.finish(code)


def _run(given: list[str]) -> int:
    try:
        build(given)(given or ["--help"], prog_name="ospltool")
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # Typer's own end, if nobody reads the help
            return streams.EXIT_PIPE_CLOSED
        return ended.code if isinstance(ended.code, int) else Exit.GOOD
    except CommandError as error:
        error.notify()
        return error.exit_code
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except OSError as error:
        return streams.not_written(error) or _not_permitted(error) or _own_fault()
    except Exception as error:
        return _interrupted(error) or _refused(error) or _own_fault()
    return Exit.GOOD


def _interrupted(error: BaseException | None) -> int:
    """Recognise Ctrl-C within a class statement, where Python 3.11 raises RuntimeError; 0 for others."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return Exit.INTERRUPTED
        error = error.__cause__ or error.__context__
    return 0


def _not_permitted(error: OSError) -> int:
    """Say it if a file of the user's choice may not be opened; 0 for other errors."""
    if not isinstance(error, PermissionError) or error.filename is None:
        return 0
    streams.notify(f"ospltool: {error.filename}: {error.strerror}")
    return Exit.USAGE


def _refused(error: Exception) -> int:
    """Say it if Cyclone DDS or the compiled library cannot be used; 0 for other errors."""
    from engine.dds.errors import UnsupportedCyclone
    from engine.native import NoLibrary

    if not isinstance(error, UnsupportedCyclone | NoLibrary):
        return 0
    try:
        require_cyclone()
    except CommandError as missing:
        error = missing
    streams.notify(f"ospltool: {error}")
    return Exit.USAGE


def build(arguments: Sequence[str]) -> typer.Typer:
    """Build the application with the verb that the arguments name, or with all verbs if they name none.

    So a command does not pay for the imports of the others, and the list of all imports none.
    """
    app = typer.Typer(
        cls=_Root,
        help=ABOUT,
        epilog=_EPILOG,
        rich_markup_mode=None,  # the same bytes on a terminal and in a file, and 100 ms less
        pretty_exceptions_enable=False,
        context_settings=CONTEXT,
    )
    app.callback()(_global_options)
    app.command("help", cls=Page, hidden=True)(show_help)
    first = next(iter(arguments), "")
    is_completing = "_OSPLTOOL_COMPLETE" in os.environ
    for verb, about in VERBS.items():
        if verb != first and first in VERBS and not is_completing:
            continue
        if first not in VERBS and not is_completing:
            app.command(verb, short_help=about)(_listed_only)
            continue
        place, _, function = _PLACES.get(verb, f"{verb}.{verb}").partition(".")
        module = importlib.import_module(f"ospltool.cli.{place}")
        if hasattr(module, "group"):
            app.add_typer(module.group, name=verb, short_help=about)
        else:
            app.command(verb, cls=Page, short_help=about)(grouped(getattr(module, function)))
    return app


def _listed_only() -> None:
    pass


def show_help(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="Explain this command.")
    ] = None,
) -> None:
    """Explain a command, as its option --help does.

    Exit codes: 0 success, 2 no such command.
    """
    given = [*(words or ()), "--help"]
    build(given)(given, prog_name="ospltool")


def _show_version(wanted: bool) -> None:
    if wanted:
        from engine.tracing.version import product_version

        streams.put(f"ospltool {product_version()}\n")
        raise typer.Exit


def _global_options(
    version: bool = typer.Option(
        False, "--version", "-v", help="Show the version and exit.", callback=_show_version, is_eager=True
    ),
) -> None:
    pass


def _own_fault() -> Exit:
    import traceback

    advice = "ospltool: this is a bug in ospltool; please report it with the lines above"
    streams.notify(*traceback.format_exc().rstrip().splitlines(), advice)
    return Exit.FAULT


if __name__ == "__main__":
    sys.exit(main())
