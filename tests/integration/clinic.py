"""`ospltool health --watch` beside real nodes: it must name their faults in time, and see them end."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from tests.integration.lab import Lab
from tests.integration.programs import ROOT

TOLD_S: Final = 5.0
"""A fault is told within this time; a heartbeat expires after 2 s in the configurations of tests."""

ENDS_S: Final = 10.0
BUSY_S: Final = 10.0
"""What a machine that does other things at the same time may take in addition."""

FLEET: Final = """domain = {domain}
{nodes}
[[name-space]]
name = "stock"
copies = {copies}
on-disk = {on_disk}
"""


@dataclasses.dataclass(frozen=True)
class ReportedIncident:
    """One incident as the command told it last."""

    code: str
    who: str
    document: dict[str, Any]


class Clinic:
    """Watches a lab from one place, from now on.

    Args:
        lab: the nodes.
        names: those that are expected.
        copies: of the name-space `stock`, in memory and on disk.
        prefix: what goes before the command, to run it on another host.
        bare: expect nothing.
    """

    def __init__(
        self,
        lab: Lab,
        names: Sequence[str],
        copies: int = 0,
        *,
        prefix: Sequence[str] = (),
        bare: bool = False,
    ) -> None:
        nodes = "\n".join(f'[[node]]\nname = "{name}"' for name in names)
        fleet = lab.directory / "expected.toml"
        fleet.write_text(FLEET.format(domain=lab.domain, nodes=nodes, copies=copies, on_disk=copies))
        target = ["--domain", str(lab.domain)] if bare else [str(fleet)]
        self._documents: queue.Queue[tuple[float, dict[str, Any]]] = queue.Queue()
        self._process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "ospltool.cli.app", "health", *target, "--watch", "--json"],
            cwd=ROOT,
            env={**lab.environ, "XDG_STATE_HOME": str(lab.directory / "state")},
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.told: dict[str, ReportedIncident] = {}
        self.open: list[ReportedIncident] = []
        self.forms: dict[str, list[tuple[str, str]]] = {}
        """The codes and subjects that each incident had, in order."""
        self.errors: list[tuple[str, str]] = []
        """What was an error, for a while at least: each rings once in a console."""
        self.effects: dict[str, list[str]] = {}
        """The effects of each subject, one after the other, each once while it lasts."""
        self._take(30.0)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            (document,) = json.loads(line)["data"]
            self._documents.put((time.monotonic(), document))

    def _take(self, timeout_s: float) -> float:
        """The next document; returns when it came."""
        moment, document = self._documents.get(timeout=timeout_s)
        self.open = [ReportedIncident(one["code"], one["who"], one) for one in document["incidents"]]
        for one in (*document["incidents"], *document["closed"]):
            self.told[one["key"]] = ReportedIncident(one["code"], one["who"], one)
            forms = self.forms.setdefault(one["key"], [])
            if (one["code"], one["who"]) not in forms:
                forms.append((one["code"], one["who"]))
            if one["severity"] == "error" and (one["code"], one["who"]) not in self.errors:
                self.errors.append((one["code"], one["who"]))
            effects = self.effects.setdefault(one["who"], [])
            if effects[-1:] != [one["effect"]]:
                effects.append(one["effect"])
        return moment

    def wait(self, what: str, condition: Callable[[], bool], within_s: float) -> float:
        """Until it holds; returns the seconds it took."""
        began = time.monotonic()
        moment = began
        while not condition():
            left = began + within_s - time.monotonic()
            try:
                moment = self._take(max(left, 0.0))
            except queue.Empty:
                shown = [(one.code, one.who, one.document["what"]) for one in self.open]
                raise AssertionError(f"not in {within_s:g} s: {what}; open: {shown}") from None
        return max(0.0, moment - began)

    def check(self, code: str, who: str) -> float:
        """Exactly this, or another one of the codes, is told in time; returns the seconds it took."""
        expected = [[(one, who)] for one in code.split()]
        took_s = self.wait(f"{code} {who}", lambda: self._names() in expected, within_s=TOLD_S + BUSY_S)
        found = self.open[0].document
        assert all(found[part] for part in ("what", "why", "effect", "next", "page"))
        return took_s

    def check_well(self, within_s: float = ENDS_S + BUSY_S) -> float:
        """Nothing is wrong any more, in time; returns the seconds it took."""
        return self.wait("nothing is wrong", lambda: not self._names(), within_s)

    def times(self, code: str) -> int:
        """How many incidents had this code, for a while at least."""
        return sum(code in [one for one, _ in forms] for forms in self.forms.values())

    def freeze(self, seconds: float) -> None:
        """Stop the command by SIGSTOP for so long."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            self._process.send_signal(signal.SIGCONT)

    def listen(self, seconds: float) -> None:
        """Take in all that is told for so long."""
        end = time.monotonic() + seconds
        with contextlib.suppress(queue.Empty):
            while True:
                self._take(max(0.0, end - time.monotonic()))

    def check_quiet(self, seconds: float) -> None:
        """Nothing is told for so long."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                self._take(left)
            except queue.Empty:
                return
            assert self._names() == [], [one.document for one in self.open]

    def _names(self) -> list[tuple[str, str]]:
        """The open incidents; notices are part of what is normal after a fault."""
        return [(one.code, one.who) for one in self.open if one.document["severity"] != "notice"]

    def close(self) -> int:
        """End the command; returns its exit code."""
        self._process.send_signal(signal.SIGINT)
        code = self._process.wait(10)
        self._reader.join(10)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code


@contextlib.contextmanager
def watched(clinic: Clinic) -> Iterator[Clinic]:
    """Ends the command at last."""
    try:
        yield clinic
    finally:
        clinic.close()


def report(name: str, told_s: float, ended_s: float) -> None:
    """A line of the table; `make faults` shows it."""
    print(f"{name:<40} told after {told_s:4.1f} s, ended after {ended_s:4.1f} s")


def check_fault(
    clinic: Clinic, name: str, code: str, who: str, begin: Callable[[], object], end: Callable[[], object]
) -> None:
    """A fault begins and is told, by one of the codes; it ends and that is told; it was one incident.

    Its subject may have another name while the fault comes and goes: of a node that two others do not hear,
    one may hear it sooner than the other, and then the incident is about that pair.
    """
    before = len(clinic.told)
    begin()
    told_s = clinic.check(code, who)
    end()
    ended_s = clinic.check_well()
    fresh = [one for one in list(clinic.told.values())[before:] if one.document["severity"] != "notice"]
    assert len(fresh) == 1, fresh
    assert who in [name for _, name in clinic.forms[fresh[0].document["key"]]], fresh
    report(name, told_s, ended_s)


def filled(store: Path) -> Path:
    """Fill the file system of a store; returns the file that does so."""
    ballast = store / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return ballast
