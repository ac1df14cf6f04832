"""The HTML report: one file that needs nothing else."""

from __future__ import annotations

import html.parser
import re
from pathlib import Path

import pytest

pytest.importorskip("lxml", reason="stores of OpenSplice need the extra `sql`")
pytest.importorskip("cyclonedds", reason="expected samples are made by the extra `dds`")

from ospltool.cli import app
from ospltool.stores.diff.compare import CompareOptions, compare
from ospltool.stores.diff.render import page
from tests.stores.making import BASE_NS, Held, Message, Version, write_kv

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&amp;\x1b[31m\u202e$verdict"


class Elements(html.parser.HTMLParser):
    """What a browser would see."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def stores(tmp_path: Path) -> list[str]:
    held = Held((Message(1, text=HOSTILE),), partition=HOSTILE, topic=HOSTILE, depth=0)
    more = Held((*held.messages, Message(2, text=HOSTILE, time_ns=BASE_NS + 1)), HOSTILE, HOSTILE, 0)
    left = write_kv(tmp_path / "left", Version((held,), name_space=HOSTILE), damaged=1)
    right = write_kv(tmp_path / "right", Version((more,), name_space=HOSTILE))
    return [str(left), str(right)]


def test_the_page_asks_the_network_for_nothing(stores: list[str]) -> None:
    text = page(compare(stores, CompareOptions(contents=True)))
    seen = Elements()
    seen.feed(text)
    attributes = {name for _, found in seen.tags for name in found}
    assert attributes.isdisjoint({"src", "href", "srcset", "data", "action", "style", "onerror", "onload"})
    assert {tag for tag, _ in seen.tags}.isdisjoint({"link", "img", "iframe", "object", "base", "form"})
    policy = next(found["content"] for tag, found in seen.tags if "http-equiv" in found)
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert re.findall(r"url\(|@import|https?:", text) == []


def test_what_is_in_a_store_stays_text(stores: list[str]) -> None:
    text = page(compare(stores, CompareOptions(contents=True)))
    seen = Elements()
    seen.feed(text)
    assert [tag for tag, _ in seen.tags].count("script") == 1
    assert "alert(1)" in seen.text
    assert "\\x1b[31m" in seen.text
    assert "$verdict" in seen.text, "what looks like a place of the template stays what it is"
    assert all(character.isprintable() or character == "\n" for character in text)


def test_the_page_has_the_whole_report(stores: list[str]) -> None:
    report = compare(stores, CompareOptions(contents=True))
    seen = Elements()
    seen.feed(page(report))
    for expected in (
        *stores,
        "2 instances differ",
        report.instances[0].evidence,
        "left",
        "Damaged",
        '{"id": 2}',
    ):
        assert expected in seen.text
    identities = {found.get("id") for _, found in seen.tags}
    assert {"filter", "instances", "shown"} <= identities
    assert "prefers-color-scheme: dark" in seen.text
    assert "@media print" in seen.text


def test_the_page_says_what_it_does_not_list(stores: list[str]) -> None:
    seen = Elements()
    seen.feed(page(compare(stores, CompareOptions(instances=1))))
    assert "1 more are not listed" in seen.text


def test_the_page_goes_to_a_file_or_to_standard_output(
    stores: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "report.html"
    assert app.main(["store", "diff", *stores, "--format", "html", "-o", str(file)]) == 1
    capfd.readouterr()
    assert app.main(["store", "diff", *stores, "--format", "html"]) == 1
    assert capfd.readouterr().out == file.read_text(encoding="utf-8")


def test_stores_that_are_the_same_give_a_page_that_says_so(stores: list[str]) -> None:
    seen = Elements()
    seen.feed(page(compare([stores[1], stores[1]], CompareOptions())))
    assert "Stores: equal" in seen.text
