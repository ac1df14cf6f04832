"""For all tests: DDS stays on the loopback interface, whatever a configuration under test says.

Properties are tried with new examples each time: fewer before each commit (`--hypothesis-profile quick`), and
many more with pytest tests/property --hypothesis-profile deep
No example has a time limit, and none is made too slowly: machines are busy with other tests.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import hypothesis
import pytest

from ospltool.output import envelope
from tests import json_documents
from tests.integration import forks
from tests.selection import mark_slow
from tests.trace.making import Traces

_SETTINGS = Path(__file__).parent.parent / "samples" / "three-nodes" / "cyclonedds.xml"

os.environ.setdefault("CYCLONEDDS_URI", f"file://{_SETTINGS}")
_QUIET = (hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large)
hypothesis.settings.register_profile("ours", max_examples=50, deadline=None, suppress_health_check=_QUIET)
hypothesis.settings.register_profile("quick", max_examples=15, deadline=None, suppress_health_check=_QUIET)
hypothesis.settings.register_profile("deep", max_examples=5_000, deadline=None, suppress_health_check=_QUIET)
hypothesis.settings.load_profile("ours")

forks.allow()
setattr(envelope, "_envelope", json_documents.compared(envelope._envelope))  # noqa: B010  # mypy refuses it

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a job in the background; programs inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that are not run before each commit."""
    mark_slow(items)


@pytest.fixture
def traces(tmp_path: Path) -> Traces:
    """An empty set of traces."""
    return Traces(tmp_path / "traces")
