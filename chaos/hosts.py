"""Hosts: network namespaces on a switch. They exist in the capsule only and go with it."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

from chaos.capsule import ROOT
from chaos.switch import Rule

if TYPE_CHECKING:
    from collections.abc import Iterable

EYE: Final = "eye"
"""The host of the harness itself: the capsule's own network, never cut."""
_MTU: Final = 9_000
_CUT: Final = Rule(cut=True)


class Hosts:
    """Hosts with an interface `e0` each, all on one switch.

    Args:
        names: of the hosts; the harness's own is added.
        seed: of the switch's chances.
    """

    def __init__(self, names: Iterable[str], seed: str) -> None:
        self.names = (*names, EYE)
        self.addresses = {name: f"10.78.0.{number}" for number, name in enumerate(self.names, 1)}
        self._rules: dict[tuple[str, str], Rule] = {}
        self._switch = subprocess.Popen(
            [sys.executable, "-m", "chaos.switch", seed],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            _ip("link", "set", "lo", "up")
            for name in self.names:
                self._add(name)
        except BaseException:
            self.close()
            raise

    def _add(self, name: str) -> None:
        device = self._tell(port=name)["device"]
        inside: tuple[str, ...] = ()
        if name == EYE:
            _ip("link", "set", device, "name", "e0")
        else:
            _ip("netns", "add", name)
            _ip("link", "set", device, "name", "e0", "netns", name)
            inside = ("-n", name)
        _ip(*inside, "link", "set", "lo", "up")
        _ip(*inside, "link", "set", "e0", "mtu", str(_MTU), "txqueuelen", "20000")
        _ip(*inside, "addr", "add", f"{self.addresses[name]}/24", "dev", "e0")
        _ip(*inside, "link", "set", "e0", "up")

    def on(self, name: str) -> tuple[str, ...]:
        """What goes before a command so that it runs on a host."""
        return () if name == EYE else ("ip", "netns", "exec", name)

    def rule(self, sources: Iterable[str], targets: Iterable[str], rule: Rule) -> None:
        """What happens to frames from these hosts to those, until the next rule."""
        pairs = [(a, b) for a in sources for b in targets if a != b]
        self._rules.update(dict.fromkeys(pairs, rule))
        self._send(pairs)

    def cut(self, ones: Iterable[str], others: Iterable[str], *, both_ways: bool = True) -> None:
        """Cut these hosts off from those."""
        ones, others = tuple(ones), tuple(others)
        self.rule(ones, others, _CUT)
        if both_ways:
            self.rule(others, ones, _CUT)

    def heal(self) -> None:
        """No rule any more."""
        pairs, self._rules = list(self._rules), {}
        self._send(pairs)

    def tally(self) -> dict[str, int]:
        """What the switch did with frames so far."""
        return dict(self._tell()["tally"])

    def _send(self, pairs: list[tuple[str, str]]) -> None:
        rules = [
            {"source": a, "target": b, **dataclasses.asdict(self._rules.get((a, b), Rule()))}
            for a, b in pairs
        ]
        self._tell(rules=rules)

    def _tell(self, **command: Any) -> dict[str, Any]:
        assert self._switch.stdin is not None
        assert self._switch.stdout is not None
        self._switch.stdin.write(json.dumps(command) + "\n")
        self._switch.stdin.flush()
        answer: dict[str, Any] = json.loads(self._switch.stdout.readline())
        return answer

    def close(self) -> None:
        """Remove hosts, devices and the switch."""
        self._switch.communicate(timeout=10)
        for name in self.names[:-1]:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True, timeout=10)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=10)
