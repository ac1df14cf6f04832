"""Where files and cases lie: paths of this machine, URIs of other file systems, and a user's state.

Paths and URIs have the interface of `pathlib`, so nothing else knows of the difference but what another file
system lacks: locks, links, permissions, and the move of a file.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import pathlib
import re
import shutil
import types
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any, Final, cast

from ospltool.output.installation import extra_command

if TYPE_CHECKING:
    import fsspec  # type: ignore[import-untyped]  # it has no types

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/{1,2}")
"""The beginning of a URI. `pathlib` makes one slash of two. No drive has a name of two letters."""

_S3: Final = ("s3", "s3a")


class LocationError(Exception):
    """A location that nothing can open; the message names it and says why."""


class RemoteError(OSError, LocationError):
    """Another file system does not answer, or refuses."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


def scheme_of(name: str) -> str:
    """Return the scheme of a URI in lower case; empty for a path."""
    found = _SCHEME.match(name)
    return found[1].lower() if found else ""


def located(name: str) -> pathlib.Path:
    """Return where a path or URI leads; for another file system, something with the interface of a path.

    Raises:
        LocationError: nothing can open the URI.
    """
    scheme = scheme_of(name)
    if not scheme or pathlib.Path(name).exists():
        return pathlib.Path(name)
    parts = urllib.parse.urlsplit(name)
    if scheme != "file":
        return cast("pathlib.Path", _remote(name, scheme))
    if parts.netloc not in {"", "localhost"}:
        raise LocationError(f"{name}: file:// names a file of this machine, so three slashes follow it")
    return pathlib.Path(urllib.parse.unquote(parts.path))


def is_remote(path: pathlib.Path) -> bool:
    """Return whether a path leads to another file system."""
    return isinstance(cast("pathlib.PurePath", path), RemotePath)


def _remote(name: str, scheme: str) -> RemotePath:
    path = RemotePath(name)
    try:
        path.place  # noqa: B018 - opens the file system
    except ModuleNotFoundError as cause:
        if cause.name == "fsspec":
            raise LocationError(f"{name}: this needs fsspec: {extra_command('remote')}") from None
        raise LocationError(f"{name}: this needs {cause.name}") from None
    except (ImportError, OSError, TypeError, ValueError) as cause:
        reason = str(cause).partition("\n")[0]
        raise LocationError(f"{name}: nothing here can open {scheme}:// ({reason})") from None
    return path


class RemotePath(pathlib.PurePosixPath):
    """A file or directory of another file system, by its URI.

    Its errors are as those of `pathlib`: RemoteError, and FileNotFoundError where there is nothing.
    """

    __slots__ = ()

    def __str__(self) -> str:
        scheme, slash, rest = super().__str__().partition(":/")
        return f"{scheme}{slash}/{rest}" if slash else scheme

    @property
    def place(self) -> tuple[fsspec.AbstractFileSystem, str]:
        """The file system, and the path in it."""
        return _opened(str(self))

    def as_uri(self) -> str:
        """Return the URI, as other programs read it."""
        scheme, _, rest = str(self).partition("://")
        return f"{scheme}://{urllib.parse.quote(rest, safe='/:@')}"

    def absolute(self) -> RemotePath:
        """Return the path itself."""
        return self

    def is_symlink(self) -> bool:
        """Return that it is no link."""
        return False

    def exists(self) -> bool:
        """Return whether there is something."""
        return self._kind() != ""

    def is_dir(self) -> bool:
        """Return whether it is a directory; of an object store, whether anything lies below it."""
        return self._kind() == "directory"

    def is_file(self) -> bool:
        """Return whether it is a file."""
        return self._kind() == "file"

    @contextlib.contextmanager
    def _asked(self) -> Iterator[tuple[fsspec.AbstractFileSystem, str]]:
        """Give the file system and the path in it; turn its errors into those of `pathlib`."""
        try:
            yield self.place
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self)) from None
        except (OSError, RuntimeError, ValueError) as cause:
            raise RemoteError(getattr(cause, "errno", None) or errno.EIO, _reason(cause), str(self)) from None

    def _kind(self) -> str:
        try:
            with self._asked() as (system, inner):
                return str(system.info(inner)["type"])
        except FileNotFoundError:
            return ""

    def stat(self) -> Any:
        """Return the size and, where it is known, the time of the last change."""
        with self._asked() as (system, inner):
            info = system.info(inner)
        changed = info.get("modificationTime") or info.get("mtime") or info.get("LastModified")
        return types.SimpleNamespace(st_size=int(info["size"] or 0), st_mtime_ns=str(changed), st_ino=0)

    def iterdir(self) -> Iterator[RemotePath]:
        """Yield what lies in the directory."""
        with self._asked() as (system, inner):
            system.invalidate_cache()
            found = system.ls(inner, detail=False)
        for one in found:
            yield self / str(one).rstrip("/").rpartition("/")[2]

    def rglob(self, pattern: str) -> Iterator[RemotePath]:
        """Yield the files below the directory whose name matches, with few requests."""
        with self._asked() as (system, inner):
            system.invalidate_cache()
            found = system.find(inner)
        for one in found:
            path = self / str(one)[len(inner) :].lstrip("/")
            if path.match(pattern):
                yield path

    def open(self, mode: str = "rb", buffering: int = -1) -> IO[bytes]:
        """Open the file, for bytes."""
        del buffering
        with self._asked() as (system, inner):
            return cast("IO[bytes]", system.open(inner, mode))

    def read_text(self, encoding: str = "utf-8") -> str:
        """Return the text of the file."""
        with self._asked() as (system, inner):
            return str(system.cat_file(inner), encoding)

    def write_text(self, text: str, encoding: str = "utf-8") -> None:
        """Write the file."""
        self.write_bytes(text.encode(encoding))

    def write_bytes(self, data: bytes) -> None:
        """Write the file."""
        with self._asked() as (system, inner):
            system.pipe_file(inner, data)

    def mkdir(self, mode: int = 0o777, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Make the directory, where the file system has any.

        The permissions `mode`, and `parents` and `exist_ok`, are for paths of this machine.
        """
        del mode, parents, exist_ok
        with self._asked() as (system, inner):
            system.makedirs(inner, exist_ok=True)

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Remove the file."""
        try:
            with self._asked() as (system, inner):
                system.rm_file(inner)
        except FileNotFoundError:
            if not missing_ok:
                raise


def _reason(cause: BaseException) -> str:
    """Return why something failed: as the system says it, if libraries pass that on inside their errors."""
    inner: BaseException | None = cause
    while inner is not None:
        if isinstance(inner, OSError) and inner.strerror:
            return inner.strerror
        inner = inner.__cause__ or next((one for one in inner.args if isinstance(one, BaseException)), None)
    return str(cause).partition("\n")[0]


def remove_tree(path: pathlib.Path) -> None:
    """Remove a directory with all that lies in it; what cannot be removed stays."""
    inner, system = of_arrow(path)
    if system is None:
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            system.rm(inner, recursive=True)


@functools.lru_cache(maxsize=1 << 12)
def _opened(uri: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """Return the file system of a URI, and the path in it."""
    import fsspec.core  # type: ignore[import-untyped]  # it has no types

    if scheme_of(uri) not in _S3:
        system, inner = fsspec.core.url_to_fs(uri)
        return system, inner
    import pyarrow.fs  # has S3 itself, in its wheel
    from fsspec.implementations.arrow import ArrowFSWrapper  # type: ignore[import-untyped]  # likewise

    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    store = pyarrow.fs.S3FileSystem(endpoint_override=endpoint)
    return ArrowFSWrapper(store), uri.partition("://")[2]


def of_arrow(path: pathlib.Path) -> tuple[Any, Any]:
    """Return a path, and the file system, as Arrow takes them."""
    one = cast("pathlib.PurePath", path)
    return one.place[::-1] if isinstance(one, RemotePath) else (one, None)


def state_directory(environ: Mapping[str, str]) -> pathlib.Path:
    """Return the directory of this user's state, below $XDG_STATE_HOME or ~/.local/state."""
    state = environ.get("XDG_STATE_HOME")
    return (pathlib.Path(state) if state else pathlib.Path.home() / ".local" / "state") / "ospltool"
