"""Where the nodes of one user on this machine are found: the run directory.

    $OSPLTOOL_RUNDIR, else $XDG_RUNTIME_DIR/ospltool, else /tmp/ospltool-<uid>
      <key of a node>/
        lock             held by the supervisor as long as it lives
        supervisor.json  what the supervisor says (`Record`)
        state.json       what the node says
        supervisor.log   standard streams of the supervisor
        node.log         standard streams of the node; node.log.1 those of the run before

Whoever can write here can have us signal processes, so the directory must be ours alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import stat
import time
from typing import TYPE_CHECKING, Any, Final

from engine.core import plain
from engine.supervisor.policy import FINAL, Phase
from engine.supervisor.processes import ProcessIdentity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_ENDED: Final = 64
"""How many ended nodes are remembered; the oldest are forgotten first."""

_MAX_FILE_BYTES: Final = 1 << 20
_KEY_LENGTH: Final = 16
_LOCK_ATTEMPTS: Final = 5
_LOCK_PAUSE_S: Final = 0.05


class RunDirectoryError(OSError):
    """The run directory cannot be used; the message says why and which path."""


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """What a supervisor says about its node and itself.

    Attributes:
        uri: the configuration as it was given.
        configuration: its resolved path.
        store: the store directory, empty without persistency.
        terminate_period_s: ServiceTerminatePeriod.
        phase, reason, restarts, is_unresponsive: see `engine.supervisor.policy.Watch`.
        started_ns: when the supervisor started, nanoseconds since 1970 UTC; `changed_ns`: the last change.
        supervisor, node: the processes; `node` is None while there is none.
        exit_code: of the supervisor, once the phase is final.
        failure, failed_ns: how the node failed last, and when in nanoseconds since 1970 UTC; 0 for never.
    """

    uri: str
    configuration: str
    domain_name: str
    domain_id: int
    role: str
    store: str
    terminate_period_s: float
    phase: Phase
    reason: str
    restarts: int
    is_unresponsive: bool
    started_ns: int
    changed_ns: int
    supervisor: ProcessIdentity
    node: ProcessIdentity | None = None
    exit_code: int = 0
    failure: str = ""
    failed_ns: int = 0


def node_key(configuration: str, domain_name: str, store: str) -> str:
    """The name of a node's directory: the same for the same configuration file, domain name and store."""
    joined = "\0".join((configuration, domain_name, store))
    return hashlib.sha256(joined.encode("utf-8", "surrogateescape")).hexdigest()[:_KEY_LENGTH]


def location(environ: Mapping[str, str]) -> pathlib.Path:
    """Where the run directory is by these environment variables."""
    if explicit := environ.get("OSPLTOOL_RUNDIR"):
        return pathlib.Path(explicit).absolute()
    if runtime := environ.get("XDG_RUNTIME_DIR"):
        return pathlib.Path(runtime).absolute() / "ospltool"
    return pathlib.Path(f"/tmp/ospltool-{os.geteuid()}")  # noqa: S108 - ownership and mode are checked on use


class RunDirectory:
    """The run directory of the user who runs this process.

    Raises:
        RunDirectoryError: it cannot be made, or is not ours alone.
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
        """The directory of a node, which need not exist."""
        return NodeDirectory(self.path / key)

    def nodes(self) -> list[NodeDirectory]:
        """The directories that are there, in the order of their names."""
        return [NodeDirectory(path) for path in sorted(self.path.iterdir()) if path.is_dir()]

    def forget_old(self) -> int:
        """Remove the oldest of the ended nodes beyond `MAX_ENDED`; returns how many were removed."""
        ended: list[tuple[int, NodeDirectory]] = []
        for directory in self.nodes():
            record = directory.record()
            if record is not None and record.phase in FINAL:
                ended.append((record.changed_ns, directory))
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
        """Make the directory if it is not there.

        Raises:
            RunDirectoryError: it cannot be made.
        """
        try:
            self.path.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise RunDirectoryError(f"{self.path}: {error.strerror}") from error

    @contextlib.contextmanager
    def lock(self) -> Iterator[bool]:
        """Hold the lock that says "a supervisor lives here"; yields False when another one has it.

        Raises:
            RunDirectoryError: the lock file cannot be made.
        """
        descriptor = None
        for _ in range(_LOCK_ATTEMPTS):
            descriptor = self._locked()
            if descriptor is not None:
                break
            time.sleep(_LOCK_PAUSE_S)  # who forgets an ended node holds it for a moment
        try:
            yield descriptor is not None
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _locked(self) -> int | None:
        self.make()
        path = self.path / "lock"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            return None  # the directory was removed in between
        except OSError as error:
            raise RunDirectoryError(f"{path}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.stat().st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        except OSError:  # taken by another, or removed in between
            pass
        os.close(descriptor)
        return None

    def write_record(self, record: Record) -> None:
        """Replace what the supervisor says, in one step."""
        write_json(self.path / "supervisor.json", plain.to_plain(record))

    def record(self) -> Record | None:
        """What the supervisor said last; None when it said nothing that can be read."""
        try:
            record: Record = plain.from_plain(Record, read_json(self.path / "supervisor.json"))
        except plain.PlainFault:
            return None
        return record

    def state(self) -> dict[str, Any]:
        """What the node said last, empty when it said nothing that can be read."""
        found = read_json(self.path / "state.json")
        return found if isinstance(found, dict) else {}

    def clear_state(self) -> None:
        """Forget what an earlier run of the node said."""
        (self.path / "state.json").unlink(missing_ok=True)

    def forget(self) -> bool:
        """Remove everything; False when a supervisor lives here."""
        with self.lock() as is_ours:
            if is_ours:
                shutil.rmtree(self.path, ignore_errors=True)
            return is_ours


def write_json(path: pathlib.Path, value: object) -> None:
    """Replace a file by one line of JSON, so that a reader sees the old or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(value, separators=(",", ":")) + "\n", encoding="utf-8")
    temporary.replace(path)


def read_json(path: pathlib.Path) -> Any:
    """The value in one of our files, None when there is none that can be read."""
    try:
        with path.open("rb") as file:
            return json.loads(file.read(_MAX_FILE_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
