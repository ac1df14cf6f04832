"""What a supervisor must be told to supervise a node; made by `ospltool start` from the configuration."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import sys
from typing import TYPE_CHECKING

import engine
from engine.core import plain
from engine.supervisor.policy import Action, Rules

if TYPE_CHECKING:
    from collections.abc import Mapping


class LaunchError(ValueError):
    """Text that describes no launch."""


@dataclasses.dataclass(frozen=True, slots=True)
class Launch:
    """One node to be started.

    Attributes:
        directory: the node's directory below the run directory.
        command: the node's program and arguments.
        working_directory: where it runs; relative paths of a configuration start here, as in OpenSplice.
        uri: the configuration as it was given; `configuration` its resolved path.
        domain_name, domain_id, role, store: what the configuration says.
        expiry_s: Domain/Lease/ExpiryTime.
        terminate_period_s: Domain/ServiceTerminatePeriod.
        action: FailureAction of the durability service.
        report_append, report_verbosity: Domain/Report; None where the environment decides.
    """

    directory: str
    command: tuple[str, ...]
    working_directory: str
    uri: str
    configuration: str
    domain_name: str
    domain_id: int
    role: str
    store: str
    expiry_s: float
    terminate_period_s: float
    action: Action
    report_append: bool | None = None
    report_verbosity: str | None = None

    @property
    def rules(self) -> Rules:
        """The settings that the supervisor decides by."""
        return Rules(self.expiry_s, self.terminate_period_s, self.action)

    def to_json(self) -> str:
        """This launch as JSON."""
        return json.dumps(plain.to_plain(self))

    @classmethod
    def from_json(cls, text: str) -> Launch:
        """The launch that `to_json` wrote.

        Raises:
            LaunchError: it is something else.
        """
        try:
            launch: Launch = plain.from_plain(cls, json.loads(text))
        except (plain.PlainFault, ValueError, RecursionError) as error:
            raise LaunchError(f"no launch: {error}") from error
        return launch


def module_command(module: str, *arguments: str) -> tuple[str, ...]:
    """The command that runs a module of ospltool with this interpreter.

    `-P` keeps the working directory out of the module path: a file `engine.py` in the directory of an
    application must not become the node.
    """
    return (sys.executable, "-P", "-m", module, *arguments)


def module_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for `module_command`: as given, with the place where our packages are."""
    root = str(pathlib.Path(engine.__path__[0]).parent)
    paths = [path for path in environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != root]
    return {**environ, "PYTHONPATH": os.pathsep.join([root, *paths])}
