"""What a recording tells of stores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.runtime.monitor import GroupView
from ospltool.cli import app
from ospltool.live.recording import Item, Key, RecordingHeader
from tests import fake
from tests.forensics.recordings import write_lines

GROUP = GroupView("A", "depot", "Items", "depot::Item", "PERSISTENT", 7, 5, 70, "ab", 99, 7, 0)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Of two nodes: the first shows something, then more."""
    nodes = [
        fake.snapshot(1, fake.name_space("A", 1)),
        fake.snapshot(2, fake.name_space("A", 1, complete=False)),
        fake.snapshot(1, fake.name_space("A", 1), groups=(GROUP,), groups_left_out=3),
    ]
    items: list[Item] = [
        RecordingHeader("domain 7", "ospltool"),
        Key(),
        *nodes,
    ]
    path = tmp_path / "night.rec"
    write_lines(path, ((fake.START_NS + n, item) for n, item in enumerate(items)))
    return path


def test_info_shows_what_each_node_held_at_the_end(
    recording: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert app.main(["store", "info", str(recording), "--json"]) == 1, "not all groups are in it"
    (store,) = json.loads(capfd.readouterr().out)["data"]["stores"]
    assert store["format"] == "recording"
    assert "left out 3 of its groups" in store["findings"][0]
    first, second = store["sets"]
    assert (first["kind"], second["kind"]) == ("current", "filling")
    (group,) = first["groups"]
    assert (group["topic"], group["samples"], group["instances"], group["newest_ns"]) == ("Items", 7, 5, 99)
    assert app.main(["store", "info", str(recording), "--set", "2"]) == 1
    assert "set 2: A, filling, NOT complete" in capfd.readouterr().out


@pytest.mark.parametrize("command", ["ls", "show", "verify"])
def test_it_has_no_samples(command: str, recording: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert app.main(["store", command, str(recording)]) == 2
    assert "the state of a recording" in capfd.readouterr().err
