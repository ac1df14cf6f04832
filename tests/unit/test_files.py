"""Files of services: a link that somebody planted leads to no other file, and nobody else reads them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.files import is_permanent, lock_file, open_private, replacing
from engine.node.disk import open_store
from engine.store.interface import StoreForbidden
from engine.store.store_directory import DATABASE, LEDGER, LOCK
from engine.supervisor.rundir import NodeDirectory, RunDirectoryError, write_json

SECRET = "dear diary"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of the same user, to which links are planted."""
    made = tmp_path / "victim"
    made.write_text(SECRET, encoding="utf-8")
    return made


def _opened(path: Path) -> None:
    os.close(open_private(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC))


def _locked(path: Path) -> None:
    os.close(lock_file(path))


def _replaced(path: Path) -> None:
    with replacing(path.with_name("whole"), f".{path.name}") as file:
        file.write(b"new")
    path.with_name("whole").rename(path)


def _told(path: Path) -> None:
    write_json(path, {"told": True})


@pytest.mark.parametrize(
    ("write", "is_refused"), [(_opened, True), (_locked, True), (_replaced, False), (_told, False)]
)
@pytest.mark.parametrize("is_there", [True, False])
def test_a_planted_link_is_not_followed(
    tmp_path: Path, victim: Path, write: Callable[[Path], None], is_refused: bool, is_there: bool
) -> None:
    if not is_there:
        victim.unlink()
    path = tmp_path / "file"
    for name in (path.name, f"whole.{path.name}", f"{path.name}.{os.getpid()}"):
        (tmp_path / name).symlink_to(victim)
    if is_refused:
        with pytest.raises(OSError, match="symbolic link") as found:
            write(path)
        assert is_permanent(found.value)
    else:
        write(path)
        assert not path.is_symlink()
        assert path.stat().st_mode & 0o777 == 0o600
    assert victim.exists() == is_there
    assert not is_there or victim.read_text(encoding="utf-8") == SECRET


def test_a_lock_is_that_of_the_file_whatever_its_name(tmp_path: Path) -> None:
    path, other = tmp_path / "lock", tmp_path / "other"
    held = lock_file(path)
    os.link(path, other)
    for name in (path, other):
        with pytest.raises(BlockingIOError):
            lock_file(name)
    path.unlink()
    os.close(lock_file(path))  # a new file of that name is another one
    os.close(held)
    os.close(lock_file(other))


@pytest.mark.parametrize("name", [DATABASE, LOCK, LEDGER])
def test_a_store_with_a_link_in_the_place_of_a_file_is_refused(
    tmp_path: Path, victim: Path, name: str
) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (store / name).symlink_to(victim)
    with pytest.raises(StoreForbidden, match="symbolic link"):
        open_store(store, "n1")
    assert victim.read_text(encoding="utf-8") == SECRET
    (store / name).unlink()
    open_store(store, "n1").close()
    assert {one.stat().st_mode & 0o777 for one in store.iterdir()} == {0o600}


def test_a_run_directory_with_a_link_in_the_place_of_its_lock_is_refused(
    tmp_path: Path, victim: Path
) -> None:
    directory = NodeDirectory(tmp_path / "node")
    directory.make()
    (directory.path / "lock").symlink_to(victim)
    with pytest.raises(RunDirectoryError, match="symbolic link"), directory.lock():
        pass
