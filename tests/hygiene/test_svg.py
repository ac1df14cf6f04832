"""Pictures that a browser shows without asking any other host."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
NAMESPACE = "http://www.w3.org/"


def foreign(svg: str) -> list[str]:
    """What the picture refers to on other hosts, without names of XML and remarks."""
    told = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    return [one for one in re.findall(r"https?://[^\"'\s)<]*", told) if NAMESPACE not in one]


def test_no_picture_of_the_documents_or_tests_refers_to_another_host() -> None:
    """Textual names a font on another host in every picture that it exports."""
    pictures = [*(ROOT / "docs").rglob("*.svg"), *(ROOT / "tests").rglob("*.svg")]
    assert pictures
    assert {path.name: foreign(path.read_text(encoding="utf-8")) for path in pictures} == {
        path.name: [] for path in pictures
    }
