from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from engine.dds.participant import NodeParticipant
from tests.integration.dds.processes import Arena

_counter = itertools.count()


def _worker() -> int:
    return int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


@pytest.fixture
def arena() -> Iterator[Arena]:
    number = next(_counter)
    domain = (_worker() * 57 + number) % 230
    made = Arena(domain, f"test-{os.getpid()}-{number}")
    yield made
    made.close()


@pytest.fixture
def participant(arena: Arena) -> Iterator[NodeParticipant]:
    """The node under test: a participant in this process."""
    with NodeParticipant(arena.domain, arena.uri, "under-test", b"n" * 16) as made:
        yield made
