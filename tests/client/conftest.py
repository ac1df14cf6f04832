from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ospltool.client import DurabilityClient
from tests.client.places import ClientLab
from tests.integration.conftest import own_domain


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[ClientLab]:
    domain, tag = own_domain()
    made = ClientLab(tmp_path, (domain + 100) % 230, f"clients-{tag}")
    yield made
    made.close()


@pytest.fixture
def connect(lab: ClientLab) -> Iterator[Callable[[], DurabilityClient]]:
    """Makes clients that are closed with the test."""
    clients: list[DurabilityClient] = []

    def make() -> DurabilityClient:
        clients.append(DurabilityClient(lab.domain, uri=lab.uri))
        return clients[-1]

    yield make
    for client in clients:
        client.close()
