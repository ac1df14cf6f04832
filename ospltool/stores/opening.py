"""Opening a store, whichever it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ospltool.stores.model import StoreUnreadable
from ospltool.stores.names import META_FILE
from ospltool.stores.opensplice_kv import KV_FILE, KVMT_FILE, KvStore
from ospltool.stores.opensplice_xml import COMPLETE_SUFFIX, XmlStore
from ospltool.stores.ours import OurStore, is_ours

if TYPE_CHECKING:
    from ospltool.stores.model import StoreReader

_KNOWN = "a store of a node, OpenSplice's kv.sqlite, kvmt.sqlite or XML store, or a snapshot"


def open_reader(path: Path) -> StoreReader:
    """Open the store at a path: a directory, or the database file in it.

    Raises:
        StoreUnreadable: there is none, or it can not be read; the text says why.
    """
    if not path.exists():
        raise StoreUnreadable(f"{path}: there is nothing")
    try:
        return _open(path)
    except OSError as error:
        raise StoreUnreadable(f"{error.filename or path}: {error.strerror}") from error


def _open(path: Path) -> StoreReader:
    if is_ours(path):
        return OurStore(path)
    if path.is_file():
        if path.name in (KV_FILE, KVMT_FILE):
            return KvStore(path)
        raise StoreUnreadable(f"{path}: not a store; {_KNOWN} is expected")
    for name in (KV_FILE, KVMT_FILE):
        if (path / name).is_file():
            return KvStore(path / name)
    if (path / META_FILE).is_file():
        return _open_snapshot(path)
    if any(path.glob(f"*{COMPLETE_SUFFIX}")) or any(path.glob("*/*_meta.xml")):
        return XmlStore(path)
    if (path / "kv.leveldb").is_dir():
        raise StoreUnreadable(
            f"{path}: a LevelDB store of OpenSplice; only its SQLite and XML stores are read"
        )
    raise StoreUnreadable(f"{path}: no store; {_KNOWN} is expected")


def _open_snapshot(path: Path) -> StoreReader:
    try:
        from ospltool.stores.snapshot import SnapshotStore  # it needs pyarrow, which other stores do not
    except ModuleNotFoundError as error:
        raise StoreUnreadable(
            f"{path}: a snapshot needs {error.name}: pip install 'ospltool[sql]'"
        ) from error
    return SnapshotStore(path)
