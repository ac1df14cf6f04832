"""Other processes for a test, and a domain that no other test run shares."""

from __future__ import annotations

import os
import queue
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from engine.dds.uri import cyclone_uri
from tests.integration.programs import Program
from tests.machine import peak_bytes

PATIENCE_S = 90.0
"""A machine that is busy with other tests takes this long now and then."""
LEASE_S = 1.0
"""Short, so that what was killed is soon found to be gone."""


class Peer(Program):
    """A child process in a role of `peer.py`."""

    module = "tests.integration.dds.peer"
    patience_s = 90.0

    @property
    def pid(self) -> int:
        return self._process.pid

    def heard(self, timeout_s: float) -> Iterator[dict[str, Any]]:
        """What it says, until it is silent for the time given or has ended."""
        while True:
            try:
                line = self._lines.get(timeout=timeout_s)
            except queue.Empty:
                return
            if line is None:
                self._lines.put(None)
                return
            yield line

    def ready(self) -> dict[str, Any]:
        return self.expect(lambda line: line.get("ready"))

    def end(self) -> int:
        """Let it end in order, also while it is frozen."""
        self.signal(signal.SIGCONT)
        return super().end()


class Arena:
    """One domain for one test, on loopback, closed to everybody else by a domain tag."""

    def __init__(self, domain: int, tag: str, lease_s: float) -> None:
        self.domain = domain
        self.tag = tag
        self.uri = self._uri(lease_s)
        self._peers: list[Peer] = []

    def _uri(self, lease_s: float) -> str:
        return cyclone_uri(
            tag=self.tag,
            lease_s=lease_s,
            spdp_interval_ms=200,
            max_auto_participant_index=20,
            environment={},
        )

    def start(self, role: str, *, lease_s: float | None = None, **options: Any) -> Peer:
        """A process in a role, perhaps with a lease of its own; it is ended with the test."""
        uri = self.uri if lease_s is None else self._uri(lease_s)
        peer = Peer(role, {"domain": self.domain, **options}, {**os.environ, "CYCLONEDDS_URI": uri})
        self._peers.append(peer)
        return peer

    def close(self) -> None:
        for peer in self._peers:
            peer.end()


class PeakMemory:
    """The peak of this process's resident memory from here on."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins anew: proc(5)
        self._before = peak_bytes()

    def grown_kib(self) -> int:
        """By how many KiB the peak is above where it began."""
        return (peak_bytes() - self._before) // 1024


def wait_until(
    condition: Callable[[], Any], wait: Callable[[float], Any], timeout_s: float = PATIENCE_S
) -> Any:
    """The first true value of the condition, asked again each time `wait` returns."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        left = deadline - time.monotonic()
        if left <= 0:
            raise AssertionError(f"not in {timeout_s} s")
        wait(min(left, 1.0))
    return value
