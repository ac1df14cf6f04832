"""`python -m engine.supervisor`: a supervisor in its own session, started by `ospltool start`.

It reads its launch as JSON from standard input and reports the start on standard output: one record for each
change, as JSON, or `{"refused": "<why>"}`. The started process ends at once; its child is the supervisor,
which has no parent.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import sys

import msgspec

from engine.files import open_private
from engine.supervisor.launch import Launch
from engine.supervisor.loop import Narrator, Supervisor
from engine.supervisor.policy import EXIT_DIED
from engine.supervisor.rundir import NodeDirectory, RunDirectoryError, RunRecord


class _StartPipe:
    """The pipe to the process that waits for the start, if it still does."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        os.set_blocking(descriptor, False)

    def send(self, value: object) -> None:
        """Send one line of JSON."""
        with contextlib.suppress(BrokenPipeError, BlockingIOError):  # nobody waits any more, or reads
            os.write(self._descriptor, json.dumps(value).encode() + b"\n")


def main() -> int:
    """Become a supervisor; return its exit code."""
    launch = Launch.from_json(sys.stdin.read())
    progress = _StartPipe(os.dup(1))
    if os.fork():
        os._exit(0)
    directory = NodeDirectory(pathlib.Path(launch.directory))
    try:
        # Held while the node runs: two supervisors of one configuration would start two nodes on one store.
        with directory.lock() as is_ours:
            if not is_ours:
                progress.send({"refused": "it is already running"})
                return EXIT_DIED
            _redirect_streams(directory)
            narrate = Narrator(launch, os.environ)

            def observe(record: RunRecord) -> None:
                narrate(record)
                progress.send(msgspec.to_builtins(record))

            return Supervisor(launch, os.environ, observe).run()
    except (OSError, RunDirectoryError) as error:
        progress.send({"refused": str(error)})
        return EXIT_DIED


def _redirect_streams(directory: NodeDirectory) -> None:
    """Release the terminal: redirect standard input to /dev/null and output to the supervisor's log."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = open_private(directory.supervisor_log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(log)


if __name__ == "__main__":
    sys.exit(main())
