from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.dds.uri import cyclone_uri
from tests.integration.lab import LEASE_S, Lab

_counter = itertools.count()


def own_domain() -> tuple[int, str]:
    """A domain and a tag that no other test uses at the same time.

    The tag alone keeps tests apart; different domains have different ports, so that many processes at once
    do not look for a free port among the same few. The capture tests count up from another place.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    number = next(_counter)
    return (30 + worker * 57 + number) % 230, f"nodes-{os.getpid()}-{number}"


def topic_discovery(tag: str, *, discovers: bool = True) -> str:
    """Settings of Cyclone DDS with which participants tell each other of their topics, or do not."""
    uri = cyclone_uri(tag=tag, lease_s=LEASE_S, spdp_interval_ms=200, environment={})
    setting = f"<EnableTopicDiscoveryEndpoints>{str(discovers).lower()}</EnableTopicDiscoveryEndpoints>"
    return uri.replace("<Discovery>", f"<Discovery>{setting}")


@pytest.fixture
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    """A lab on loopback; its parameter is General/AllowMulticast.

    Without one, OSPLTOOL_TEST_MULTICAST says it for all tests: `true`, or `false` (the default).
    """
    domain, tag = own_domain()
    multicast = getattr(request, "param", os.environ.get("OSPLTOOL_TEST_MULTICAST", "false"))
    uri = cyclone_uri(
        tag=tag,
        multicast=multicast,
        peers=("localhost",) if multicast == "false" else (),
        lease_s=LEASE_S,
        spdp_interval_ms=200,
        environment={},
    )
    made = Lab(tmp_path, domain, tag, uri)
    yield made
    made.close()
