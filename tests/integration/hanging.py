"""A node, or a persistence service, whose threads can be made to hang: `activity -> one function it calls`.

`environ` gives the environment in which a process hangs at a place once there is a file of that name.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from tests.integration.programs import ROOT

PATIENCE_S: Final = 0.3

_HOOK: Final = f"""
import importlib, os, pathlib, threading
from engine.dds import activity, typeinfo
activity.ThreadActivities.__init__.__defaults__ = ({PATIENCE_S},)
typeinfo.LOOK_UP_S = 0.0
for name, constant in (("engine.node.wire", "MARGIN_S"), ("engine.node.wire", "BATCH_TIMEOUT_S"),
        ("engine.node.keeping", "TIMEOUT_S"), ("engine.persistence.service.replica_store", "WRITE_S"),
        ("engine.persistence.service.service_process", "WORK_S")):
    setattr(importlib.import_module(name), constant, 0.0)
PLACES = {{
    "look-up": ("engine.node.intake", "look_up_type"),
    "delivery": ("engine.dds.directed", "DirectedSession.__init__"),
    "stream": ("engine.dds.bulk", "BulkSender.__init__"),
    "store": ("engine.runtime.store_queue", "StoreQueue.work"),
    "service-store": ("engine.persistence.service.replica_store", "ReplicaStore._write_batch"),
    "sender": ("engine.dds.channel", "Channel.publish"),
    "pump": ("engine.dds.discovery", "Discovery.take"),
    "client": ("engine.client_service.lines", "TopicWriters._carry_out"),
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


def hooked(directory: Path, hook: str, variable: str = "HOOK_DIRECTORY") -> dict[str, str]:
    """The environment of a process that runs `hook` first; a variable tells it the directory."""
    (directory / "hook").mkdir()
    (directory / "hook" / "sitecustomize.py").write_text(hook)
    return {"PYTHONPATH": os.pathsep.join((str(directory / "hook"), str(ROOT))), variable: str(directory)}


def environ(directory: Path) -> dict[str, str]:
    """Where files in `directory` make threads hang: `look-up`, `delivery`, `stream`, `store` and so on."""
    return hooked(directory, _HOOK, "HANG_DIRECTORY")
