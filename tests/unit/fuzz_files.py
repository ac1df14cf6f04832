"""What reads the files of nodes, services and the console, as targets for damaged bytes."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import pathlib
import shutil
import sqlite3
import tempfile
import time
from typing import TYPE_CHECKING, Final

import msgspec

import engine
from engine.config import ConfigError, persistence
from engine.config.fleet import load_fleet
from engine.core import untrusted
from engine.core.name_spaces import Element
from engine.core.settings import PendingWriter
from engine.dataset.sample import make_sample
from engine.node.disk import open_store
from engine.persistence.core.messages import OriginalSample
from engine.persistence.core.provider_selection import SynchronizationSettings
from engine.persistence.core.subscriptions import Subscriptions
from engine.persistence.service import replica_store as rows
from engine.persistence.service.kept_groups import KnownGroups
from engine.persistence.service.replica_store import DATABASE, connect
from engine.runtime import startup
from engine.runtime.monitor import NodePast
from engine.runtime.past import Past
from engine.runtime.pending_writers import pending_writers
from engine.store.interface import Replaced, StoreError, note_of
from engine.store.store_directory import DATABASE as STORE
from engine.store.store_directory import LEDGER, LOCK, Lock, lock_holder
from engine.supervisor.launch import Launch, LaunchError
from engine.supervisor.node_status import status_of
from engine.supervisor.policy import NodePhase
from engine.supervisor.process_identity import identify
from engine.supervisor.rundir import NodeDirectory, RunRecord
from ospltool.analytics.case import VERSIONS, CaseError, Contents, open_case, writing
from ospltool.analytics.contract import META_FILE, Detail
from ospltool.forensics import attachments
from ospltool.health.mutes import Mute, Mutes
from ospltool.live.recording import RecordingFault
from ospltool.live.replay import ReplayFeed
from tests import fake
from tests.forensics.recordings import recording
from tests.fuzzing import CHEAP, COSTLY, Target, damaged_json, damaged_lines
from tests.property.fuzz_messages import refusing, some
from tests.stores.own_stores import described, write_ours
from tests.stores.persistence_stores import write_persistence

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SAMPLES: Final = pathlib.Path(engine.__path__[0]).parent / "samples"
SERVICE: Final = (SAMPLES / "redundant-persistence" / "service.xml").read_bytes()
NODE: Final = b'[[node]]\nname = "a"\nfile = "a.xml"\nrole = "R"\nenv = { P = "1" }\n'


def _at(
    path: pathlib.Path, read: Callable[[pathlib.Path], object], *known: type[Exception]
) -> Callable[[bytes], None]:
    """A reader of a file: the bytes are put there first. It may refuse with these errors."""

    def put(data: bytes) -> None:
        path.write_bytes(data)
        with contextlib.suppress(*known):
            read(path)

    return put


def _configurations(scratch: pathlib.Path) -> list[Target]:
    fleet = (SAMPLES / "three-nodes" / "fleet.toml").read_bytes()
    return [
        Target("fleet", [fleet, NODE], _at(scratch / "fleet.toml", load_fleet, ConfigError)),
        Target(
            "persistence-service",
            [SERVICE, (SAMPLES / "redundant-persistence" / "subscriptions.xml").read_bytes()],
            _at(scratch / "service.xml", _service, ConfigError),
        ),
    ]


def _service(path: pathlib.Path) -> None:
    service = persistence.load(str(path), {})
    service.refusals()
    service.without_effect()


def _stores(scratch: pathlib.Path) -> list[Target]:
    """Stores as a node and a persistence service open them, which is another way than that of the tools."""
    samples = [make_sample(number, bytes(16), 4, number.to_bytes(4), b"\0\1\0\0text") for number in range(40)]
    ours = write_ours(scratch / "node-store", {described("depot"): samples})
    theirs = write_persistence(scratch / "service-store", range(40)) / DATABASE
    with contextlib.closing(sqlite3.connect(theirs)) as store:
        store.executescript(rows.SUBSCRIPTION_TABLES)
        _subscribe(store)
        store.commit()
    held = Lock(scratch / LOCK, "n1")
    note = (scratch / LOCK).read_bytes()
    return [
        Target("node-store", [(ours / STORE).read_bytes()], functools.partial(_open_store, ours, STORE)),
        Target(
            "node-store-ledger", [(ours / LEDGER).read_bytes()], functools.partial(_open_store, ours, LEDGER)
        ),
        Target(
            "node-store-lock",
            [note],
            _at(scratch / LOCK, lambda path: (held, lock_holder(path))),
            CHEAP,
            damaged_json,
        ),
        Target(
            "service-store",
            [theirs.read_bytes()],
            refusing(_open_service, sqlite3.Error, StoreError, UnicodeDecodeError),
        ),
        Target(
            "store-marks",
            [
                Replaced("n1", 5, "why", 1, 2, "mark").to_mark().encode(),
                json.dumps([msgspec.to_builtins(Element("p*", "T"))]).encode(),
                json.dumps(msgspec.to_builtins(PendingWriter("7f", "T", ("p",), 7, 1.0))).encode(),
            ],
            _marks,
            CHEAP,
            damaged_json,
        ),
        Target("past", [_past(scratch)], _at(scratch / "past.jsonl", _open_past), COSTLY, damaged_lines),
    ]


def _subscribe(store: sqlite3.Connection) -> None:
    """A durable subscription with a sample that one member has acknowledged."""
    settings = SynchronizationSettings(enable=True, synchronize_durable_subscriptions=True)
    stock = Subscriptions("a", settings, tuple)
    stock.register("logger", 2)
    for number in (1, 2):
        stock.sample_arrived(OriginalSample("w" * 32, number, b"key", number, b"payload"))
    stock.acknowledge("logger", "m", (("w" * 32, (1,)),))
    rows.write_subscriptions(store, {b"12345678": stock.changes()})


def _open_store(store: pathlib.Path, name: str, data: bytes) -> None:
    """A node opens its store, and reads it."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = pathlib.Path(scratch) / "store"
        shutil.copytree(store, copy)
        (copy / name).write_bytes(data)
        with contextlib.suppress(StoreError):
            opened = open_store(copy, "n1")
            try:
                startup.read_store(opened, time.time_ns())
            finally:
                opened.close()


def _open_service(data: bytes) -> None:
    """A persistence service reads its store; SQLite may report damage in words that are not UTF-8."""
    with tempfile.TemporaryDirectory() as scratch:
        path = pathlib.Path(scratch) / DATABASE
        path.write_bytes(data)
        with contextlib.closing(connect(path)) as store:
            KnownGroups(()).restore(store)
            rows.read(store)
            rows.read_subscriptions(store)


def _marks(data: bytes) -> None:
    mark = data.decode(errors="replace")
    note_of(mark)
    pending_writers({"pending 7f": mark})
    with contextlib.suppress(untrusted.JsonFault):
        untrusted.json_reader(tuple[Element, ...])(mark)


def _past(scratch: pathlib.Path) -> bytes:
    """The past of a node: two events, a mastership, a run."""
    path = scratch / "made.jsonl"
    made = Past(path, lambda: 7_000, pid=7, version="1.0")
    made.open()
    made.masters(fake.snapshot(1, fake.name_space("A", 1)))
    made.note("text", "process.started")
    made.end("in order")
    made.close()
    return path.read_bytes()


def _open_past(path: pathlib.Path) -> None:
    made = Past(path, lambda: 9_000, pid=8, version="1.0")
    made.open()
    made.close()
    untrusted.json_reader(NodePast)(json.dumps(msgspec.to_builtins(made.shown("id", "n1"))))


def _processes(scratch: pathlib.Path) -> list[Target]:
    """What supervisor and node leave in the run directory."""
    us = identify(os.getpid())
    assert us is not None
    directory = scratch / "run"
    directory.mkdir()
    node = NodeDirectory(directory)
    record = RunRecord(
        "u", "c", "n", 1, "r", "", 10.0, NodePhase.DIED, "why", 1, False, 5, 6, us, us, 1, "fault", 7
    )
    node.write_record(record)
    whole = (directory / "supervisor.json").read_bytes()
    state = json.dumps({"state": "COMPLETE", "time_ns": 5, "pid": us.pid, "problem": "full", "unstored": 3})
    launch = some(Launch)
    return [
        Target(
            "run-record",
            [whole],
            _at(directory / "supervisor.json", lambda _: _status(node)),
            COSTLY,
            damaged_json,
        ),
        Target(
            "run-state",
            [state.encode()],
            lambda data: _state(directory, record, data),
            COSTLY,
            damaged_json,
        ),
        Target(
            "launch",
            [launch.to_json().encode()],
            refusing(lambda data: Launch.from_json(data.decode(errors="replace")), LaunchError),
            CHEAP,
            damaged_json,
        ),
    ]


def _status(node: NodeDirectory) -> None:
    found = status_of(node)
    if found is not None:
        found.sentence.encode()


def _state(directory: pathlib.Path, record: RunRecord, data: bytes) -> None:
    """The state of a node that runs."""
    node = NodeDirectory(directory.with_name("running"))
    if not node.path.exists():
        node.make()
        node.write_record(msgspec.structs.replace(record, phase=NodePhase.RUNNING))
    (node.path / "state.json").write_bytes(data)
    _status(node)


def _console(scratch: pathlib.Path) -> list[Target]:
    """Files of the console, and of cases."""
    mutes = {"domain 7": [msgspec.to_builtins(Mute("DUL-NO-MASTER", "n1", 5, 1, 2))]}
    case = scratch / "case"
    part = {"name": "part-0123456789abcdef", "start": 0, "counts": [1, 2, 3, 4]}
    part["times"] = [1, 2, True, False, False]
    text = {
        "domain": "7",
        "node": "n1",
        "file": "n1.log",
        "format": "trace",
        "origin": "engine",
        "digest": "ab",
    }
    with writing(case, Detail.FULL) as writer:
        writer.commit(Contents({"n1=n1.log": {**text, "size": 5, "parts": [part]}}))
    (version,) = (case / VERSIONS).iterdir()
    (case / attachments.DIRECTORY).mkdir()
    entry = {
        "what": "store",
        "node": "n1",
        "place": "store-1",
        "name": "kv",
        "format": "kv",
        "damage": [[0, 1, ["x"]]],
    }
    attached = json.dumps({"format_version": 1, "kind": "attached", "data": {"store:kv": entry}}).encode()
    replay = scratch / "night.rec"
    return [
        Target(
            "replay",
            [recording([3, 7, 0]), recording([1, 2])],
            _at(replay, _play, RecordingFault),
            COSTLY,
        ),
        Target(
            "mutes",
            [json.dumps(mutes).encode()],
            _at(scratch / "mutes.json", lambda path: Mutes(path, "domain 7").all),
            COSTLY,
            damaged_json,
        ),
        Target(
            "case",
            [(case / META_FILE).read_bytes()],
            _at(case / META_FILE, lambda _: open_case(case), CaseError),
            COSTLY,
            damaged_json,
        ),
        Target(
            "case-version",
            [version.read_bytes()],
            _at(version, lambda _: open_case(case), CaseError),
            COSTLY,
            damaged_json,
        ),
        Target(
            "case-attachments",
            [attached],
            _at(
                case / attachments.DIRECTORY / attachments.LIST_FILE,
                lambda _: attachments.kept_in(case),
                CaseError,
            ),
            COSTLY,
            damaged_json,
        ),
    ]


def _play(path: pathlib.Path) -> None:
    """Play a recording to its end, and jump back."""
    moment = itertools.count(0, 3_600_000_000_000)
    feed = ReplayFeed(path, clock=lambda: next(moment))
    try:
        for _ in range(3):
            feed.poll()
        feed.seek(feed.begin_ns)
        feed.poll()
        feed.notes()
    finally:
        feed.close()


def targets(scratch: pathlib.Path) -> Sequence[Target]:
    """All readers of files of nodes, services and the console."""
    return [*_configurations(scratch), *_stores(scratch), *_processes(scratch), *_console(scratch)]
