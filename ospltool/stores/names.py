"""Names of files in a snapshot."""

from __future__ import annotations

from typing import Final

META_FILE: Final = "snapshot.json"
SAMPLES_FILE: Final = "samples.parquet"
