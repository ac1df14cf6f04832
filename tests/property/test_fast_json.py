"""The fast reader of monitor messages takes nothing that the strict one refuses, and makes equal values."""

from __future__ import annotations

import builtins
import json
import subprocess
import sys
import typing
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.core import plain
from engine.runtime import monitor
from tests import fake
from tests.fuzzing import damaged_json
from tests.property.values import JSON, values

KINDS: dict[str, type[monitor.Message]] = {
    "node": monitor.NodeSnapshot,
    "event": monitor.NodeEvent,
    "past": monitor.NodePast,
}
assert set(KINDS.values()) == set(typing.get_args(monitor.Message))
VIEW = st.sampled_from(list(KINDS.values())).flatmap(lambda kind: values(kind))
READ = monitor.quick_reader(KINDS)
NODE = fake.snapshot(
    1,
    fake.name_space("Orders", 1),
    groups=(monitor.GroupView("a", "b", "c", "d", "e", 1, 2, 3, "f", 4, 5, 6, (("limit", 7),)),),
    counters={"stored": 8},
)


def strictly(data: bytes) -> monitor.Message:
    """What `plain` makes of it."""
    document = json.loads(data)
    made: monitor.Message = plain.from_plain(KINDS[document["kind"]], document["data"])
    return made


def check_reads_as_the_strict_one(data: bytes) -> None:
    """Either both make an equal value, or the fast reader leaves it to the strict one."""
    found = READ(data)
    if found is None:
        return
    document = json.loads(data)
    assert (found.format_version, found.kind) == (document["format_version"], document["kind"])
    assert found.data == strictly(data)
    repr(found.data).encode()


@given(VIEW)
def test_ordinary_messages_are_read_fast_unless_they_have_huge_numbers(view: monitor.Message) -> None:
    data = monitor.encode(view)
    found: monitor.QuickMessage | None = READ(data)
    assert found is not None or "0" * 39 in "".join("0" if one.isdigit() else one for one in data.decode())
    assert found is None or found.data == view
    assert monitor.decode(data) == view


@given(VIEW, st.integers(min_value=0))
@example(NODE, 1)
def test_altered_messages_are_read_as_the_strict_reader_does(view: monitor.Message, seed: int) -> None:
    for more in range(20):
        check_reads_as_the_strict_one(damaged_json(monitor.encode(view), seed + more))


@given(st.sampled_from(sorted(KINDS)), JSON, JSON)
def test_documents_with_anything_in_them_are_read_as_the_strict_reader_does(
    kind: str, body: Any, more: Any
) -> None:
    data = {**plain.to_plain(NODE), "newer": more}
    for each in (body, data):
        document = {"format_version": 1, "kind": kind, "data": each, "more": more}
        check_reads_as_the_strict_one(json.dumps(document).encode())


@pytest.mark.parametrize(
    "value",
    [
        "1.0", "1e3", "-0", "01", "true", "null", "NaN", "1e999", "9" * 39, "-" + "9" * 50, "9" * 20,
        str(1 << 128), str((1 << 128) + 1), '"\\ud800"', '"\\ud83d\\ude00"', '"\x01"', '"\xff"', "[" * 2000,
    ],
)  # fmt: skip
@pytest.mark.parametrize("field", ["pid", "name", "newer", "fellows", "groups_left_out"])
def test_odd_values_are_read_as_the_strict_reader_does(field: str, value: str) -> None:
    text = json.dumps(plain.to_plain(NODE) | {field: "HERE"}).replace('"HERE"', value)
    data = f'{{"format_version": 1, "kind": "node", "data": {text}}}'
    check_reads_as_the_strict_one(data.encode("latin-1"))
    check_reads_as_the_strict_one(data.encode())


def test_without_msgspec_the_strict_reader_reads_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = builtins.__import__

    def without(name: str, *others: Any) -> Any:
        if name == "msgspec":
            raise ModuleNotFoundError(name)
        return usual(name, *others)

    monkeypatch.setattr(builtins, "__import__", without)
    assert monitor.quick_reader(KINDS)(monitor.encode(NODE)) is None


EIGHT_THREADS = """
import sys
import threading
import time
import msgspec._utils
from engine.runtime import monitor
annotations = msgspec._utils.get_class_annotations
def annotations_later(cls):
    time.sleep(0)  # while msgspec looks at a class, another thread has its turn
    return annotations(cls)
msgspec._utils.get_class_annotations = annotations_later
data = sys.stdin.buffer.read()
ready = threading.Barrier(8)
def read():
    ready.wait()
    assert monitor.quick_reader({"node": monitor.NodeSnapshot})(data) is not None
threads = [threading.Thread(target=read) for _ in range(8)]
for one in threads:
    one.start()
for one in threads:
    one.join()
"""


def test_several_threads_may_build_readers_at_once() -> None:
    """The console reads each domain of a fleet in a thread of its own; they crashed in half of the starts."""
    command = [sys.executable, "-c", EIGHT_THREADS]
    done = subprocess.run(command, input=monitor.encode(NODE), capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
