"""A stand-in for a node, for tests of the supervisor alone: it behaves as its first argument says.

It is a real process and keeps the real interface (`engine.supervisor.lease_link`), but knows no DDS.
"""

from __future__ import annotations

import os
import pathlib
import signal
import sys
import threading
import time

from engine.supervisor.lease_link import SupervisorLink

RENEWAL_S = 0.05


def main(mode: str) -> int:
    with pathlib.Path("starts").open("a", encoding="utf-8") as starts:
        starts.write(f"{os.getpid()}\n")
    count = len(pathlib.Path("starts").read_text(encoding="utf-8").splitlines())
    if mode == "crash" or (mode == "crash-twice" and count <= 2):
        print("about to crash")
        return 3
    link = SupervisorLink.from_environ(os.environ)
    assert link is not None
    if mode == "bad-configuration":
        link.end("ospl.xml:7:5: there is no such filter")
        return 2

    stopping = threading.Event()
    ignored = mode == "stubborn"
    signal.signal(signal.SIGTERM, signal.SIG_IGN if ignored else lambda *_: stopping.set())
    link.report("INIT")
    if mode != "slow":
        link.report("DISCOVER_FELLOWS_GROUPS")
        link.report("COMPLETE", fellows=0)
    if mode == "chatty":
        for _ in range(1024):
            os.write(1, b"malformed packet received\n" * 1024)
    if mode == "silent":
        stopping.wait()
    while not stopping.wait(RENEWAL_S):
        if link.is_lost() and mode != "orphan":
            pathlib.Path("ended").write_text("supervisor lost", encoding="utf-8")
            return 0
        link.renew()
    link.report("TERMINATING")
    if mode == "takes-time":
        time.sleep(0.3)  # work that a stop must wait for
    link.report("TERMINATED")
    pathlib.Path("ended").write_text("in order", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
