"""The samples."""

from __future__ import annotations

import pathlib

import pytest

import engine

SAMPLES = pathlib.Path(engine.__path__[0]).parent / "samples"


@pytest.fixture(scope="session")
def samples() -> pathlib.Path:
    """What comes with the product."""
    return SAMPLES
