"""The commands of `ospltool store`, run in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from ospltool.cli import app

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    def running(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        code = app.main(["store", *map(str, arguments)])
        return int(code), *capfd.readouterr()

    return running


def data(text: str, kind: str) -> Any:
    """The data of one JSON answer."""
    document = json.loads(text)
    assert (document["format_version"], document["kind"]) == (1, kind)
    return document["data"]
