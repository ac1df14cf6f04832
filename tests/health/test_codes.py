"""The registry of codes, and the pages that are made from it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs import health_pages as pages
from ospltool.cli.app import main
from ospltool.health.codes import codes

ROOT = Path(__file__).parents[2]


def test_the_pages_are_what_the_codes_say() -> None:
    for name, text in pages.pages().items():
        assert (pages.DIRECTORY / name).read_text("utf-8") == text, "run: python -m docs.health_pages"
    assert {path.name for path in pages.DIRECTORY.iterdir()} == set(pages.pages())


def test_every_code_has_all_of_its_words_and_can_be_observed() -> None:
    health = ROOT / "ospltool/health"
    told = [*(health / "signs").glob("*.py"), health / "facts.py"]
    source = "\n".join(path.read_text("utf-8") for path in told)
    for one in codes().values():
        assert re.fullmatch(r"DUL(-[A-Z]+)+", one.id)
        assert all((one.title, one.observed, one.causes, one.effect, one.next, one.cause)), one.id
        assert not one.title.endswith(".")
        assert f'"{one.id}"' in source, "a code that nothing tells"


@pytest.mark.parametrize("given", ["DUL-NODE-GONE", "dul-node-gone"])
def test_explain_shows_a_code(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", given]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("DUL-NODE-GONE (error)\n\nA node is gone\n")
    assert "Effect on data:" in shown
    assert main(["explain", given, "--json"]) == 0
    assert '"next"' in capsys.readouterr().out


def test_explain_names_a_code_that_may_be_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "DUL-NODE-GON"]) == 2
    assert "DUL-NODE-GONE" in capsys.readouterr().err
