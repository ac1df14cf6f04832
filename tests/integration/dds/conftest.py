from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from engine.dds.participant import NodeParticipant
from tests.integration.dds.processes import LEASE_S, Arena

_counter = itertools.count()


def _worker() -> int:
    return int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


@pytest.fixture
def arena(request: pytest.FixtureRequest) -> Iterator[Arena]:
    """An arena; its parameter is the lease of the participants in seconds."""
    number = next(_counter)
    domain = (_worker() * 57 + number) % 230
    made = Arena(domain, f"test-{os.getpid()}-{number}", getattr(request, "param", LEASE_S))
    yield made
    made.close()


@pytest.fixture
def participant(arena: Arena) -> Iterator[NodeParticipant]:
    """The node under test: a participant in this process."""
    with NodeParticipant(arena.domain, arena.uri, "under-test", b"n" * 16) as made:
        yield made
