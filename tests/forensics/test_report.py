"""The incident report: one file, whole in itself, whatever names are in it."""

from __future__ import annotations

import asyncio
import base64
import gzip
import html
import json
import pathlib
import re
import shutil

import pytest
from lxml import etree
from lxml import html as pages

from ospltool.cli.app import main
from tests.browser import CHROMIUM, browser
from tests.forensics.test_verdict import cut_off, emptied, two
from tests.stores.making import Message
from tests.stores.own_stores import described, write_ours
from tests.trace.making import Traces

HOSTILE = "<script>alert(1)</script>\"'&\x1b[31m"


def written(path: pathlib.Path, *names: str) -> str:
    assert main(["report", *names, "-o", str(path), "--force"]) in (0, 1)
    return path.read_text(encoding="utf-8")


def check_self_contained(text: str) -> None:
    """No script, nothing from elsewhere, and pictures that a parser of XML takes."""
    tree = pages.fromstring(text)
    assert tree.xpath("//script | //link | //img | //iframe | //object | //*[@onload or @onclick]") == []
    assert not re.search(
        r"""(?:src|href)\s*=|url\((?!#)|@import""", re.sub("(?s)<title>.*?</title>", "", text)
    )
    assert "default-src 'none'" in text
    for picture in re.findall(r"(?s)<svg.*?</svg>", text):
        etree.fromstring(picture)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text)


def test_a_report_tells_all_of_an_incident(samples: pathlib.Path, tmp_path: pathlib.Path) -> None:
    text = written(
        tmp_path / "r.html",
        str(samples / "traces" / "master-livelock"),
        str(samples / "stores" / "after-merge"),
        str(samples / "three-nodes"),
    )
    check_self_contained(text)
    plain = html.unescape(text)
    assert "never settles on a master" in plain
    assert plain.count("<svg") >= 3
    assert "n1 is master of" in plain or "n2 is master of" in plain
    assert "opensplice-kv" in plain
    assert "DUR" in plain
    assert "only stores can tell" in plain


def test_the_decisive_alignment_is_drawn(traces: Traces, tmp_path: pathlib.Path) -> None:
    cut_off(traces, "REPLACE")
    text = written(tmp_path / "r.html", traces.write())
    check_self_contained(text)
    assert 'class="verdict bad"' in text
    assert "REPLACE applied" in text
    assert 'aria-label="Alignment of p.T"' in text
    assert 'aria-label="Size of p.T over time"' in text


def test_hostile_names_stay_text(traces: Traces, tmp_path: pathlib.Path) -> None:
    node = "n<script>alert(1)</script>"
    first, second = two(traces)
    traces.traces[node] = second
    second.path = traces.directory / "n<b onload=x>" / "durability.log"
    second.line(20, f"Removing confirmed fellow {HOSTILE}.", "remoteReader")
    second.line(21, f"Applying DELETE merge policy for group p.{HOSTILE}")
    second.line(22, "Applying DELETE merge policy for group p.T")
    first.line(60, "end")
    second.line(60, "end")
    directory = traces.write()
    group = described("<script>", "x\x1b[2J")
    write_ours(second.path.parent / "store", {group: [Message(1).sample()]})
    (second.path.parent / "n.xml").write_text(
        "<OpenSplice><Domain><Name>&lt;script&gt;</Name></Domain></OpenSplice>"
    )
    text = written(tmp_path / "r.html", directory)
    check_self_contained(text)
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def crowd(directory: pathlib.Path, samples: pathlib.Path, nodes: int) -> str:
    """Traces of a live-lock of many nodes, some of them with long names."""
    traced = [
        gzip.decompress(path.read_bytes())
        for path in sorted((samples / "traces/master-livelock").glob("*/*.gz"))
    ]
    ids = re.findall(rb"\b(?:992001269|1250527713|198994775|1094898357)\b", b"".join(traced))
    for number in range(nodes):
        group, member = divmod(number, len(traced))
        text = traced[member]
        for each in set(ids):
            text = text.replace(each, each[:-3] + b"%03d" % group)
        place = directory / (f"node-{number:03d}" + ("." + "long" * 30 if number % 50 == 0 else ""))
        place.mkdir(parents=True)
        (place / "durability.log").write_bytes(text[:150_000])
    return str(directory)


def check_everything_is_inside(text: str) -> None:
    """No text of a picture begins or ends outside of it, at 5.5 units for a character."""
    for drawn in re.findall(r"(?s)<svg.*?</svg>", text):
        picture = etree.fromstring(drawn)
        for one in picture.iter("{*}text"):
            length, x = 5.5 * len(one.text or ""), float(one.get("x", "nan"))
            start = x - {"start": 0.0, "middle": length / 2, "end": length}[one.get("text-anchor", "start")]
            assert start > -6, one.text
            assert start + length < 966, one.text


def test_many_nodes_stay_inside_the_pictures(samples: pathlib.Path, tmp_path: pathlib.Path) -> None:
    text = written(tmp_path / "r.html", crowd(tmp_path / "logs", samples, 36))
    check_self_contained(text)
    check_everything_is_inside(text)
    assert "4 more nodes, which changed less, are not drawn" in text
    assert "and 16 more. From" in text


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_a_browser_shows_and_prints_the_report(
    traces: Traces, samples: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    hostile = "n<script>document.title='run'</script>"
    first, second = two(traces)
    traces.traces[hostile] = second
    second.path = traces.directory / "n<img src=x onerror=document.title='run'>" / "durability.log"
    cut_off(traces, "REPLACE")
    first.line(90, f"Applying DELETE merge policy for group p.{HOSTILE}")
    wide = str(samples / "traces" / "master-livelock")
    stores = str(samples / "stores" / "after-merge")
    written(tmp_path / "r.html", traces.write(), wide, stores, crowd(tmp_path / "logs", samples, 40))
    asyncio.run(look(tmp_path))


async def look(directory: pathlib.Path) -> None:
    async with browser(directory / "profile") as tab:
        await tab.do("Page.navigate", url=(directory / "r.html").as_uri())
        loaded = "new Promise(done => document.readyState == 'complete' ? done() : (onload = done))"
        await tab.do("Runtime.evaluate", expression=loaded, awaitPromise=True)
        assert await tab.value("document.title") == "Incident report"
        assert await tab.value("performance.getEntriesByType('resource').length") == 0
        assert await tab.value("document.documentElement.scrollWidth <= innerWidth")
        broken = "[...document.querySelectorAll('th')].filter(one => one.offsetHeight > 40)"
        assert await tab.value(f"{broken}.map(one => one.innerText)") == []
        outside = (
            "[...document.querySelectorAll('svg text')].filter(one => { const box = one.getBBox();"
            " return box.x < -1 || box.x + box.width > 961 }).map(one => one.textContent)"
        )
        assert await tab.value(outside) == []
        printed = base64.b64decode((await tab.do("Page.printToPDF", printBackground=False))["data"])
        assert len(re.findall(rb"/Type\s*/Page\b", printed)) > 3
        assert await tab.value("document.title") == "Incident report"


def test_a_healthy_system_has_a_report_too(samples: pathlib.Path, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "r.html"
    assert main(["report", str(samples / "traces" / "late-joiner"), "-o", str(path)]) == 0
    text = path.read_text(encoding="utf-8")
    check_self_contained(text)
    assert 'class="verdict"' in text


def test_a_case_gives_the_report_of_its_files(
    traces: Traces, samples: pathlib.Path, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("duckdb", reason="cases need the extra `sql`")
    emptied(traces, kept=True)
    directory = traces.write()
    for node, number in (("a", 1), ("b", 2)):
        shutil.copy(samples / "three-nodes" / f"n{number}.xml", traces.directory / node / "ospl.xml")
    assert main(["trace", "load", directory, "-o", str(tmp_path / "case")]) == 0
    pieces = [
        re.sub(
            r'(?s)<p class="dim">Nodes:.*?</p>|<h2>What was looked at.*',
            "",
            written(tmp_path / "r.html", name),
        )
        for name in (directory, str(tmp_path / "case"))
    ]
    assert pieces[0] == pieces[1]
    assert "DUR" in pieces[0]


def test_a_file_is_not_overwritten_unasked(
    samples: pathlib.Path, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "r.html").write_text("precious")
    (tmp_path / "link.html").symlink_to(tmp_path / "elsewhere.html")
    for name in ("r.html", "link.html"):
        assert main(["report", str(samples / "traces" / "late-joiner"), "-o", str(tmp_path / name)]) == 2
    through = [
        "report",
        str(samples / "traces" / "late-joiner"),
        "-o",
        str(tmp_path / "link.html"),
        "--force",
    ]
    assert main(through) == 2
    assert (tmp_path / "r.html").read_text() == "precious"
    assert not (tmp_path / "elsewhere.html").exists()
    assert "--force" in capfd.readouterr().err


def test_the_report_is_there_as_json(traces: Traces, capfd: pytest.CaptureFixture[str]) -> None:
    emptied(traces, kept=False)
    assert main(["report", traces.write(), "--json"]) == 1
    answer = json.loads(capfd.readouterr().out)
    assert answer["kind"] == "report"
    assert answer["data"]["conclusions"][0]["kind"] == "lost"
