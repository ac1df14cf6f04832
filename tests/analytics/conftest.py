"""Cases made of the sample traces."""

from __future__ import annotations

import pathlib

import pytest

import engine

SAMPLES = pathlib.Path(engine.__path__[0]).parent / "samples" / "traces"


@pytest.fixture(scope="session")
def samples() -> pathlib.Path:
    """The sample traces that come with the product."""
    return SAMPLES


@pytest.fixture(scope="session")
def case(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A case of both sample traces of OpenSplice, loaded on this machine."""
    pytest.importorskip("pyarrow", reason="cases need the extra `sql`")
    from ospltool.trace.case.loading import load
    from ospltool.trace.reading.sources import find_sources

    target = tmp_path_factory.mktemp("case") / "both"
    load(find_sources([str(SAMPLES / "late-joiner"), str(SAMPLES / "master-livelock")]).sources, target)
    return target
