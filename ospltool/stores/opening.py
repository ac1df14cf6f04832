"""The opening of stores of any format, and what tells a store from its copies.

The code for a format is imported only for a store of it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from engine.core.untrusted import words_of
from engine.store.store_directory import DATABASE
from ospltool.output.installation import extra_command
from ospltool.stores.model import (
    COMPLETE_SUFFIX,
    KV_FILE,
    KVMT_FILE,
    LEVELDB_DIRECTORY,
    META_FILE,
    PERSISTENCE_FILE,
    StoreFacts,
    StoreFormat,
    StoreNotSupported,
    StoreReader,
    StoreUnreadable,
)

_KNOWN: Final = (
    "a store of a node or persistence service, "
    "OpenSplice's kv.sqlite, kvmt.sqlite or XML store, or a snapshot"
)

_FILES: Final = (DATABASE, KV_FILE, KVMT_FILE, PERSISTENCE_FILE, META_FILE)


def is_store(path: Path) -> bool:
    """Tell whether a path is a store, even an unreadable one, or the file of a store."""
    if path.is_file():
        return path.name in _FILES
    return (
        any((path / name).is_file() for name in _FILES)
        or _is_xml(path)
        or (path / LEVELDB_DIRECTORY).is_dir()
    )


def stranger(path: Path) -> str:
    """Return what kind of store a place holds that is none of an ospltool node; empty if it holds none."""
    names = {path.name} if path.is_file() else {name for name in _FILES if (path / name).is_file()}
    if names & {KV_FILE, KVMT_FILE} or _is_xml(path) or (path / LEVELDB_DIRECTORY).is_dir():
        return "a store of OpenSplice"
    if PERSISTENCE_FILE in names:
        return "a store of a persistence service"
    return "a snapshot" if META_FILE in names else ""


def _is_xml(path: Path) -> bool:
    return any(path.glob(f"*{COMPLETE_SUFFIX}")) or any(path.glob("*/*_meta.xml"))


_OF_ONE_FILE: Final = frozenset({StoreFormat.KV, StoreFormat.KVMT, StoreFormat.PERSISTENCE})


def identity_of(facts: StoreFacts) -> str:
    """Return what tells a store from those of other nodes, as a part of a sentence; empty if nothing does.

    A store of an ospltool node has the node's id. The SQLite files of other stores depend on the order of all
    that was ever written. XML stores and snapshots of two nodes may be alike.

    Args:
        facts: the store's own description.

    Raises:
        OSError: a file cannot be read.
    """
    node = dict(facts.detail).get("node", "")
    if facts.format is StoreFormat.OURS and node:
        return f"the id of one node, {node}"
    path = Path(facts.path)
    if facts.format not in _OF_ONE_FILE or not path.is_file():
        return ""
    with path.open("rb") as file:
        return f"the same bytes, BLAKE2b {hashlib.file_digest(file, _digest).hexdigest()}"


def _digest() -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=8)


def open_reader(path: Path) -> StoreReader:
    """Open the store at a path: a directory, or the database file in it.

    Raises:
        StoreUnreadable: there is no store, or it cannot be read; the text says why.
    """
    if not path.exists():
        raise StoreUnreadable(f"{path}: no such file or directory")
    try:
        return _open(path)
    except StoreUnreadable:
        raise
    except OSError as error:
        raise StoreUnreadable(f"{error.filename or path}: {error.strerror}") from error
    except ModuleNotFoundError as error:
        raise StoreUnreadable(f"{path}: reading it needs {error.name}: `{extra_command('sql')}`") from error
    except Exception as error:  # of any class: a store may come from anybody
        raise StoreUnreadable(f"{path}: {words_of(error)}") from error


def _open(path: Path) -> StoreReader:
    from ospltool.stores.ours import OurStore, is_ours

    if is_ours(path):
        return OurStore(path)
    if path.is_file():
        if path.name in (KV_FILE, KVMT_FILE):
            return _open_kv(path)
        if path.name == PERSISTENCE_FILE:
            return _open_persistence(path)
        raise StoreUnreadable(
            f"{path}: not a store; {_KNOWN} is expected (`store info` also shows the state of a recording)"
        )
    for name in (KV_FILE, KVMT_FILE):
        if (path / name).is_file():
            return _open_kv(path / name)
    if (path / PERSISTENCE_FILE).is_file():
        return _open_persistence(path / PERSISTENCE_FILE)
    if (path / META_FILE).is_file():
        from ospltool.stores.snapshot import SnapshotStore

        return SnapshotStore(path)
    if _is_xml(path):
        from ospltool.stores.opensplice_stores import XmlStore

        return XmlStore(path)
    if (path / LEVELDB_DIRECTORY).is_dir():
        raise StoreNotSupported(
            f"{path}: a LevelDB store of OpenSplice; only its SQLite and XML stores are read"
        )
    raise StoreUnreadable(f"{path}: no store; {_KNOWN} is expected")


def _open_persistence(path: Path) -> StoreReader:
    from ospltool.stores.ours import PersistenceStore

    return PersistenceStore(path)


def _open_kv(path: Path) -> StoreReader:
    from ospltool.stores.opensplice_stores import KvStore

    return KvStore(path)
