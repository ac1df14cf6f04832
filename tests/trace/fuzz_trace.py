"""What reads traces and logs, as targets for damaged files."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import pathlib
import tempfile
from collections.abc import Callable, Sequence
from typing import Final

import engine
from engine.tracing.catalogue import catalogue
from ospltool.analytics.contract import Detail
from ospltool.forensics import cause, text
from ospltool.forensics.investigation import Investigation, verdict
from ospltool.forensics.page import About, page
from ospltool.forensics.story import stories
from ospltool.trace.case.bundles import read_pieces
from ospltool.trace.meaning.trace_facts import TraceFacts
from ospltool.trace.reading import damage
from ospltool.trace.reading.ranges import ranges
from ospltool.trace.reading.reader import merged
from ospltool.trace.reading.sources import SourceError, find_sources
from ospltool.trace.rules import anomalies
from ospltool.trace.views import conversation, render, timeline
from tests.fuzzing import CHEAP, Target
from tests.trace import both_ways

SAMPLES: Final = pathlib.Path(engine.__path__[0]).parent / "samples" / "traces"
EXCERPT_BYTES: Final = 4_000


def _excerpts(data: bytes) -> list[bytes]:
    """A file in parts that are read fast."""
    cuts = [data.rfind(b"\n", 0, at) + 1 for at in range(0, len(data), EXCERPT_BYTES)]
    return [data[start:end] for start, end in itertools.pairwise([*cuts, len(data)]) if start < end]


def traces() -> list[bytes]:
    plain = [path.read_bytes() for path in sorted(SAMPLES.rglob("durability.log"))]
    packed = [gzip.decompress(path.read_bytes()) for path in sorted(SAMPLES.rglob("durability.log.gz"))]
    return [part for data in (*plain, *packed) for part in _excerpts(data)]


def _events() -> list[bytes]:
    """A line of JSON for each event of our engine."""
    start = '{"format_version":1,"kind":"trace-event","data":{"time_ns":'
    lines = [
        f'{start}{1795223310000000000 + number},"state":"COMPLETE","thread":"{kind.thread}","level":'
        f'"{kind.level.name}","event":"{kind.id}","text":"text","fields":{{"fellow":"n2","namespace":"ns",'
        f'"group":"p.T","conflict":"1/2","samples":7}},"lines":["more"]}}}}\n'
        for number, kind in enumerate(catalogue().values())
    ]
    return ["".join(lines[at : at + 20]).encode() for at in range(0, len(lines), 20)]


def _read_all(name: str) -> Callable[[bytes], None]:
    """Reads a file of this name as all verbs do, and loads it."""

    def read(data: bytes) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            path = pathlib.Path(scratch) / "n1" / name
            path.parent.mkdir()
            path.write_bytes(data)
            sources = find_sources([str(path)]).sources
            records = list(merged(sources))
            for record in records:
                render.full(record)
                render.json_line(record).encode()
            facts = TraceFacts.from_records(records)
            _judge(facts)
            list(timeline.as_text(timeline.timeline(facts)))
            conversation.conversation(merged(sources), "partA.T1").arrows()
            for source in sources:
                loaded = sum(
                    piece.table.num_rows
                    for part in ranges(source)
                    for _, piece in read_pieces(part, Detail.FULL)
                )
                assert loaded == len(records), f"{loaded} records loaded, {len(records)} read"
            damage.collect()

    return read


def _scan(data: bytes) -> None:
    """Scans with the compiled library, and header by header."""
    both_ways.compare(data, untimed=len(data) % 2 > 0)


def _explain(data: bytes) -> None:
    """Explains it as a pasted text."""
    with contextlib.suppress(cause.UnknownFileError, SourceError):
        for line in cause.as_text(cause.explain_text(data, {}), 100):
            assert line.isprintable(), f"{line!r} has control characters"


def _judge(facts: TraceFacts) -> None:
    """Draws the verdict, tells the stories and writes the report."""
    found = tuple(anomalies(facts))
    drawn = verdict(facts, found)
    judged = Investigation(facts, found, drawn, tuple(stories(found, drawn.conclusions)), None)
    for line in text.as_text(judged):
        assert line.isprintable(), f"{line!r} has control characters"
    json.dumps(text.as_value(judged), default=str)
    written = page(judged, About(("n1",), ("n1",), (), None, "test"))
    assert "<script" not in written
    written.encode("utf-8")


def _zstd(data: bytes) -> bytes:
    from backports import zstd

    return zstd.compress(data)


def targets() -> Sequence[Target]:
    """All readers of traces and logs."""
    samples = traces()
    return (
        Target("trace", samples, _read_all("durability.log")),
        Target(
            "trace-gz", [gzip.compress(one, mtime=0) for one in samples[:5]], _read_all("durability.log.gz")
        ),
        Target("trace-zst", [_zstd(one) for one in samples[:5]], _read_all("durability.log.zst")),
        Target("trace-scan", [one[-800:] for one in samples], _scan, goal=CHEAP),
        Target("trace-events", _events(), _read_all("durability.log")),
        Target("explain", [*samples[:5], *map(str.encode, ("<General>", "URI=file://x"))], _explain),
        Target(
            "trace-reports",
            [
                part
                for path in sorted(SAMPLES.rglob("ospl-info.log"))
                for part in _excerpts(path.read_bytes())
            ],
            _read_all("ospl-info.log"),
        ),
    )
