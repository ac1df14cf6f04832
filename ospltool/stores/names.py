"""Names of files that identify a store."""

from __future__ import annotations

from typing import Final

META_FILE: Final = "snapshot.json"
SAMPLES_FILE: Final = "samples.parquet"
RANGES_FILE: Final = "ranges.parquet"

KV_FILE: Final = "kv.sqlite"
KVMT_FILE: Final = "kvmt.sqlite"
LEVELDB_DIRECTORY: Final = "kv.leveldb"
STORE_FILES: Final = (KV_FILE, KVMT_FILE, "store.sqlite")
PERSISTENCE_FILE: Final = "persistence.sqlite"
COMPLETE_SUFFIX: Final = "_complete"
"""Ends the name of the file by which an XML store says that a name-space is complete."""
