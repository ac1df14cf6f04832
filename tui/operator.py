"""Operations on nodes of this machine, in words and as commands, without any drawing."""

from __future__ import annotations

import dataclasses
import os
import shlex
import socket
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from engine.supervisor.node_status import ALIVE, NodeStatus, status_of
from engine.supervisor.rundir import RunDirectory, RunDirectoryError, location, node_key
from ospltool.live.nodes import Node

# As long as a start may take (`engine.supervisor.policy.START_GRACE_S`).
TIMEOUT_S: Final = 120.0
"""Time after which the console stops waiting for a command, which continues."""

ENVIRONMENT: Final = (
    "It gets the environment of this console, and its own directory; its environment may have been another."
)


class OperationError(Exception):
    """An operation that is impossible for a node; the text is for the user."""


@dataclasses.dataclass(frozen=True, slots=True)
class Operation:
    """A planned operation: `command` is what a person would type for it in `directory`."""

    title: str
    consequences: tuple[str, ...]
    command: tuple[str, ...]
    directory: str = ""

    @property
    def shell_line(self) -> str:
        """The command as a line that can be typed."""
        place = (("cd", self.directory),) if self.directory not in ("", str(Path.cwd())) else ()
        return " && ".join(map(shlex.join, (*place, self.command)))


def known_here() -> list[NodeStatus]:
    """Return the nodes that this user started on this machine, as `ospltool list` finds them.

    Raises:
        OperationError: the run directory cannot be read.
    """
    try:
        directories = RunDirectory(location(os.environ)).nodes()
    except RunDirectoryError as error:
        raise OperationError(str(error)) from error
    return [status for directory in directories if (status := status_of(directory)) is not None]


@dataclasses.dataclass(frozen=True, slots=True)
class Operator:
    """An executor of commands: `program` stands for the word `ospltool`."""

    program: tuple[str, ...]
    host: str = dataclasses.field(default_factory=socket.gethostname)
    known: Callable[[], list[NodeStatus]] = known_here

    def stop(self, node: Node, *, is_away: bool = False) -> Operation:
        """End a node in order; `is_away` says that it has ended, or is gone.

        Raises:
            OperationError: it was not started here, or several nodes answer to its names.
        """
        word = self._running(node, is_away=is_away)
        return Operation(
            title=f"Stop node {node.snapshot.name}?",
            consequences=(
                *_who(node),
                "It finishes what it does, writes what it holds to its store, and ends.",
            ),
            command=("ospltool", "stop", *_argument(word)),
        )

    def restart(self, node: Node, *, is_away: bool = False) -> Operation:
        """End a node in order and start it again; `is_away` as in `stop`.

        Raises:
            OperationError: as `stop`.
        """
        word = self._running(node, is_away=is_away)
        return Operation(
            title=f"Restart node {node.snapshot.name}?",
            consequences=(
                *_who(node),
                "It ends in order, is started again, and aligns with its fellows.",
                ENVIRONMENT,
            ),
            command=("ospltool", "restart", *_argument(word)),
        )

    def start(self, node: Node, *, is_away: bool = False) -> Operation:
        """Start a node that is gone; `is_away` as in `stop`.

        Raises:
            OperationError: it was not started here, or it is there.
        """
        self._require_here(node)
        snapshot = node.snapshot
        if not (node.gone_ns or is_away):
            raise OperationError(f"{snapshot.name} is running")
        last = self._newest(node)
        if last.condition in ALIVE:
            raise OperationError(f"{snapshot.name} has a supervisor: {last.sentence}")
        _require_own_file(last)
        return Operation(
            title=f"Start node {snapshot.name}?",
            consequences=(f"It last ran as pid {snapshot.pid} on {snapshot.host}.", ENVIRONMENT),
            command=("ospltool", "start", *_argument(last.record.configuration)),
            directory=last.record.working_directory,
        )

    def carry_out(self, operation: Operation) -> str:
        """Run the command and wait; return how it ended, and its last output."""
        try:
            ended = subprocess.run(
                [*self.program, *operation.command[1:]],
                cwd=operation.directory or None,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
                errors="replace",
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"failed: {shlex.join(operation.command)}: {error}"
        said = _last_line(ended.stderr or ended.stdout)
        return f"failed with exit code {ended.returncode}: {said}" if ended.returncode else f"done: {said}"

    def _running(self, node: Node, *, is_away: bool) -> str:
        """Return the word with which `ospltool stop` means exactly this running node."""
        self._require_here(node)
        snapshot = node.snapshot
        if is_away:
            raise OperationError(f"{snapshot.name} is not running")
        alive = [one for one in self.known() if one.condition in ALIVE]
        mine = [one.record for one in alive if one.record.node and one.record.node.pid == snapshot.pid]
        if not mine:
            raise OperationError(f"{snapshot.name} was not started by this user with `ospltool start`")
        record = mine[0]
        if sum(one.record.domain_name == record.domain_name for one in alive) == 1:
            return record.domain_name
        if sum(one.record.configuration == record.configuration for one in alive) == 1:
            return record.configuration
        raise OperationError(f"several nodes were started from {record.configuration}; use a shell")

    def _newest(self, node: Node) -> NodeStatus:
        """Return the node last started from the configuration of a node."""
        of_file = [one for one in self.known() if one.record.configuration == node.snapshot.configuration]
        if not of_file:
            raise OperationError(f"{node.snapshot.name} was not started by this user with `ospltool start`")
        return max(of_file, key=lambda one: one.record.changed_ns)

    def _require_here(self, node: Node) -> None:
        if node.snapshot.host != self.host:
            raise OperationError(f"{node.snapshot.name} is on {node.snapshot.host}, not on this machine")


def _who(node: Node) -> tuple[str, ...]:
    """Describe the node's part in the system."""
    snapshot = node.snapshot
    held = [space.name for space in snapshot.name_spaces if space.master == node.id]
    running = sum(len(space.alignments) for space in snapshot.name_spaces)
    said = [f"It is pid {snapshot.pid} on {snapshot.host}, in state {snapshot.state}."]
    said.append(
        f"It is master of {', '.join(held)}; the others elect another."
        if held
        else "It is master of nothing."
    )
    if running:
        said.append(f"It is being aligned ({running} under way); that begins again from the start.")
    return tuple(said)


def _require_own_file(status: NodeStatus) -> None:
    """Refuse a node of a fleet file, whose file alone would start another node.

    Raises:
        OperationError: the node is of a fleet file.
    """
    record = status.record
    if status.directory.path.name != node_key(record.configuration, record.domain_name, f"{record.store}\0"):
        raise OperationError(
            f"{record.domain_name} was started from a fleet file; use `ospltool start FLEET --node NAME`"
        )


def _argument(text: str) -> tuple[str, ...]:
    """Return the words that give a command an argument: a name from elsewhere must not be an option."""
    return ("--", text) if text.startswith("-") else (text,)


def _last_line(text: str) -> str:
    lines: Sequence[str] = text.strip().splitlines()
    return lines[-1].removeprefix("ospltool: ") if lines else "nothing said"
