"""The nodes that a command line names, with their configurations."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import engine.config
from engine.config import ConfigError, Configuration, load
from engine.config.fleet import load_fleet
from engine.config.reader import path_of_uri
from engine.supervisor.rundir import node_key
from engine.tracing.reports import ReportTargetError, targets_of
from ospltool.cli.exits import CommandError, Exit
from ospltool.output.locations import state_directory

if TYPE_CHECKING:
    from engine.supervisor.node_status import NodeStatus


@dataclasses.dataclass(frozen=True, slots=True)
class PlannedNode:
    """One node as it would be started.

    Attributes:
        uri: its configuration, a path or `file://` URI.
        name: its name in the fleet file; empty without one.
        role: replaces the role of the configuration; None leaves it.
        environ: the environment variables that it sees.
        configuration: the settings that follow from all of that.
        fleet: path of the fleet file; empty without one.
        directory: the base of relative paths in its configuration.
    """

    uri: str
    name: str
    role: str | None
    environ: Mapping[str, str]
    configuration: Configuration
    fleet: str = ""
    directory: pathlib.Path = dataclasses.field(default_factory=pathlib.Path.cwd)

    @property
    def path(self) -> str:
        """The path of the configuration, with links resolved."""
        return resolved(self.uri)

    @property
    def store(self) -> str:
        """The absolute store directory; empty without persistency."""
        persistent = self.configuration.persistent
        return "" if persistent is None else str(self.directory / persistent.store_directory)

    @property
    def logs(self) -> tuple[str, ...]:
        """The absolute paths of its logs and its trace; those that are streams have none."""
        with contextlib.suppress(ReportTargetError):  # the node names the variable, and does not start
            found = (*targets_of(self.environ), self.configuration.tracing.output_file or "stdout")
            return tuple(
                str(self.directory / one) for one in found if one.lower() not in ("stdout", "stderr")
            )
        return ()

    @property
    def key(self) -> str:
        """The name of the node's directory below the run directory."""
        return self._key(self.name)

    def is_started_as(self, status: NodeStatus) -> bool:
        """Tell whether a node that was started is this one, also from its own file or another fleet file."""
        record, own_name = status.record, self.configuration.domain.name
        if (record.configuration, record.domain_name, record.store) != (self.path, own_name, self.store):
            return False
        # Nodes of one fleet file can have all three in common, and differ in their names there only.
        key, alone, as_named = status.directory.path.name, self._key(""), self._key(own_name)
        if key == self.key or self.name in ("", own_name):
            return key in (self.key, alone, as_named) or bool(self.store)
        return key == alone and bool(self.store)

    def _key(self, name: str) -> str:
        return node_key(self.path, self.configuration.domain.name, f"{self.store}\0{name}")


def resolved(uri: str) -> str:
    """Return the path that a URI names, with links resolved."""
    return str(pathlib.Path(path_of_uri(uri)).resolve())


DEFAULT: Final = str(pathlib.Path(engine.config.__path__[0], "default.xml"))
"""The configuration of commands that name none: one name-space, all partitions (Deployment guide 5.2.2)."""


def default_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for a node of the default configuration, which has no directory of its own.

    It is named after this host, and its logs lie beside its store, wherever it is started.
    """
    logs = str(state_directory(environ))
    return {**environ, "HOSTNAME": socket.gethostname(), "OSPL_LOGPATH": environ.get("OSPL_LOGPATH") or logs}


def is_fleet(uri: str) -> bool:
    """Tell whether a URI names a fleet file."""
    return uri.endswith(".toml")


def is_uri(word: str) -> bool:
    """Return whether a word is a file, and no name: names of topics may have slashes."""
    return word.startswith("file://") or word.endswith((".toml", ".xml"))


def targets(
    uri: str | None, environ: Mapping[str, str], *, role: str | None = None, node: str | None = None
) -> list[PlannedNode]:
    """Return the nodes that a configuration or a fleet file describes.

    Args:
        uri: the file; None for the default configuration.
        environ: the variables of this process.
        role: replaces the role of every node.
        node: name of the only node to return, for fleet files.

    Raises:
        CommandError: the file cannot be read or is wrong; the message has every problem with its place.
    """
    where = uri or DEFAULT
    try:
        if is_fleet(where):
            return _fleet_targets(where, environ, role, node)
        if node is not None:
            raise CommandError("--node chooses a node of a fleet file (.toml)")
        if resolved(where) == resolved(DEFAULT):
            environ = default_environ(environ)
        return [PlannedNode(where, "", role, environ, load(where, environ, role=role))]
    except ConfigError as error:
        raise CommandError(error.problems, Exit.UNRECOVERABLE) from error


def one_target(
    uri: str | None, environ: Mapping[str, str], *, role: str | None = None, node: str | None = None
) -> PlannedNode:
    """Return the only node; for commands that take one (arguments as in `targets`).

    `uri`, `role` and `node` are as in `targets`.
    """
    found = targets(uri, environ, role=role, node=node)
    if len(found) != 1:
        names = ", ".join(target.name for target in found)
        raise CommandError(f"several nodes: choose one of them with --node: {names}")
    return found[0]


def configurations_of(deployment: str) -> dict[str, Configuration]:
    """Return the configuration of each node of a deployment, by name."""
    found = targets(deployment, os.environ)
    return {target.name or target.configuration.domain.name: target.configuration for target in found}


def _fleet_targets(
    uri: str, environ: Mapping[str, str], role: str | None, only: str | None
) -> list[PlannedNode]:
    fleet = load_fleet(uri)
    chosen = [node for node in fleet.nodes if only is None or node.name == only]
    if not chosen:
        names = ", ".join(node.name for node in fleet.nodes)
        raise CommandError(f"{uri} has no node {only!r}; it has {names}")
    made = []
    for node in chosen:
        wanted = role if role is not None else node.role
        configuration = node.configuration(environ, role)
        seen = node.environ(environ)
        made.append(PlannedNode(node.file, node.name, wanted, seen, configuration, resolved(uri)))
    return made
