"""The `ospltool` command."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from typing import TYPE_CHECKING, Final

import typer
from typer.main import get_command_name

from ospltool.cli.exits import CommandError, Exit
from ospltool.output import streams

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

VERBS: Final = (
    "start",
    "stop",
    "status",
    "list",
    "health",
    "metrics",
    "top",
    "demo",
    "record",
    "check",
    "doctor",
    "explain",
    "simulate",
    "persistence",
    "trace",
    "report",
    "store",
    "cat",
    "history",
    "sql",
    "env",
    "info",
)
"""The verbs in the order of the help. Each is `ospltool.cli.<verb>` with a function `register(app)`."""

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

    So a command does not pay for the imports of the others.
    """
    app = typer.Typer(
        help=_HELP,
        epilog=_EPILOG,
        rich_markup_mode=None,  # the same bytes on a terminal and in a file, and 100 ms less
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(_global_options)
    first = next(iter(arguments), "")
    is_completing = "_OSPLTOOL_COMPLETE" in os.environ
    is_listed = first not in VERBS and not is_completing
    for verb in VERBS if is_listed or is_completing else (first,):
        name = f"ospltool.cli.{verb}"
        if importlib.util.find_spec(name) is not None:
            importlib.import_module(name).register(app)
    if is_listed:
        _leave_out_parameters(app)
    return app


def _leave_out_parameters(app: typer.Typer) -> None:
    """Drop the parameters of all verbs: to list the verbs takes Typer twice as long with them."""

    def listed(description: str | None) -> Callable[[], None]:
        def verb() -> None: ...

        verb.__doc__ = description
        return verb

    for command in app.registered_commands:
        if command.callback is not None:
            command.name = command.name or get_command_name(command.callback.__name__)
            command.callback = listed(command.callback.__doc__)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            group.typer_instance.registered_commands = []


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
