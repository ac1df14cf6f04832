"""For all tests: DDS stays on the loopback interface, whatever a configuration under test says."""

from __future__ import annotations

import os
from pathlib import Path

_SETTINGS = Path(__file__).parent.parent / "samples" / "three-nodes" / "cyclonedds.xml"

os.environ.setdefault("CYCLONEDDS_URI", f"file://{_SETTINGS}")
