"""Every byte of a trace belongs to one record, whatever the flavour of the trace and however it is cut."""

from __future__ import annotations

import gc
import gzip
import itertools
import pathlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ospltool.trace.reading import damage
from ospltool.trace.reading.ranges import Range, _count, count_in_range, pieces, ranges, record_spans
from ospltool.trace.reading.reader import TraceParser, read_records
from ospltool.trace.reading.record import RecordKind, TimeBase, no_collection
from ospltool.trace.reading.sources import TraceFile, TraceFormat, plain_lines, prefix_of, sniff
from tests.trace.both_ways import compare

ISO = b"2026-11-21T01:08:30+0000 1795223310.294122015 "
SOURCE = TraceFile(pathlib.Path("durability.log"), "n1")

FRAGMENTS = st.sampled_from(
    [
        ISO + b"INIT (ospl_durability) -> ",
        ISO + b"COMPLETE (d_newGroup) -> ",
        b"2026-11-21T03:08:30+0200 1795223311.000000001 FETCH_INITIAL (x y) -> ",
        b"2026-11-21T01:08:30Z 1795223311.000000001 FETCH_INITIAL (x y) -> ",
        ISO + b"PersistentStore (KV) -> ",
        ISO + b"<<UNKNOWN>> (<main>) -> ",
        b"1510591395.741573630 INIT (mainThread) -> ",
        b"1970-01-01T00:00:01+0000 1.019691753 INIT (ospl_durability) -> ",
        b"-1.500000000 INIT (ospl_durability) -> ",
        b"2026-11-2xT01:08:30+0000 1795223310.294122015 INIT (t) -> ",
        b"2026-11-21T01:08:30+0000 17952233x0.294122015 INIT (t) -> ",
        b"2026-11-21T01:08:30+0000 1795223310.294122015 iNIT (t) -> ",
        b"COMPLETE (d_status) -> ",
        b"PersistentStore (XML) -> ",
        b"Group found: partA.T1 (PERSISTENT)",
        b"f(x) -> y (disposeCount: 1 -> 2)",
        b") -> ",
        b" (thread) -> ",
        b"COMPLETE",
        b"12",
        b"\n",
        b"\n\n\n",
        b"\r\n",
        b"- Role : DefaultRole\n",
        b"\xff\xfe broken",
        "größer ✓".encode(),
        b"\x1b[31m\x00",
        b"T" * 300,
    ]
)
TRACES = st.lists(FRAGMENTS, max_size=24).map(b"".join)


def parse(
    data: bytes, *, untimed: bool = False, cuts: tuple[int, ...] = ()
) -> list[tuple[RecordKind, int, bytes]]:
    parser = TraceParser(TraceFile(SOURCE.path, "n1", untimed=untimed))
    found = []
    edges = [0, *sorted(cuts), len(data)]
    for start, end in itertools.pairwise(edges):
        found += list(parser.feed(data[start:end]))
    found += list(parser.finish())
    return [(record.kind, record.offset, record.raw) for record in found]


@given(TRACES, st.booleans())
def test_records_together_are_the_file(data: bytes, untimed: bool) -> None:
    found = parse(data, untimed=untimed)
    assert b"".join(raw for _, _, raw in found) == data
    assert [offset for _, offset, _ in found] == [
        sum(len(raw) for _, _, raw in found[:index]) for index in range(len(found))
    ]


@given(TRACES, st.booleans(), st.data())
def test_records_do_not_depend_on_how_the_bytes_come_in(
    data: bytes, untimed: bool, more: st.DataObject
) -> None:
    cuts = more.draw(st.lists(st.integers(0, len(data)), max_size=6).map(tuple))
    assert parse(data, untimed=untimed, cuts=cuts) == parse(data, untimed=untimed)


@given(TRACES, st.booleans())
def test_the_fast_splitter_finds_what_the_reader_finds(data: bytes, untimed: bool) -> None:
    compare(data, untimed=untimed)


@given(data=TRACES, size=st.integers(20, 400))
def test_parts_of_a_file_have_the_records_of_the_whole(
    data: bytes, size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("ranges") / "durability.log"
    path.write_bytes(data)
    source = TraceFile(path, "n1")
    parts = list(ranges(source, size))
    found = []
    for part in parts:
        for offset, piece in pieces(part, size // 2 + 1):
            found += [(offset + at, raw) for _, at, raw in parse(piece)]
    assert found == [(offset, raw) for _, offset, raw in parse(plain_lines(data, prefix_of(data)))]


@given(
    TRACES,
    st.sampled_from([b"COMPLETE", b"12", b"Group", b"->", b"\xff", b"T" * 10, b"broken"]),
    st.booleans(),
)
def test_counting_and_finding_agree_with_reading(data: bytes, needle: bytes, untimed: bool) -> None:
    whole = [(offset, raw) for _, offset, raw in parse(data, untimed=untimed)]
    wanted = [(offset, raw) for offset, raw in whole if needle in raw]
    assert [(a, data[a:b]) for a, b in record_spans(data, needle, untimed=untimed)] == wanted
    count, counted = _count(bytearray(data), len(data), needle, untimed=untimed, counted=False)
    assert count == len(wanted)
    assert counted == bool(whole and needle in whole[-1][1])


@given(
    data=st.lists(TRACES, min_size=4, max_size=12).map(b"".join),
    needle=st.sampled_from([b"COMPLETE", b"12", b"Group", b"Role"]),
    block_bytes=st.integers(1, 1500),
)
def test_counting_does_not_depend_on_blocks(
    data: bytes, needle: bytes, block_bytes: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("blocks") / "durability.log"
    check_count_in_blocks(path, data, needle, block_bytes)


def check_count_in_blocks(path: pathlib.Path, data: bytes, needle: bytes, block_bytes: int) -> None:
    path.write_bytes(data)
    part = Range(TraceFile(path, "n1"), 0, None, len(data))
    expected = sum(needle in raw for _, _, raw in parse(data))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ospltool.trace.reading.ranges.BLOCK_BYTES", block_bytes)
        assert count_in_range(part, needle) == expected


BLOCKS = {
    "a record goes on in the last line, which has no end": (
        (ISO + b"INIT (t) -> x\n") * 2 + ISO + b"INIT (t) -> COMPLETE\n" + b"COMPLETE again " + b"x" * 99
    ),
    "what the block held before would make the last line a header": (
        b"12345678 (t) -> \n" + ISO + b"INIT (t) -> COMPLETE\n" + b"COMPLETE"
    ),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_records_at_the_edge_of_a_block_are_counted_once(name: str, tmp_path: pathlib.Path) -> None:
    check_count_in_blocks(tmp_path / "durability.log", BLOCKS[name], b"COMPLETE", 256)


CASES = {
    "this release": (
        ISO + b"INIT (ospl_durability) -> My address is: '1'\n",
        "INIT",
        "ospl_durability",
        1795223310294122015,
    ),
    "older release": (
        b"1510591395.741573630 INIT (mainThread) -> x\n",
        "INIT",
        "mainThread",
        1510591395741573630,
    ),
    "relative": (b"1970-01-01T00:00:01+0000 1.019691753 INIT (t) -> x\n", "INIT", "t", 1019691753),
    "before the start": (b"1969-12-31T23:59:58+0000 -1.500000000 INIT (t) -> x\n", "INIT", "t", -1500000000),
    "no timestamps": (b"FETCH_INITIAL (d_status) -> x\n", "FETCH_INITIAL", "d_status", None),
    "store": (ISO + b"PersistentStore (KV) -> opened\n", "", "PersistentStore (KV)", 1795223310294122015),
    "store, no timestamps": (b"PersistentStore (XML) -> opened\n", "", "PersistentStore (XML)", None),
    "unknown state": (ISO + b"<<UNKNOWN>> (<main>) -> x\n", "<<UNKNOWN>>", "<main>", 1795223310294122015),
}


@pytest.mark.parametrize("name", CASES)
def test_headers_of_all_releases_are_understood(name: str) -> None:
    data, state, thread, time_ns = CASES[name]
    (record,) = TraceParser(TraceFile(SOURCE.path, "n1", untimed=time_ns is None)).parse(data, 0)
    assert (record.state, record.thread, record.time_ns) == (state, thread, time_ns)
    assert record.kind is RecordKind.TRACE


@pytest.mark.parametrize(
    ("seconds", "clock"),
    [(b"1795223310", TimeBase.ABSOLUTE), (b"12", TimeBase.RELATIVE), (b"315359999", TimeBase.RELATIVE)],
)
def test_small_times_count_from_the_start(seconds: bytes, clock: TimeBase) -> None:
    (record,) = TraceParser(SOURCE).parse(seconds + b".000000000 INIT (t) -> x\n", 0)
    assert record.clock is clock


def test_a_cut_message_has_the_next_header_on_its_line() -> None:
    cut = ISO + b"COMPLETE (d_nameSpaces) -> " + b"x" * 1022
    data = cut + ISO + b"COMPLETE (d_status) -> next\n"
    first, second = TraceParser(SOURCE).parse(data, 0)
    assert (first.text, first.terminated) == ("x" * 1022, False)
    assert (second.text, second.offset) == ("next", len(cut))


def test_the_last_header_of_a_line_wins_no_byte_of_the_one_before() -> None:
    data = b"1510591395.000000001 INIT (a) -> count 12" + b"1510591396.000000002 INIT (b) -> y\n"
    first, second = TraceParser(SOURCE).parse(data, 0)
    assert first.text == "count 12"
    assert second.time_ns == 1510591396000000002


def test_a_header_without_time_counts_within_a_line_only_in_a_file_without_times() -> None:
    data = b"COMPLETE (a) -> cut offCOMPLETE (b) -> next\n"
    assert [r.text for r in TraceParser(TraceFile(SOURCE.path, "n", untimed=True)).parse(data, 0)] == [
        "cut off",
        "next",
    ]
    assert len(list(TraceParser(SOURCE).parse(data, 0))) == 1


def test_lines_without_header_belong_to_the_record_before(samples: pathlib.Path) -> None:
    first = next(read_records(sniff(samples / "late-joiner" / "n1" / "durability.log", "n1")))
    assert first.text.startswith("Configuration:\n- OSPL Version")
    assert first.template is not None
    assert first.template.event == "lifecycle.configuration"
    assert first.text.count("\n") > 60


def test_bytes_before_the_first_record_are_shown_not_dropped() -> None:
    data = b"half a line of a rotated file\n" + ISO + b"COMPLETE (t) -> x\n"
    first, second = TraceParser(SOURCE).parse(data, 0)
    assert (first.kind, first.length, second.kind) == (RecordKind.UNPARSED, 30, RecordKind.TRACE)


def test_an_endless_record_is_cut_and_nothing_of_it_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ospltool.trace.reading.reader.LONGEST_RECORD", 1000)
    data = ISO + b"COMPLETE (t) -> " + b"x\n" * 3000 + ISO + b"COMPLETE (t) -> next\n"
    for size in (100, 700, 5000, len(data)):
        parser = TraceParser(SOURCE)
        found = [r for at in range(0, len(data), size) for r in parser.feed(data[at : at + size])]
        found += list(parser.finish())
        assert b"".join(record.raw for record in found) == data
        assert found[0].kind is RecordKind.TRACE
        assert found[-1].text == "next"
        assert {record.kind for record in found[1:-1]} == {RecordKind.UNPARSED}
        assert max(record.length for record in found) <= 6100


def test_a_file_of_anything_is_read_in_bounded_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ospltool.trace.reading.reader.LONGEST_RECORD", 1000)
    parser = TraceParser(SOURCE)
    found = [record for _ in range(50) for record in parser.feed(b"no trace at all " * 20)]
    assert parser.pending <= 2000
    assert {record.kind for record in found} == {RecordKind.UNPARSED}


def test_runs_are_counted_from_their_first_state(samples: pathlib.Path, tmp_path: pathlib.Path) -> None:
    one = (samples / "late-joiner" / "n1" / "durability.log").read_bytes()
    path = tmp_path / "durability.log"
    path.write_bytes(b"".join(one.splitlines(keepends=True)[-5:]) + one + one)
    runs = [record.run for record in read_records(sniff(path, "n1"))]
    assert (runs[0], runs[6], runs[-1]) == (0, 1, 2)
    assert runs == sorted(runs)


def test_late_writers_are_marked() -> None:
    lines = [b"1795223310.00000000%d COMPLETE (t) -> x\n" % nanos for nanos in (5, 3, 4, 6)]
    records = list(TraceParser(SOURCE).parse(b"".join(lines), 0))
    assert [record.out_of_order for record in records] == [False, True, True, False]


@pytest.mark.parametrize("name", ["late-joiner", "master-livelock"])
def test_real_traces_are_known_to_the_catalogue(name: str, samples: pathlib.Path) -> None:
    total = unmatched = 0
    for path in sorted((samples / name).rglob("durability.log*")):
        for record in read_records(sniff(path, "n")):
            total += 1
            unmatched += record.template is None
    assert total > 2000
    assert unmatched / total <= 0.005


def compress_gz(data: bytes) -> bytes:
    return gzip.compress(data)


def compress_zst(data: bytes) -> bytes:
    zstd = pytest.importorskip("backports.zstd", reason=".zst needs the extra `sql`")
    half = len(data) // 2
    return bytes(zstd.compress(data[:half]) + zstd.compress(data[half:]))  # two frames, as `cat` makes them


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", compress_gz), (".zst", compress_zst)])
def test_compressed_files_have_the_same_records(
    suffix: str, compress: Callable[[bytes], bytes], samples: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    plain = samples / "late-joiner" / "n2" / "durability.log"
    packed = tmp_path / f"durability.log{suffix}"
    packed.write_bytes(compress(plain.read_bytes()))
    expected = [(r.offset, r.raw) for r in read_records(sniff(plain, "n"))]
    assert [(r.offset, r.raw) for r in read_records(sniff(packed, "n"))] == expected


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_cut_compressed_file_gives_what_is_sound(suffix: str, tmp_path: pathlib.Path) -> None:
    if suffix == ".zst":
        pytest.importorskip("backports.zstd", reason=".zst needs the extra `sql`")
    path = tmp_path / f"durability.log{suffix}"
    whole = compress_gz(ISO * 20_000) if suffix == ".gz" else compress_zst(ISO * 20_000)
    path.write_bytes(whole[:-5])
    *sound, last = read_records(TraceFile(path, "n"))
    assert b"".join(record.raw for record in sound) == (ISO * 20_000)[: last.offset]
    assert last.kind is RecordKind.DAMAGED
    assert last.offset > 0
    (noted,) = damage.collect()
    assert (noted.file, noted.offset) == (str(path), last.offset)


def test_bytes_that_are_not_utf8_survive() -> None:
    data = ISO + b"COMPLETE (t) -> Group found: part\xff.T1 (PERSISTENT)\n"
    (record,) = TraceParser(SOURCE).parse(data, 0)
    assert record.raw == data
    assert record.fields["group"] == "part\udcff.T1"


def test_our_own_trace_in_json_is_read(tmp_path: pathlib.Path) -> None:
    good = (
        '{"format_version":1,"kind":"trace-event","data":{"sequence":1,"time_ns":1795223310000000001,'
        '"event":"group.complete","level":"FINER","state":"COMPLETE","thread":"d_sampleChain",'
        '"text":"Group partA.T1 is now complete.","fields":{"group":"partA.T1"}}}\n'
    )
    path = tmp_path / "n1.jsonl"
    path.write_text(good + "no json\n" + good.replace('"COMPLETE"', "7"), encoding="utf-8")
    source = sniff(path, "n1")
    assert source.format is TraceFormat.EVENTS
    record, broken, wrong = read_records(source)
    assert (record.event, record.fields, record.level) == ("group.complete", {"group": "partA.T1"}, "FINER")
    assert {broken.kind, wrong.kind} == {RecordKind.UNPARSED}
    assert record.length + broken.length + wrong.length == path.stat().st_size


def test_what_was_made_without_collection_is_not_traversed_at_once() -> None:
    """The collector stopped a command for many seconds after it had read a large case."""
    traversed: list[int] = []
    young = gc.get_threshold()[0]  # a command that another test ran in this process may have raised it

    def note(phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            traversed.append(len(gc.get_objects(generation=0)))

    gc.callbacks.append(note)
    try:
        with no_collection():
            kept = [[number] for number in range(4 * young)]
        more = [[number] for number in range(2 * young)]
    finally:
        gc.callbacks.remove(note)
    assert traversed
    assert max(traversed) < len(kept) / 2, len(more)


OPENED = "1510766331.822931533 PersistentStore (XML) -> Persistent store directory '/s' openened.\n"
ONE_RUN = (
    "1510766331.823106032 INIT (groupLocalListener) -> x\n"
    "1510766331.834855694 INIT (mainThread) -> ----LEAVING STATE----\n"
    "1510766331.834950581 DISCOVER_FELLOWS_GROUPS (mainThread) -> ----ENTERING STATE----\n"
    "1510766331.834884992 INIT (statusThread) -> a late line\n"
    "1510766331.835146043 DISCOVER_FELLOWS_GROUPS (statusThread) -> x\n"
    "1510766331.835247000 INIT (statusThread) -> another late line\n"
    "1510766331.835451771 DISCOVER_FELLOWS_GROUPS (mainThread) -> My address is: '1932982532'\n"
    "1510766339.147944784 COMPLETE (mainThread) -> ----ENTERING STATE----\n"
)


def test_late_lines_begin_no_run_and_the_store_begins_its_own(tmp_path: pathlib.Path) -> None:
    """As releases before 6.9 write them: no report of the configuration, and the store comes first."""
    path = tmp_path / "durability.log"
    one = OPENED + ONE_RUN
    path.write_text(one + one.replace("15107663", "15107664") + one.replace("15107663", "15107665"))
    runs = [record.run for record in read_records(sniff(path, "n1"))]
    assert runs == [1] * 9 + [2] * 9 + [3] * 9
