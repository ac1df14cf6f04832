"""The samples."""

from __future__ import annotations

import pathlib

import pytest

import engine

SAMPLES = pathlib.Path(engine.__path__[0]).parent / "samples" / "traces"


@pytest.fixture(scope="session")
def samples() -> pathlib.Path:
    """The sample traces that come with the product: cut from real runs of OpenSplice."""
    return SAMPLES
