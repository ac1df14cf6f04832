from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from tests.commands.shell import Shell


@pytest.fixture
def shell(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Shell]:
    made = Shell(tmp_path, monkeypatch, capfd)
    yield made
    made.clean_up()
