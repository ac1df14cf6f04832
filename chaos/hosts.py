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
CUT: Final = Rule(cut=True)


@dataclasses.dataclass(frozen=True, eq=False)
class Fault:
    """A rule for directions, source first."""

    pairs: frozenset[tuple[str, str]]
    rule: Rule


class Hosts:
    """Hosts with an interface `e0` each, all on one switch.

    Args:
        names: of the hosts; the harness's own is added.
        seed: of the switch's chances.
    """

    def __init__(self, names: Iterable[str], seed: str) -> None:
        self.names = (*names, EYE)
        self.addresses = {name: f"10.78.0.{number}" for number, name in enumerate(self.names, 1)}
        self._faults: list[Fault] = []
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

    def add(
        self, ones: Iterable[str], others: Iterable[str], rule: Rule = CUT, *, both_ways: bool = True
    ) -> Fault:
        """Apply a rule from these hosts to those until it is removed. A cut counts more than other rules."""
        ones, others = tuple(ones), tuple(others)
        pairs = {(a, b) for a in ones for b in others if a != b}
        if both_ways:
            pairs |= {(b, a) for a, b in pairs}
        fault = Fault(frozenset(pairs), rule)
        self._faults.append(fault)
        self._send(fault.pairs)
        return fault

    def remove(self, fault: Fault) -> None:
        """What other rules say counts again."""
        self._faults = [each for each in self._faults if each is not fault]
        self._send(fault.pairs)

    def heal(self) -> None:
        """No rule any more."""
        for fault in self._faults:
            self.remove(fault)

    def tally(self) -> dict[str, int]:
        """What the switch did with frames so far."""
        return dict(self._tell()["tally"])

    def _send(self, pairs: Iterable[tuple[str, str]]) -> None:
        rules = []
        for source, target in sorted(pairs):
            given = [fault.rule for fault in self._faults if (source, target) in fault.pairs]
            rule = next((rule for rule in given if rule.cut), given[-1] if given else Rule())
            rules.append({"source": source, "target": target, **dataclasses.asdict(rule)})
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
