"""What a node says of its store at its start."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

from engine.core.namespaces import Group
from engine.dataset.groups import DurabilityKind, GroupDescription, GroupQos, TypeDescription
from engine.dataset.sample import DATA, make_sample
from engine.dds.activity import Activities
from engine.node.disk import Disk, trace_found
from engine.store.backups import REPLACED_MARK
from engine.store.sqlite import SqliteStore
from engine.tracing.levels import Level
from engine.tracing.tracer import Tracer

TYPE = TypeDescription("T", b"information", b"mapping", keyed=True)
GROUP = GroupDescription(
    Group("p", "t", TYPE.type_id), TYPE, GroupQos(DurabilityKind.PERSISTENT, 1, 0, by_source_timestamp=True)
)
SAMPLES = [make_sample(1, b"w" * 16, DATA, b"key", b"payload")]


def fill(directory: Path, *, complete: tuple[str, ...], parts: tuple[str, ...], replaced: str = "") -> None:
    """A store with complete sets, and with sets whose alignment broke off."""
    with contextlib.closing(SqliteStore(directory, "n1", lambda: "f" * 32)) as store:
        for name in (*complete, *parts):
            writer = store.begin_set(name)
            writer.add(GROUP, SAMPLES)
            if name in complete:
                store.commit_complete(writer)
                if name in parts:
                    store.begin_set(name).add(GROUP, SAMPLES)
            if replaced:
                store.mark(name, {REPLACED_MARK: replaced})


def said(directory: Path) -> list[tuple[str, object]]:
    """What a node that starts with the store says of name-spaces."""
    opened = threading.Event()
    disk = Disk(directory, "n1", opened.set, Activities())
    disk.start()
    assert opened.wait(30)
    found = disk.found()
    assert found is not None
    tracer = Tracer(lambda: 0, recent_level=Level.FINEST)
    trace_found(tracer, str(directory), found)
    told = [record.fields["namespace"] for record in tracer.recent() if record.event.id == "store.namespace"]
    assert told == list(found.sets)
    disk.close(30)
    names = (
        "store.incomplete",
        "store.restored",
        "store.no-backup",
        "store.replaced",
        "lifecycle.local-copy",
    )
    return [
        (record.event.id, record.fields["namespace"])
        for record in tracer.recent()
        if record.event.id in names
    ]


def test_an_incomplete_set_is_said_with_what_takes_its_place(tmp_path: Path) -> None:
    fill(tmp_path, complete=("a",), parts=("a", "b"))
    told = said(tmp_path)
    assert set(told) == {
        ("store.incomplete", "a"),
        ("store.restored", "a"),
        ("store.incomplete", "b"),
        ("store.no-backup", "b"),
        ("lifecycle.local-copy", "a"),
    }


def test_a_replaced_set_is_said_at_the_next_start_and_at_no_other(tmp_path: Path) -> None:
    fill(tmp_path, complete=("a",), parts=(), replaced="by the operator")
    assert ("store.replaced", "a") in said(tmp_path)
    assert said(tmp_path) == [("lifecycle.local-copy", "a")]
