"""Applications of a test, in processes of their own: they speak in lines of JSON."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tests.integration.forks import ROOT as ROOT
from tests.integration.forks import Process, begin

PATIENCE_S = 60.0


class Program:
    """A child process in a role of `module`.

    Its standard input takes commands, one JSON object a line; its end is the command to end.
    """

    module = "tests.integration.applications"
    patience_s = PATIENCE_S

    def __init__(
        self, role: str, options: dict[str, Any], environ: Mapping[str, str], prefix: Sequence[str] = ()
    ) -> None:
        self.role = role
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        stdin, to_stdin = os.pipe()
        from_stdout, stdout = os.pipe()
        self._stdin, self._stdout = os.fdopen(to_stdin, "w"), os.fdopen(from_stdout)
        try:
            self._process = begin(self._command(role, options), environ, (stdin, stdout, 2), prefix)
        finally:
            os.close(stdin)
            os.close(stdout)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _command(self, role: str, options: dict[str, Any]) -> list[str]:
        return [sys.executable, "-m", self.module, role, json.dumps(options)]

    def _read(self) -> None:
        for line in self._stdout:
            self._lines.put(json.loads(line))
        self._lines.put(None)

    def line(self, timeout_s: float) -> dict[str, Any]:
        """The next line.

        Raises:
            queue.Empty: none in time.
        """
        line = self._lines.get(timeout=timeout_s)
        if line is None:
            self._lines.put(None)
            raise AssertionError(f"the {self.role} ended with code {self._process.wait(10)}")
        return line

    def expect(
        self, wanted: Callable[[dict[str, Any]], Any], timeout_s: float | None = None
    ) -> dict[str, Any]:
        """The first line that is wanted; others before it are dropped."""
        timeout_s = self.patience_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + timeout_s
        dropped: list[dict[str, Any]] = []
        while True:
            try:
                line = self.line(max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"the {self.role} did not say it in {timeout_s} s: {dropped}") from None
            if wanted(line):
                return line
            dropped.append(line)

    def answer(self, key: str, timeout_s: float | None = None) -> Any:
        """The value of the first line that has this key."""
        return self.expect(lambda line: key in line, timeout_s)[key]

    def tell(self, **command: Any) -> None:
        """Give it a command."""
        self._stdin.write(json.dumps(command) + "\n")
        self._stdin.flush()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(10)

    def end(self) -> int:
        """Let it end in order; one that does not is killed. Returns its exit code."""
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        try:
            code = self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait(10)
        self._thread.join(10)
        self._stdout.close()
        return code


def end_all(processes: Iterable[Process], patience_s: float) -> None:
    """End processes, in order if they can."""
    started = list(processes)
    for process in started:
        process.terminate()
    for process in started:
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(patience_s)
