from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.client.applications import ClientProgram
from tests.integration.configurations import Settings
from tests.integration.lab import Lab


class ClientLab(Lab):
    """A lab whose nodes serve durability clients."""

    silent: frozenset[str] = frozenset()
    """Nodes that do not serve clients."""

    def configure(self, name: str, settings: Settings) -> Path:
        return super().configure(name, dataclasses.replace(settings, clients=name not in self.silent))

    def start_one(self, name: str = "n1", settings: Settings | None = None) -> str:
        """Configure and start a node; it is complete when this returns."""
        self.configure(name, settings or Settings())
        self.start(name)
        self.seen.wait_for(f"{name} is complete", lambda: self.seen.are_complete(name))
        return name

    def start_two(self) -> tuple[str, str]:
        """Configure and start n1, the master, and n2; they are complete when this returns."""
        names = ("n1", "n2")
        for name, priority in zip(names, (200, 100), strict=True):
            self.configure(name, Settings().with_priority(priority))
        self.start(*names)
        self.seen.wait_for("both are complete", lambda: self.seen.are_complete(*names))
        return names

    def fill(self, *names: str, count: int = 20) -> None:
        """Write so many instances, and wait until the nodes have them on their disks."""
        self.write({"count": count, "time": 1_000})
        self.seen.wait_for("it is stored", lambda: all(self.seen.stored(n) == count for n in names))

    def client_program(self, role: str, *, prefix: Sequence[str] = (), **options: Any) -> ClientProgram:
        """Start an application of `tests.client.applications`; it is ended with the test."""
        program = ClientProgram(role, {"domain": self.domain, **options}, self.environ, prefix)
        self._programs.append(program)
        program.answer("ready")
        return program
