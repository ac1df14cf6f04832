"""The instructions for a supervisor, which `ospltool start` makes from the configuration."""

from __future__ import annotations

import json
import os
import pathlib
import sys
from collections.abc import Mapping
from typing import Final

import msgspec

import engine
from engine.core.untrusted import JsonFault, json_reader
from engine.supervisor.policy import Action, SupervisionRules


class LaunchError(ValueError):
    """A text is not a launch."""


class Launch(msgspec.Struct, frozen=True):
    """One node to be started."""

    directory: str
    """The node's directory below the run directory."""
    command: tuple[str, ...]
    """The node's program and arguments."""
    working_directory: str
    """Its working directory, the base of relative paths of a configuration, as in OpenSplice."""
    uri: str
    """The configuration as given."""
    configuration: str
    """Its resolved path."""
    domain_name: str
    """Domain/Name."""
    domain_id: int
    """Domain/Id."""
    role: str
    """Domain/Role."""
    store: str
    """The store directory; empty without persistency."""
    expiry_s: float
    """Domain/Lease/ExpiryTime."""
    terminate_period_s: float
    """Domain/ServiceTerminatePeriod."""
    action: Action
    """FailureAction of the durability service."""
    fleet: str = ""
    """Path of the fleet file that it was started from; empty for none."""
    name: str = ""
    """Its name there."""
    logs: tuple[str, ...] = ()
    """Paths of its information log, its error log, and of its trace if it has one."""
    report_append: bool | None = None
    """Domain/Report append; None lets the environment decide."""
    report_verbosity: str | None = None
    """Domain/Report verbosity; None lets the environment decide."""

    @property
    def rules(self) -> SupervisionRules:
        """The settings for the supervisor's decisions."""
        return SupervisionRules(self.expiry_s, self.terminate_period_s, self.action)

    def to_json(self) -> str:
        """Return this launch as JSON."""
        return json.dumps(msgspec.to_builtins(self))

    @classmethod
    def from_json(cls, text: str) -> Launch:
        """Read the launch that `to_json` wrote.

        Raises:
            LaunchError: the text is something else.
        """
        try:
            launch: Launch = _read(text)
        except JsonFault as error:
            raise LaunchError(f"not a launch: {error}") from error
        return launch


_read: Final = json_reader(Launch)


def module_command(module: str, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs a module of ospltool with this interpreter.

    `-P` keeps the working directory out of the module path: a file `engine.py` of an application must not
    become the node.
    """
    return (sys.executable, "-P", "-m", module, *arguments)


def module_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for `module_command`: the given one, with our packages in PYTHONPATH."""
    root = str(pathlib.Path(engine.__path__[0]).parent)
    paths = [path for path in environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != root]
    return {**environ, "PYTHONPATH": os.pathsep.join([root, *paths])}
