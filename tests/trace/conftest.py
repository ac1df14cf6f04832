"""Traces made for tests, and the samples."""

from __future__ import annotations

import pathlib

import pytest

import engine
from tests.trace.making import Traces

SAMPLES = pathlib.Path(engine.__path__[0]).parent / "samples" / "traces"


@pytest.fixture
def traces(tmp_path: pathlib.Path) -> Traces:
    """An empty set of traces."""
    return Traces(tmp_path / "traces")


@pytest.fixture(scope="session")
def samples() -> pathlib.Path:
    """The sample traces that come with the product: cut from real runs of OpenSplice."""
    return SAMPLES
