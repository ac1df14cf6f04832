"""`ospltool env`: the environment variables that matter, their values and origins."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Annotated, Final

import typer

from engine.supervisor.rundir import location
from engine.tracing import reports
from engine.tracing.sinks import Rotation
from ospltool.cli.exits import CommandError, Exit
from ospltool.cli.options import AsJson, uri_argument
from ospltool.output import envelope, streams

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ospltool.output.documents import Variable

KNOWN: Final = {
    "OSPL_URI": ("", "configuration of commands that name none"),
    "OSPL_HOME": ("", "used only by configurations that refer to it"),
    "OSPL_LOGPATH": (".", "directory of ospl-info.log and ospl-error.log, or <stdout>, <stderr>"),
    "OSPL_INFOFILE": ("ospl-info.log", "name of the information log"),
    "OSPL_ERRORFILE": ("ospl-error.log", "name of the error log"),
    "OSPL_VERBOSITY": ("INFO", "lowest type of report; Domain/Report overrides it"),
    "OSPL_LOGAPPEND": ("true", "whether logs of earlier runs are kept; Domain/Report overrides it"),
    "CYCLONEDDS_URI": ("", "Cyclone DDS settings (default: derived from the DDSI2 part)"),
    "OSPLTOOL_DOMAIN": ("0", "DDS domain of commands that name no configuration"),
    "OSPLTOOL_RUNDIR": ("", "directory in which nodes register"),
    "OSPLTOOL_DDSC": ("", "library of Cyclone DDS (default: the one of the package cyclonedds)"),
    "OSPLTOOL_TRACE_ROTATION": (
        "",
        "SIZE[:FILES], such as 64M:5: replace trace files at that size, keep FILES (default 1, 0 for none)",
    ),
    "XDG_RUNTIME_DIR": ("", "the run directory is ospltool/ below it"),
    "XDG_STATE_HOME": ("", "mutes, and the store and logs of `start` without a configuration, are below it"),
    "NO_COLOR": ("", "no colour on terminals"),
}
"""Variables that ospltool and its nodes read: default value and meaning."""


def show_environment(
    uri: Annotated[
        str | None,
        uri_argument("Include the variables that this configuration refers to."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the environment variables that matter, with their effective values and origins.

    With a configuration, also show each variable that it refers to, as in ${VAR:-default}, and the place.

    Exit codes: 0 success, 1 a node would refuse a value, 2 unreadable configuration.
    """
    rows = [*_own(os.environ), *(_referred(uri, os.environ) if uri else ())]
    if as_json:
        streams.put(envelope.document("env", rows))
    else:
        header = ("VARIABLE", "VALUE", "ORIGIN", "MEANING")
        names = ("variable", "value", "origin", "meaning")
        streams.put_table(header, [[row[name] for name in names] for row in rows])
    refused = [row["refused"] for row in rows if row["refused"]]
    for message in refused:
        streams.notify(f"ospltool: a node would refuse to start: {message}")
    if refused:
        raise typer.Exit(Exit.FINDINGS)


def _own(environ: Mapping[str, str]) -> Iterator[Variable]:
    for variable, (default, meaning) in KNOWN.items():
        value = environ.get(variable, "")
        effective, origin = (
            (value, "environment") if value else (default, "default" if default else "not set")
        )
        if variable == "OSPLTOOL_RUNDIR" and not value:
            base = "XDG_RUNTIME_DIR" if environ.get("XDG_RUNTIME_DIR") else "default"
            effective, origin = str(location(environ)), base
        refused = _refusal(variable, environ) if value else ""
        yield {
            "variable": variable,
            "value": effective,
            "origin": f"{origin}, refused" if refused else origin,
            "meaning": meaning,
            "refused": refused,
        }


def _refusal(variable: str, environ: Mapping[str, str]) -> str:
    """Return why a node does not start with the value of a variable; empty if it does."""
    from engine.dds.trial import is_relative

    try:
        match variable:
            case "OSPL_VERBOSITY":
                reports.verbosity_of(environ)
            case "OSPL_LOGAPPEND":
                reports.appends(environ)
            case "OSPL_INFOFILE" | "OSPL_ERRORFILE":
                reports.targets_of(environ)
            case "OSPLTOOL_DDSC" if is_relative(environ[variable]):
                return f"OSPLTOOL_DDSC names {environ[variable]}; write the whole path, which begins with /"
            case "OSPLTOOL_DDSC" if environ[variable]:
                ctypes.CDLL(environ[variable])
            case "OSPLTOOL_TRACE_ROTATION":
                Rotation.parse(environ[variable])
    except (ValueError, OSError) as error:
        return str(error) if variable in str(error) else f"{variable}: {error}"
    return ""


def _referred(uri: str, environ: Mapping[str, str]) -> Iterator[Variable]:
    """Yield a row for each place of the configuration that refers to a variable."""
    from engine.config import ConfigError, read_document
    from engine.config.problems import ProblemKind
    from engine.config.schema import engine_schema
    from engine.config.validate import schema_problems

    try:
        document = read_document(uri, environ)
        strange = next(schema_problems(document, engine_schema()), None)
        if strange is not None and strange.kind is ProblemKind.ROOT and document.root.name != "CycloneDDS":
            raise ConfigError([strange])
    except ConfigError as error:
        raise CommandError(error.problems) from error
    for value in document.values():
        place = f"{document.path}:{value.position.line}:{value.position.column}"
        for use in value.uses:
            is_used = use.name in environ if use.operator == "" else bool(environ.get(use.name))
            yield {
                "variable": use.name,
                "value": environ.get(use.name, "") if is_used else value.text,
                "origin": "environment" if is_used else f"{place}, {value.raw}",
                "meaning": f"{value.path} = {value.text}",
                "refused": "",
            }
