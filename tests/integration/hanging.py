"""A node, or a persistence service, whose threads can be made to hang: `activity -> one function it calls`.

`environ` gives the environment in which a process hangs at a place once there is a file of that name, and in
which `stop_threads` stops threads wherever they are.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path
from typing import Final

from tests.integration.programs import ROOT

PATIENCE_S: Final = 0.3

STOP: Final = signal.SIGXCPU
"""The only signal that threads of Cyclone DDS do not block."""
CONTINUE: Final = signal.SIGRTMIN + 8

_HOOK: Final = f"""
import ctypes, importlib, os, pathlib, threading
from engine.dds import activity, typeinfo
activity.ThreadActivities.__init__.__defaults__ = (float(os.environ.get("HANG_PATIENCE_S", {PATIENCE_S})),)
typeinfo.LOOK_UP_S = 0.0
for name, constant in (("engine.node.wire", "MARGIN_S"), ("engine.node.wire", "BATCH_TIMEOUT_S"),
        ("engine.node.alive_instances", "TIMEOUT_S"), ("engine.persistence.service.replica_store", "WRITE_S"),
        ("engine.persistence.service.service_process", "WORK_S")):
    setattr(importlib.import_module(name), constant, 0.0)
library = ctypes.CDLL(None)
for number, handler in (({STOP}, library.pause), ({CONTINUE}, library.abs)):
    library.signal(number, ctypes.cast(handler, ctypes.c_void_p))
PLACES = {{
    "look-up": ("engine.capture.intake", "look_up_type"),
    "delivery": ("engine.dds.directed", "DirectedSession.__init__"),
    "stream": ("engine.dds.bulk", "BulkSender.__init__"),
    "store": ("engine.runtime.store_queue", "StoreQueue.work"),
    "service-store": ("engine.persistence.service.replica_store", "ReplicaStore._write_batch"),
    "sender": ("engine.dds.channel", "Channel.publish"),
    "pump": ("engine.dds.discovery", "Discovery.take"),
    "client": ("engine.dds.client_protocol.topic_writers", "TopicWriters._carry_out"),
    "past": ("engine.runtime.past", "_Writer._append"),
    "past-whole": ("engine.runtime.past", "_Writer._replace"),
    "turn": ("engine.runtime.runtime", "Runtime.turn"),
}}
def hang_at(place, module, path):
    *owners, name = path.split(".")
    owner = importlib.import_module(module)
    for each in owners:
        owner = getattr(owner, each)
    before, file = getattr(owner, name), pathlib.Path(os.environ["HANG_DIRECTORY"], place)
    def hang(*arguments, **options):
        while file.exists():
            threading.Event().wait(0.05)
        return before(*arguments, **options)
    setattr(owner, name, hang)
for place, (module, path) in PLACES.items():
    hang_at(place, module, path)
"""


def threads(pid: int) -> dict[int, str]:
    """The names of the threads of a process."""
    return {
        int(task.name): (task / "comm").read_text().strip() for task in Path(f"/proc/{pid}/task").iterdir()
    }


WAITING_S: Final = 0.015
"""A thread that has not run for this time awaits no interpreter lock, at which it would look every 5 ms."""


def stop_threads(pid: int, *tids: int) -> None:
    """Stop threads, but none while it holds or awaits the interpreter lock: that would stop all threads.

    The whole process stands still for the moment in which that is looked at.
    """
    for tid in tids:
        while not _stop_waiting(pid, tid):
            pass


def _stop_waiting(pid: int, tid: int) -> bool:
    task = Path(f"/proc/{pid}/task/{tid}")
    call, runs = _waits(task), _runs(task)
    time.sleep(WAITING_S)
    os.kill(pid, signal.SIGSTOP)
    while (task / "stat").read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.001)
    is_waiting = call != "" and (call, runs + 1) == (_waits(task), _runs(task))  # it ran once, to be stopped
    if is_waiting:
        _send(pid, tid, STOP)
    os.kill(pid, signal.SIGCONT)
    return is_waiting


def _waits(task: Path) -> str:
    """The system call in which a thread is; empty for none."""
    call = (task / "syscall").read_text()
    return call if call.split()[0].isdigit() else ""


def _runs(task: Path) -> int:
    return int((task / "schedstat").read_text().split()[2])


def continue_thread(pid: int, tid: int) -> None:
    """Let a stopped thread of Python go on; those of Cyclone DDS stay as they are."""
    _send(pid, tid, CONTINUE)


def _send(pid: int, tid: int, number: int) -> None:
    assert ctypes.CDLL(None, use_errno=True).tgkill(pid, tid, number) == 0, os.strerror(ctypes.get_errno())


def hooked(directory: Path, hook: str, variable: str = "HOOK_DIRECTORY") -> dict[str, str]:
    """The environment of a process that runs `hook` first; a variable tells it the directory."""
    (directory / "hook").mkdir()
    (directory / "hook" / "sitecustomize.py").write_text(hook)
    return {"PYTHONPATH": os.pathsep.join((str(directory / "hook"), str(ROOT))), variable: str(directory)}


def environ(directory: Path) -> dict[str, str]:
    """Where files in `directory` make threads hang: `look-up`, `delivery`, `stream`, `store` and so on."""
    return hooked(directory, _HOOK, "HANG_DIRECTORY")
