"""The `ospltool` command."""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Final

import typer

from ospltool.cli.exits import CommandError, Exit
from ospltool.cli.options import CONTEXT, grouped
from ospltool.output import streams

if TYPE_CHECKING:
    from collections.abc import Sequence

VERBS: Final = {
    "start": "Start a node, in the background or in the foreground.",
    "stop": "Stop a node.",
    "status": "Show the state of a node.",
    "list": "List the nodes on this machine.",
    "health": "Report what is wrong in a running system.",
    "metrics": "Export the state of a running system for Prometheus.",
    "top": "Open the operations console.",
    "demo": "Run a checked demonstration with three nodes.",
    "record": "Record the state of a system to a file.",
    "check": "Check configurations and deployments.",
    "doctor": "Diagnose which readers and writers cannot become consistent.",
    "explain": "Explain a file or text, a rule, a health code or a setting.",
    "simulate": "Simulate a system with faults, by seed.",
    "report": "Write an incident report as one HTML file.",
    "cat": "Print the samples of a topic as JSON lines.",
    "sql": "Query a case with SQL or a named query.",
    "pipeline": "Load and judge a fleet by a plan, again and again.",
    "env": "Show environment variables and their origin.",
    "info": "Show versions, paths and effective settings.",
    "persistence": "Run and inspect redundant persistence services.",
    "trace": "Read, follow, merge, filter and explain traces and logs.",
    "store": "Open, verify and compare durability stores.",
    "history": "Wait for history, delete it, show its state.",
}
"""The verbs in the order of the help. `ospltool.cli.<verb>` has the function, or the `group` of commands."""
_FUNCTIONS: Final = {"env": "show_environment", "list": "list_nodes"}
"""Functions with another name than their verb."""

_HELP: Final = """A durability service for Eclipse Cyclone DDS with OpenSplice semantics, and its tools.

start, stop, status and list work like those of `ospl`. A URI is a file:// URI or a path; the default is
$OSPL_URI. Data goes to standard output, everything else to standard error. Every command that has a result
prints it as JSON with --json.
"""

_EPILOG: Final = (
    "Exit codes: 0 success, 1 findings or a recoverable failure, 2 wrong usage, configuration or input, "
    "3 no node reachable, 74 output not writable, 130 interrupted."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (see `ospltool.cli.exits`)."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    streams.prepare()
    return streams.finish(_run(given))


def _run(given: list[str]) -> int:
    try:
        build(given)(given or ["--help"], prog_name="ospltool")
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # Typer's own end, if nobody reads the help
            return streams.EXIT_PIPE_CLOSED
        return ended.code if isinstance(ended.code, int) else Exit.GOOD
    except CommandError as error:
        error.tell()
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
    streams.say(f"ospltool: {error.filename}: {error.strerror}")
    return Exit.USAGE


def _refused(error: Exception) -> int:
    """Say it if Cyclone DDS or the compiled library cannot be used; 0 for other errors."""
    from engine.dds.errors import UnsupportedCyclone
    from engine.native import NoLibrary

    if not isinstance(error, UnsupportedCyclone | NoLibrary):
        return 0
    streams.say(f"ospltool: {error}")
    return Exit.USAGE


def build(arguments: Sequence[str]) -> typer.Typer:
    """Build the application with the verb that the arguments name, or with all verbs if they name none.

    So a command does not pay for the imports of the others, and the list of all imports none.
    """
    app = typer.Typer(
        help=_HELP,
        epilog=_EPILOG,
        rich_markup_mode=None,  # the same bytes on a terminal and in a file, and 100 ms less
        pretty_exceptions_enable=False,
        context_settings=CONTEXT,
    )
    app.callback()(_global_options)
    first = next(iter(arguments), "")
    is_completing = "_OSPLTOOL_COMPLETE" in os.environ
    for verb, about in VERBS.items():
        if verb != first and first in VERBS and not is_completing:
            continue
        if first not in VERBS and not is_completing:
            app.command(verb, short_help=about)(_listed_only)
            continue
        module = importlib.import_module(f"ospltool.cli.{verb}")
        if hasattr(module, "group"):
            app.add_typer(module.group, name=verb, short_help=about)
        else:
            app.command(verb, short_help=about)(grouped(getattr(module, _FUNCTIONS.get(verb, verb))))
    return app


def _listed_only() -> None:
    pass


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
    streams.say(*traceback.format_exc().rstrip().splitlines(), advice)
    return Exit.FAULT


if __name__ == "__main__":
    sys.exit(main())
