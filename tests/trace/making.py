"""Makes traces, record by record."""

from __future__ import annotations

import dataclasses
import datetime
import pathlib

START_S = 1_795_223_000


@dataclasses.dataclass
class Trace:
    """Makes the trace of one node, line by line."""

    path: pathlib.Path
    address: str = "1001"
    state: str = "COMPLETE"
    lines: list[str] = dataclasses.field(default_factory=list)

    def line(self, at_s: float, text: str, thread: str = "conflictResolver", state: str = "") -> Trace:
        """A record at so many seconds after the start of the test's time."""
        ns = round(at_s * 1_000_000_000)
        second = START_S + ns // 1_000_000_000
        local = datetime.datetime.fromtimestamp(second, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S+0000")
        header = f"{local} {second}.{ns % 1_000_000_000:09d} {state or self.state} ({thread}) -> "
        self.lines.append(f"{header}{text}\n")
        return self

    def begin(self, at_s: float = 0.0, priority: int | None = None) -> Trace:
        """The first records of a run: the configuration, and the address of the node."""
        setting = "" if priority is None else f"\n        - MasterPriority   : {priority}"
        self.line(at_s, f"Configuration:{setting}", "ospl_durability", "INIT")
        return self.line(
            at_s, f"My address is: '{self.address}'", "ospl_durability", "DISCOVER_FELLOWS_GROUPS"
        )

    def write(self) -> pathlib.Path:
        """Writes the file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("".join(self.lines), encoding="utf-8")
        return self.path


@dataclasses.dataclass
class Traces:
    """Makes the traces of several nodes below one directory."""

    directory: pathlib.Path
    traces: dict[str, Trace] = dataclasses.field(default_factory=dict)

    def node(self, name: str, address: str = "1001") -> Trace:
        """The trace of a node, made when it is asked for first."""
        if name not in self.traces:
            self.traces[name] = Trace(self.directory / name / "durability.log", address)
        return self.traces[name]

    def write(self) -> str:
        """Writes all files, and returns their directory."""
        for trace in self.traces.values():
            trace.write()
        return str(self.directory)
