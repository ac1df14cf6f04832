"""What a store has that no store of another node has: two that share it are one store and a copy of it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from ospltool.stores.model import StoreFacts, StoreFormat

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
