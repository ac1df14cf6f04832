"""Opening a store of either kind."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

from engine.store.interface import Store
from engine.store.memory import Medium, MemoryStore
from engine.store.sqlite import SqliteStore


def random_node_id() -> str:
    """Return 128 random bits as 32 hexadecimal characters."""
    return secrets.token_hex(16)


def open_store(path: Path | None, node: str, new_node_id: Callable[[], str] = random_node_id) -> Store:
    """Open the store in a directory, or one in memory that ends with the process.

    Args:
        path: the store directory, made if it does not exist; None for memory.
        node: the node's name, shown to another process that finds the store in use.
        new_node_id: makes a node id at the first start.

    Raises:
        StoreError: see `engine.store.sqlite.SqliteStore`.
    """
    if path is None:
        return MemoryStore(Medium(new_node_id()))
    return SqliteStore(path, node, new_node_id)
