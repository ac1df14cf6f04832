"""One report in every format."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from engine.config import ByteRange, SourceFile
from ospltool.cli.check import OutputFormat
from ospltool.diagnostics.formats import FORMATS, render
from ospltool.diagnostics.model import (
    Edit,
    Finding,
    Fix,
    Place,
    Report,
    RuleText,
    Severity,
    Target,
    fingerprints,
)

HERE = Path(__file__).parent
TEXT = '<a>\n\t<é x="früher" y="2">ö</é>\n</a>\n'
DATA = TEXT.encode()


def span_of(piece: str) -> ByteRange:
    start = DATA.index(piece.encode())
    return ByteRange(start, start + len(piece.encode()))


def sample() -> Report:
    source = SourceFile("dir/a file.xml", DATA)
    other = SourceFile("b.xml", b"<b><c/></b>")
    first = Finding(
        code="DUR999",
        name="sample-rule",
        level=Severity.ERROR,
        message="x is 'früher': 100%",
        place=Place.from_span(source, span_of("früher")),
        related=(Place.from_span(other, ByteRange(3, 7), "the other one"),),
        nodes=("n1", "n2"),
        subject="//OpenSplice/A[@x]",
        advice="write something else",
        refusing=frozenset({Target.OPENSPLICE}),
        targets=frozenset({Target.OPENSPLICE}),
        fix=Fix("Replace by 'x'", (Edit("dir/a file.xml", span_of("früher"), b"x"),)),
    )
    second = Finding(
        "two\nlines \x1b[31m",
        Place.from_span(source, ByteRange(0, len(DATA))),
        level=Severity.INFO,
        code="DUR998",
        name="other-rule",
    )
    third = Finding(
        "gone", Place("none.xml", 3, 2, 3, 2), level=Severity.WARNING, code="DUR001", name="unreadable-file"
    )
    rules = (
        RuleText("DUR001", "unreadable-file", Severity.ERROR, "A file cannot be read.", "Nothing is known."),
        RuleText("DUR999", "sample-rule", Severity.ERROR, "A sample.", "Because."),
    )
    return Report(
        (first, second, third), ("dir/a file.xml", "b.xml", "none.xml"), rules, suppressed=2, skipped=("p",)
    )


def test_the_command_line_knows_exactly_the_formats() -> None:
    assert typing.get_args(OutputFormat) == tuple(FORMATS)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_as_it_was(name: str) -> None:
    expected = HERE / "expected" / f"report.{name}"
    assert render(sample(), name) == expected.read_text("utf-8")


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_can_say_that_all_is_well(name: str) -> None:
    text = render(Report((), ("a.xml",), ()), name)
    if name in ("json", "gitlab", "sarif", "rdjson"):
        json.loads(text)
    elif name == "junit":
        ET.fromstring(text)
    else:
        assert text == ""


@pytest.mark.parametrize("name", FORMATS)
def test_no_control_character_of_a_file_is_alive(name: str) -> None:
    text = render(sample(), name)
    assert "\x1b" not in text
    assert all(char.isprintable() or char in "\n\t" for char in text)


def test_colours_are_only_added() -> None:
    for name in ("full", "concise"):
        coloured = render(sample(), name, colour=True)
        assert "\x1b[1;31m" in coloured
        plain = coloured
        for code in ("0", "1", "1;31", "1;33", "1;34", "1;36", "32"):
            plain = plain.replace(f"\x1b[{code}m", "")
        assert plain == render(sample(), name)


def test_the_frame_underlines_whole_characters_and_expands_tabs() -> None:
    lines = render(sample(), "full").splitlines()
    at = next(n for n, line in enumerate(lines) if "früher" in line and "|" in line)
    assert lines[at].index("früher") == lines[at + 1].index("^")
    assert lines[at + 1].count("^") == len("früher")


def test_a_long_line_is_cut_around_the_mark() -> None:
    data = b"<a " + b"b" * 300 + b'="x"' + b" " * 300 + b"/>"
    source = SourceFile("f.xml", data)
    place = Place.from_span(source, ByteRange(303, 307))
    found = Finding("m", place, level=Severity.ERROR, code="DUR1", name="r")
    frame = render(Report((found,), (), ()), "full").splitlines()
    shown = next(line for line in frame if line.startswith("1 |"))
    assert len(shown) < 140
    assert shown.count("…") == 2
    mark = next(line for line in frame if "^" in line)
    assert shown[mark.index("^") : mark.rindex("^") + 1] == '="x"'


def test_wide_characters_take_two_columns() -> None:
    source = SourceFile("f.xml", '<a b="日本" c=""/>'.encode())
    span = ByteRange(source.data.index(b"c="), source.data.index(b"c=") + 4)
    found = Finding("m", Place.from_span(source, span), level=Severity.ERROR, code="DUR1", name="r")
    frame = render(Report((found,), (), ()), "full").splitlines()
    mark = next(line for line in frame if "^" in line)
    assert mark.index("^") == len('1 | <a b="日本" ') + 2


def test_sarif_has_what_consumers_require() -> None:
    document = json.loads(render(sample(), "sarif"))
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    results = run["results"]
    rules = run["tool"]["driver"]["rules"]
    assert rules[results[0]["ruleIndex"]]["id"] == results[0]["ruleId"]
    region = results[0]["locations"][0]["physicalLocation"]
    assert region["artifactLocation"]["uri"] == "dir/a%20file.xml"
    assert region["region"] == {"startLine": 2, "startColumn": 8, "endLine": 2, "endColumn": 14}
    change = results[0]["fixes"][0]["artifactChanges"][0]["replacements"][0]
    assert DATA[change["deletedRegion"]["byteOffset"] :].startswith("früher".encode())


def test_rdjson_counts_bytes() -> None:
    first = json.loads(render(sample(), "rdjson"))["diagnostics"][0]
    line = DATA.splitlines()[1]
    start = first["location"]["range"]["start"]["column"] - 1
    end = first["location"]["range"]["end"]["column"] - 1
    assert line[start:end] == "früher".encode()


def test_json_places_are_bytes_and_characters() -> None:
    first = json.loads(render(sample(), "json"))["data"]["diagnostics"][0]
    start, end = first["range"]["start"], first["range"]["end"]
    assert DATA[start["byte"] : end["byte"]] == "früher".encode()
    assert TEXT.splitlines()[1][start["column"] - 1 : end["column"] - 1] == "früher"


def test_jsonl_has_one_document_per_line() -> None:
    documents = [json.loads(line) for line in render(sample(), "jsonl").splitlines()]
    assert [each["data"]["code"] for each in documents] == ["DUR999", "DUR998", "DUR001"]
    assert {each["kind"] for each in documents} == {"diagnostic"}


def test_github_commands_stay_on_one_line() -> None:
    lines = render(sample(), "github").splitlines()
    assert len(lines) == 3
    assert "100%25%0Awrite" in lines[0]
    assert "file=dir/a file.xml" in lines[0]
    assert "col=" not in lines[1], "columns of a range over several lines make GitHub ignore the line"


def test_fingerprints_survive_moves_and_tell_equals_apart() -> None:
    report = sample()
    first = report.diagnostics[0]
    place = Place.from_span(SourceFile("dir/a file.xml", b"\n\n" + DATA), ByteRange(2, 3))
    moved = dataclasses.replace(first, place=place)
    one, two = fingerprints([first, first])
    assert one != two
    assert fingerprints([moved]) == [one]


def test_the_junit_report_counts_what_it_has() -> None:
    root = ET.fromstring(render(sample(), "junit"))
    assert (root.get("tests"), root.get("failures")) == ("4", "3")
    assert [suite.get("name") for suite in root] == ["dir/a file.xml", "b.xml", "none.xml"]
    assert len(root.findall(".//testcase")) == 4


@pytest.mark.parametrize("name", FORMATS)
def test_real_findings_are_rendered_in_every_format(
    checked: Callable[..., Report], varied: Callable[..., str], name: str
) -> None:
    report = checked(varied(("<Id>3", "<Id>«é\u009b»"), ("ship*", "north.ships")))
    text = render(report, name)
    assert "DUR102" in text
    assert "\u009b" not in text
