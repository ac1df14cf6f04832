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


@pytest.fixture
def quick_health(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that listen for what is wrong wait for nobody, and mutes are of this test."""
    monkeypatch.setattr("ospltool.cli.domains.LISTEN_S", 0.0)
    monkeypatch.setattr("ospltool.cli.domains.MOST_S", 0.5)
    monkeypatch.setattr("ospltool.cli.domains.OVER_S", 0.0)
    monkeypatch.setattr("ospltool.cli.domains.POLL_S", 0.05)
    monkeypatch.setattr("ospltool.health.health.UPDATE_NS", 0)
    monkeypatch.setattr("ospltool.health.signs.lost.ABSENT_NS", 0)
