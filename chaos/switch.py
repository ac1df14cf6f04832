"""A network switch in user space: `python -m chaos.switch SEED`, one process, one TAP device for each port.

Each direction from one port to another has a rule of its own: cut, loss, delay with jitter (which reorders),
and duplicates. What a rule does is drawn from a generator of that direction, seeded with the switch's seed.

Commands are lines of JSON on standard input, answered by a line each on standard output:

- `{"port": NAME}` makes a port; the answer names its device, which the caller moves where it belongs;
- `{"rules": [{"source": NAME, "target": NAME, "cut": ..., "loss": ..., ...}]}` replaces these rules;
- `{"tally": true}` is answered with the numbers of frames that were passed, lost, delayed, and so on.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import fcntl
import heapq
import json
import os
import random
import select
import struct
import sys
import time
from typing import Any, Final

_TUNSETIFF: Final = 0x400454CA
_TAP_WITHOUT_HEADER: Final = 0x0002 | 0x1000
_FRAME_BYTES: Final = 65_536
_TURN: Final = 64
"""Frames taken from one port before the others have their turn."""
_MOST_LATE: Final = 50_000
"""Frames that wait at most; more are lost, as in any switch."""


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """What happens to frames in one direction: probabilities 0 to 1, times in seconds."""

    cut: bool = False
    loss: float = 0.0
    delay_s: float = 0.0
    jitter_s: float = 0.0
    duplicate: float = 0.0


class Switch:
    """Learns where addresses live, floods what it does not know, and applies the rules."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._ports: dict[str, int] = {}
        self._homes: dict[bytes, str] = {}
        self._rules: dict[tuple[str, str], tuple[Rule, random.Random]] = {}
        self._late: list[tuple[float, int, int, bytes]] = []
        self.tally: collections.Counter[str] = collections.Counter()

    def add_port(self, name: str) -> tuple[int, str]:
        """Make a port; returns its descriptor and the name of its device."""
        port = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        asked = struct.pack("16sH22x", f"tap{len(self._ports)}".encode(), _TAP_WITHOUT_HEADER)
        device = fcntl.ioctl(port, _TUNSETIFF, asked)[:16].rstrip(b"\0").decode()
        self.plug(name, port)
        return port, device

    def plug(self, name: str, port: int) -> None:
        """Let this descriptor, of which each read and write is a frame, be a port."""
        self._ports[name] = port

    def set_rule(self, source: str, target: str, rule: Rule) -> None:
        """Replace the rule of one direction; its generator goes on."""
        known = self._rules.get((source, target))
        chance = known[1] if known else random.Random(f"{self._seed} {source}>{target}")
        self._rules[source, target] = rule, chance

    def forward(self, source: str, frame: bytes, now: float) -> None:
        """A frame came in: to the port where its target lives, or to all others."""
        self._homes[frame[6:12]] = source
        home = None if frame[0] & 1 else self._homes.get(frame[:6])
        for target in self._ports if home is None else (home,):
            if target != source:
                self._pass(source, target, frame, now)

    def _pass(self, source: str, target: str, frame: bytes, now: float) -> None:
        port = self._ports[target]
        rule, chance = self._rules.get((source, target), (None, None))
        if rule is None or chance is None:
            self._deliver(port, frame)
        elif rule.cut or (rule.loss and chance.random() < rule.loss):
            self.tally["cut" if rule.cut else "lost"] += 1
        else:
            for _ in range(2 if rule.duplicate and chance.random() < rule.duplicate else 1):
                self._delay(port, frame, now + rule.delay_s + rule.jitter_s * chance.random(), now)

    def _delay(self, port: int, frame: bytes, due: float, now: float) -> None:
        if due <= now:
            self._deliver(port, frame)
        elif len(self._late) < _MOST_LATE:
            self.tally["delayed"] += 1
            heapq.heappush(self._late, (due, self.tally["delayed"], port, frame))
        else:
            self.tally["overflowed"] += 1

    def deliver_late(self, now: float) -> float | None:
        """Hand over what is due; returns the seconds until the next frame is, None when there is none."""
        while self._late:
            due, _, port, frame = self._late[0]
            if due > now:
                return due - now
            heapq.heappop(self._late)
            self._deliver(port, frame)
        return None

    def _deliver(self, port: int, frame: bytes) -> None:
        try:
            os.write(port, frame)
            self.tally["passed"] += 1
        except OSError:  # the device is not up yet, or its queue is full
            self.tally["refused"] += 1


def serve(seed: str) -> None:
    """Forward frames and carry out commands until standard input ends."""
    switch = Switch(seed)
    names: dict[int, str] = {}
    poll = select.poll()
    poll.register(0, select.POLLIN)
    text = b""
    while True:
        wait_s = switch.deliver_late(time.monotonic())
        for ready, _ in poll.poll(None if wait_s is None else wait_s * 1000):
            if ready:
                _drain(switch, ready, names[ready])
                continue
            if not (read := os.read(0, 65_536)):
                return
            *lines, text = (text + read).split(b"\n")
            for line in lines:
                answer, port = _obey(switch, json.loads(line))
                if port:
                    names[port] = answer["port"]
                    poll.register(port, select.POLLIN)
                os.write(1, json.dumps(answer).encode() + b"\n")


def _drain(switch: Switch, port: int, name: str) -> None:
    now = time.monotonic()
    with contextlib.suppress(BlockingIOError, OSError):  # the device is not up yet
        for _ in range(_TURN):
            switch.forward(name, os.read(port, _FRAME_BYTES), now)


def _obey(switch: Switch, command: dict[str, Any]) -> tuple[dict[str, Any], int]:
    if "port" in command:
        port, device = switch.add_port(command["port"])
        return {"port": command["port"], "device": device}, port
    for given in command.get("rules", ()):
        switch.set_rule(given.pop("source"), given.pop("target"), Rule(**given))
    return {"tally": dict(switch.tally)}, 0


if __name__ == "__main__":
    with contextlib.suppress(OSError):
        os.nice(-10)  # where that is permitted: a switch does not wait for the machines that it joins
    serve(sys.argv[1])
