"""The run directory, with the nodes of one user on this machine.

    $OSPLTOOL_RUNDIR, else $XDG_RUNTIME_DIR/ospltool, else /tmp/ospltool-<uid>
      <key of a node>/
        lock             held by the supervisor while it lives
        supervisor.json  the supervisor's report (`RunRecord`)
        state.json       the node's report
        supervisor.log   standard streams of the supervisor
        node.log         standard streams of the node; node.log.1 those of the run before

A user who can write here can make us signal processes, so the directory must belong to the user alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from engine.core.untrusted import JsonFault, json_reader
from engine.files import lock_file, replacing
from engine.supervisor.policy import FINAL, NodePhase
from engine.supervisor.process_identity import ProcessIdentity

# Chosen: `list` shows them, and a machine that starts many short nodes must not collect directories.
MAX_ENDED: Final = 64
"""Limit for remembered ended nodes; the oldest are forgotten first."""

_MAX_FILE_BYTES: Final = 1 << 20
"""A report is a few kilobytes; what is larger is something else."""
_KEY_LENGTH: Final = 16
"""Hexadecimal digits: 64 bits tell the nodes of a user apart, and fit on a line."""
# A quarter of a second in all; removing a directory of some files takes milliseconds.
_LOCK_ATTEMPTS: Final = 5
_LOCK_PAUSE_S: Final = 0.05
"""A process that removes the directory of an ended node holds the lock for a moment."""


class RunDirectoryError(OSError):
    """The run directory cannot be used; the message has reason and path."""


# 64 bits with a sign, as other programs read the report.
LAST_NS: Final = (1 << 63) - 1
"""Latest time in a report, in the year 2262."""


def present_ns() -> int:
    """Return the wall clock, for a report: a wrong clock says the nearest time that a report can have."""
    return min(max(time.time_ns(), 0), LAST_NS)


class RunRecord(msgspec.Struct, frozen=True):
    """A supervisor's report about its node and itself; times are nanoseconds since 1970 UTC."""

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
    terminate_period_s: float
    """Domain/ServiceTerminatePeriod."""
    phase: NodePhase
    """The node's phase."""
    reason: str
    """Reason for the phase; empty while the node runs and responds."""
    restarts: int
    """Number of restarts."""
    is_unresponsive: bool
    """Whether the lease has expired and the node was left alone (skip)."""
    started_ns: int
    """Start of the supervisor."""
    changed_ns: int
    """Last change of this report."""
    supervisor: ProcessIdentity
    """The supervisor's process."""
    node: ProcessIdentity | None = None
    """The node's process, or None."""
    exit_code: int = 0
    """Exit code of the supervisor, once the phase is final."""
    failure: str = ""
    """The node's last failure; empty for none."""
    failed_ns: int = 0
    """Time of that failure; 0 for none."""
    has_run: bool = True
    """Whether the node, at any of its starts, has got beyond INIT."""
    working_directory: str = ""
    """Directory in which the node was started, which relative paths in its configuration refer to."""
    fleet: str = ""
    """Path of the fleet file that it was started from; empty for none."""
    name: str = ""
    """Its name there."""
    logs: tuple[str, ...] = ()
    """Paths of its information log, its error log, and of its trace if it has one."""

    def __post_init__(self) -> None:
        """Refuse what is no time, as in a damaged file: it could not be shown."""
        for time_ns in (self.started_ns, self.changed_ns, self.failed_ns):
            if not 0 <= time_ns <= LAST_NS:
                raise ValueError(f"{time_ns} is no time")


_read_record: Final = json_reader(RunRecord)


def node_key(configuration: str, domain_name: str, store: str) -> str:
    """Return the name of a node's directory, which depends on configuration file, domain name and store."""
    joined = "\0".join((configuration, domain_name, store))
    return hashlib.sha256(joined.encode("utf-8", "surrogateescape")).hexdigest()[:_KEY_LENGTH]


def location(environ: Mapping[str, str]) -> pathlib.Path:
    """Return the path of the run directory by these environment variables."""
    if explicit := environ.get("OSPLTOOL_RUNDIR"):
        return pathlib.Path(explicit).absolute()
    if runtime := environ.get("XDG_RUNTIME_DIR"):
        return pathlib.Path(runtime).absolute() / "ospltool"
    return pathlib.Path(f"/tmp/ospltool-{os.geteuid()}")  # noqa: S108 - ownership and mode are checked on use


class RunDirectory:
    """The run directory of the user who runs this process.

    Raises:
        RunDirectoryError: it cannot be made, or does not belong to the user alone.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = path.lstat()
        except OSError as error:
            raise RunDirectoryError(f"{path}: {error.strerror}") from error
        if not stat.S_ISDIR(found.st_mode):
            raise RunDirectoryError(f"{path}: not a directory")
        if found.st_uid != os.geteuid():
            raise RunDirectoryError(f"{path}: belongs to user {found.st_uid}, not to {os.geteuid()}")
        if found.st_mode & 0o077:
            raise RunDirectoryError(f"{path}: others may enter it; chmod 700 it, or set OSPLTOOL_RUNDIR")

    def node(self, key: str) -> NodeDirectory:
        """Return the directory of a node, which need not exist."""
        return NodeDirectory(self.path / key)

    def nodes(self) -> list[NodeDirectory]:
        """Return the existing directories, in the order of their names."""
        return [NodeDirectory(path) for path in sorted(self.path.iterdir()) if path.is_dir()]

    def forget_old(self) -> int:
        """Remove the oldest of the ended nodes beyond `MAX_ENDED`; return their number."""
        ended: list[tuple[int, NodeDirectory]] = []
        for directory in self.nodes():
            record = directory.record()
            if record is not None and record.phase in FINAL:
                ended.append((record.changed_ns, directory))
        # Newest first: those beyond the limit, the oldest, are removed.
        ended.sort(key=lambda item: item[0], reverse=True)
        return sum(directory.forget() for _, directory in ended[MAX_ENDED:])


class NodeDirectory:
    """The directory of one node."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    @property
    def node_log(self) -> pathlib.Path:
        """Standard streams of the node."""
        return self.path / "node.log"

    @property
    def supervisor_log(self) -> pathlib.Path:
        """Standard streams of the supervisor."""
        return self.path / "supervisor.log"

    def make(self) -> None:
        """Make the directory if it does not exist.

        Raises:
            RunDirectoryError: it cannot be made.
        """
        try:
            self.path.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise RunDirectoryError(f"{self.path}: {error.strerror}") from error

    @contextlib.contextmanager
    def lock(self) -> Iterator[bool]:
        """Hold the lock that means "a supervisor lives here"; yield False if another one has it.

        Raises:
            RunDirectoryError: the lock file cannot be made.
        """
        descriptor = None
        for _ in range(_LOCK_ATTEMPTS):
            descriptor = self._locked()
            if descriptor is not None:
                break
            time.sleep(_LOCK_PAUSE_S)  # a process that forgets an ended node holds it for a moment
        try:
            yield descriptor is not None
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _locked(self) -> int | None:
        self.make()
        path = self.path / "lock"
        try:
            return lock_file(path)
        except (BlockingIOError, FileNotFoundError):
            return None  # taken by another, or the directory was removed in between
        except OSError as error:
            raise RunDirectoryError(f"{path}: {error.strerror}") from error

    def write_record(self, record: RunRecord) -> None:
        """Replace the supervisor's report atomically."""
        write_json(self.path / "supervisor.json", msgspec.to_builtins(record))

    def record(self) -> RunRecord | None:
        """Return the supervisor's last report; None without a readable one."""
        try:
            with (self.path / "supervisor.json").open("rb") as file:
                record: RunRecord = _read_record(file.read(_MAX_FILE_BYTES))
        # None yet, or one of another version: the caller treats both as a node of which nothing is known.
        except (OSError, JsonFault):
            return None
        return record

    def state(self) -> dict[str, Any]:
        """Return the node's last report; empty without a readable one."""
        found = read_json(self.path / "state.json")
        return found if isinstance(found, dict) else {}

    def clear_state(self) -> None:
        """Remove the report of an earlier run of the node."""
        (self.path / "state.json").unlink(missing_ok=True)

    def forget(self) -> bool:
        """Remove the directory; return False if a supervisor lives here."""
        # Its holder has a living node in this directory, or is about to start one.
        with self.lock() as is_ours:
            if is_ours:
                shutil.rmtree(self.path, ignore_errors=True)
            return is_ours


def write_json(path: pathlib.Path, value: object) -> None:
    """Replace a file by one line of JSON, so that a reader sees the old or the new one, never a mixture."""
    with replacing(path, f".{os.getpid()}") as file:
        file.write(json.dumps(value, separators=(",", ":")).encode() + b"\n")


def read_json(path: pathlib.Path) -> Any:
    """Return the value in a JSON file, None without a readable one."""
    try:
        with path.open("rb") as file:
            return json.loads(file.read(_MAX_FILE_BYTES))
    except (OSError, ValueError, RecursionError):  # absent, unreadable, or damaged
        return None
