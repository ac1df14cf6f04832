"""Two nodes, each on a host of its own (a network namespace), with a link between them to cut."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.programs import Program
from tests.integration.hosts import lab_on
from tests.integration.network import Network

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.integration.configurations import Settings
    from tests.integration.lab import Lab

HOSTS: Final = {"n1": "a", "n2": "b"}
PATIENCE_S: Final = 60.0


@contextlib.contextmanager
def two_hosts(settings: Mapping[str, Settings]) -> Iterator[tuple[Lab, Network]]:
    """Two configured nodes, not started; both go at the end, with their network.

    Raises:
        NotPermitted: no network namespaces can be made here.
    """
    network = Network(tuple(HOSTS.values()))
    try:
        with tempfile.TemporaryDirectory(prefix="ospltool-bench-") as directory:
            lab = lab_on(Path(directory), network)
            lab.prefixes = {name: network.on(host) for name, host in HOSTS.items()}
            for name, each in settings.items():
                lab.configure(name, each)
            try:
                yield lab, network
            finally:
                lab.close()
    finally:
        network.close()


def write(lab: Lab, name: str, first: int, count: int, size: int) -> None:
    """Write `count` samples, numbered from `first`, of an instance each on the host of a node."""
    options = {"domain": lab.domain, "size": size, "first": first, "count": count, "instances": count}
    publisher = Program("publish", options, lab.environ, lab.prefixes[name])
    publisher.answer()
    publisher.end()
