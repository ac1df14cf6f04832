"""Stores of different formats can be compared by what they must have in common."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest

from engine.dataset.sample import DATA, DISPOSE, UNREGISTER
from ospltool.cli.app import main
from tests.stores.making import BASE_NS, Held, Message, Version, write_kv, write_xml

WRITTEN = tuple(Message(number, f"text {number}", time_ns=BASE_NS + number) for number in range(20))
GONE = tuple(dataclasses.replace(one, status=UNREGISTER, time_ns=one.time_ns + 50) for one in WRITTEN)


def diff(*arguments: object) -> int:
    return main(["store", "diff", *map(str, arguments)])


def test_unregistrations_can_be_left_out(tmp_path: pathlib.Path) -> None:
    """The XML store does not keep them."""
    kv = write_kv(tmp_path / "kv", Version((Held((*WRITTEN, *GONE), depth=2),)))
    xml = write_xml(tmp_path / "xml", Version((Held(WRITTEN, depth=2),)))
    assert diff(kv, xml) == 1
    assert diff(kv, xml, "--ignore", "unregistered") == 0
    assert diff(kv, xml, "--data-only") == 0
    assert diff(kv, xml, "--ignore", "everything") == 2


def test_empty_stores_are_the_same_and_said_to_be_empty(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stores = [write_kv(tmp_path / name, Version((Held(()),))) for name in "ab"]
    assert diff(*stores) == 0
    assert "all of them are empty" in capsys.readouterr().out


def test_data_alone_can_be_compared(tmp_path: pathlib.Path) -> None:
    """Who wrote it, and as which sample, does not count then; time, content and disposals do."""
    kv = write_kv(tmp_path / "kv", Version((Held(WRITTEN),)))
    others = tuple(dataclasses.replace(one, writer=(1, 2, 3), sequence=99) for one in WRITTEN)
    same = write_xml(tmp_path / "same", Version((Held(others),)))
    assert diff(kv, same, "--ignore", "unregistered") == 1
    assert diff(kv, same, "--data-only") == 0
    for name, change in {
        "content": {"text": "another"},
        "time": {"time_ns": BASE_NS + 10**9},
        "disposed": {"status": DATA | DISPOSE},
    }.items():
        one = dataclasses.replace(WRITTEN[3], **change)  # type: ignore[arg-type]  # values of several types
        other = write_xml(tmp_path / name, Version((Held((*WRITTEN[:3], one, *WRITTEN[4:])),)))
        assert diff(kv, other, "--data-only") == 1, name
