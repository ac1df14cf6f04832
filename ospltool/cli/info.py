"""`ospltool info`: versions, platform, paths, and the effective settings of a configuration."""

from __future__ import annotations

import os
import platform
import re
import socket
import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

import engine
from engine.supervisor.rundir import location
from engine.tracing.version import product_version
from ospltool.cli.options import AsJson, uri_argument
from ospltool.output import envelope, streams
from ospltool.output.text import table, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ospltool.output.documents import ConfigurationInfo

_REQUIREMENT: Final = re.compile(r"[A-Za-z0-9._-]+")


def info(
    uri: Annotated[
        str | None,
        uri_argument("Show the effective settings of this configuration (default: that of `start`)."),
    ] = None,
    role: Annotated[str | None, typer.Option(help="Override the role, as in `start`.")] = None,
    node: Annotated[str | None, typer.Option(help="Choose this node of a fleet file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show versions, platform and paths, and the effective settings of a configuration with their origins.

    Exit codes: 0 success, 2 wrong configuration.
    """
    data: dict[str, object] = {
        "versions": dict(_versions()),
        "platform": dict(_platform()),
        "paths": dict(_paths(os.environ)),
        "configuration": _configuration(uri, role, node),
    }
    if as_json:
        streams.put(envelope.document("info", data))
    else:
        streams.put("".join(_lines(data)))


def _versions() -> Iterator[tuple[str, str | None]]:
    import importlib.metadata

    yield "ospltool", product_version()
    yield "python", platform.python_version()
    for package in _requirements():
        try:
            yield package, importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            yield package, None


def _requirements() -> list[str]:
    """Return the packages that ospltool can use, from its own metadata."""
    import importlib.metadata

    try:
        lines = importlib.metadata.requires("ospltool") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    names = {found[0] for line in lines if (found := _REQUIREMENT.match(line))}
    return sorted(names - {"ospltool"})


def _platform() -> Iterator[tuple[str, object]]:
    yield "system", f"{platform.system()} {platform.release()}"
    yield "machine", platform.machine()
    yield "host", socket.gethostname()
    yield "processors", os.cpu_count()


def _paths(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    yield "python", sys.executable
    yield "packages", str(next(iter(engine.__path__)))
    yield "run_directory", str(location(environ))


def _configuration(uri: str | None, role: str | None, node: str | None) -> ConfigurationInfo:
    from ospltool.cli.targets import one_target

    target = one_target(uri, os.environ, role=role, node=node)
    configuration = target.configuration
    return {
        "path": target.path,
        "domain_name": configuration.domain.name,
        "domain_id": configuration.domain.id,
        "role": configuration.domain.role,
        "store": target.store or None,
        "trace_file": configuration.tracing.output_file,
        "name_spaces": [space.name for space in configuration.name_spaces.name_spaces],
        "settings": [
            {
                "path": setting.path,
                "value": setting.value,
                "origin": str(setting.origin),
                "ignored": setting.ignored or None,
            }
            for setting in configuration.settings
        ],
    }


def _lines(data: Mapping[str, object]) -> Iterator[str]:
    for section, values in data.items():
        assert isinstance(values, dict)
        yield f"{section}\n"
        settings = values.pop("settings", None)
        for name, value in values.items():
            shown = ", ".join(value) if isinstance(value, list) else "-" if value is None else str(value)
            yield f"  {name:<14} {visible(shown)}\n"
        if settings is not None:
            yield "settings\n"
            rows = [(f"  {each['path']}", each["value"], _origin(each)) for each in settings]
            yield table(("  PATH", "VALUE", "ORIGIN"), rows)


def _origin(setting: Mapping[str, object]) -> str:
    """Return the origin of a setting, and why it has no effect if it has none."""
    ignored = setting["ignored"]
    return f"{setting['origin']}, no effect: {ignored}" if ignored else str(setting["origin"])
