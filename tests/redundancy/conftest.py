from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import own_domain
from tests.integration.lab import Lab
from tests.redundancy.replicas import Replicas


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    domain, tag = own_domain()
    made = Lab(tmp_path, domain, tag, watched=False)
    yield made
    made.close()


@pytest.fixture
def replicas(lab: Lab) -> Iterator[Replicas]:
    made = Replicas(lab)
    yield made
    made.close()
