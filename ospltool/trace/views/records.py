"""`ospltool trace`: shows the records that an operator asks for."""

from __future__ import annotations

import dataclasses
import enum
import pathlib
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final

from ospltool.output import streams, text
from ospltool.output.text import plural
from ospltool.output.times import clock_since, duration, iso, parse_around, parse_duration, parse_time
from ospltool.trace.reading.follow import FileNotice, GrowingFiles, check_can_be_followed
from ospltool.trace.reading.ranges import count_records
from ospltool.trace.reading.reader import corrected
from ospltool.trace.reading.record import TraceRecord
from ospltool.trace.reading.sources import SourceSet, TraceFile, as_written
from ospltool.trace.views import overview, render
from ospltool.trace.views.selection import (
    RecordFilter,
    RecordTally,
    SelectedRecord,
    estimate_skews,
    find_names,
    first_time,
    last,
    seen_whole_from,
    select,
)

# As `tail`.
FOLLOWED_LINES: Final = 10
# What a pipe of Linux holds.
BUFFERED: Final = 1 << 16
# A person sees the first ones at once, however slowly the rest comes.
FIRST_SCREEN: Final = 60
"""Records that are written one by one; later ones are written in larger pieces."""

# With its labels a line of 80 or so.
BAR_WIDTH: Final = 60


class ViewMode(enum.Enum):
    """Form in which records are shown."""

    RECORDS = "records"
    COUNT = "count"
    HISTOGRAM = "histogram"
    TEMPLATES = "templates"
    UNKNOWN = "unknown"


@dataclasses.dataclass(frozen=True, slots=True)
class ViewOptions:
    """The options of `ospltool trace`, as the user wrote them."""

    filter: RecordFilter = dataclasses.field(default_factory=RecordFilter)
    """Conditions that do not depend on the trace."""
    fellows: tuple[str, ...] = ()
    """Names or addresses of nodes."""
    since: str | None = None
    """Earliest time."""
    until: str | None = None
    """Latest time."""
    around: str | None = None
    """`TIME±DURATION`."""
    skews: tuple[str, ...] = ()
    """`NODE=DURATION`, or `auto`."""
    mode: ViewMode = ViewMode.RECORDS
    """Form in which records are shown."""
    output: str = "short"
    """Short, full, raw, jsonl, json, parquet or `template=...`."""
    lines: int | None = None
    """Number of last records to show; None for all."""
    before: int = 0
    """Number of records to show before each wanted one."""
    after: int = 0
    """Number of records to show after each wanted one."""
    gaps: str | None = None
    """Least duration of a silence to mark; None for no marks."""
    span: str = "1s"
    """Width of the spans of a histogram."""
    highlight: re.Pattern[str] | None = None
    """Expression to highlight."""
    follow: bool = False
    """Keep reading as the files grow."""
    colour: str = "auto"
    """Auto, always or never."""


def show(found: SourceSet, options: ViewOptions, environ: dict[str, str]) -> None:
    """Show the wanted records on standard output; colours depend on `environ`, too.

    Raises:
        SourceError: a source cannot be read.
        TimeError: a time is malformed.
        RenderError: the output is unknown or impossible.
    """
    sources = found.sources
    if found.skipped:
        skipped = plural(len(found.skipped), "file was skipped", "files were skipped")
        streams.notify(f"{skipped}: neither a trace nor a log")
    if options.mode is ViewMode.COUNT and not options.follow:
        needle = options.filter.only_needle
        plain = needle is not None and options == dataclasses.replace(
            ViewOptions(mode=ViewMode.COUNT),
            filter=options.filter,
            output=options.output,
            colour=options.colour,
        )
        if needle is not None and plain:
            _put_count(count_records(sources, needle), options)
            return
    if options.follow:
        check_can_be_followed(sources)
    skews = skews_of(sources, options.skews)
    wanted = resolved(sources, options)
    tally = RecordTally()
    chosen = _shown(sources, wanted, options, skews, tally)
    shown = chosen if wanted.since_ns is wanted.until_ns is None else _never_silent(chosen, wanted, sources)
    match options.mode:
        case ViewMode.COUNT:
            _put_count(sum(one.wanted for one in shown), options)
        case ViewMode.HISTOGRAM:
            _put_histogram((one.record for one in shown), options)
        case ViewMode.TEMPLATES | ViewMode.UNKNOWN:
            _put_kinds((one.record for one in shown), options)
        case ViewMode.RECORDS:
            _put_records(sources, shown, options, environ)
    _say_what_was_left_out(tally, bool(options.lines is not None), skews)
    if options.follow and options.mode is ViewMode.RECORDS:
        _follow(found, wanted, options, skews, environ)


def _never_silent(
    chosen: Iterable[SelectedRecord], wanted: RecordFilter, sources: Sequence[TraceFile]
) -> Iterator[SelectedRecord]:
    """Pass records on; if there are none, say which time was meant and where the records begin."""
    nothing = True
    for one in chosen:
        nothing = False
        yield one
    if nothing:
        first_ns = first_time(sources)
        begin = "-" if wanted.since_ns is None else iso(wanted.since_ns, 3)
        end = "-" if wanted.until_ns is None else iso(wanted.until_ns, 3)
        known = "no record has a time" if first_ns is None else f"the first is of {iso(first_ns, 3)}"
        streams.notify(f"no such record from {begin} to {end}; {known}")


def resolved(sources: Sequence[TraceFile], options: ViewOptions) -> RecordFilter:
    """Return the conditions with names of nodes as addresses, and times as numbers."""
    wanted = options.filter
    if options.fellows:
        names = find_names(sources)
        addresses = tuple(address for name in options.fellows for address in names.addresses(name))
        wanted = dataclasses.replace(wanted, fellows=addresses)
    if options.since or options.until or options.around:
        reference = first_time(sources)
        since = parse_time(options.since, reference) if options.since else None
        until = parse_time(options.until, reference, is_later=True) if options.until else None
        if options.around:
            first, last_time = parse_around(options.around, reference)
            since = first if since is None else max(first, since)
            until = last_time if until is None else min(last_time, until)
        wanted = dataclasses.replace(wanted, since_ns=since, until_ns=until)
    return wanted


def skews_of(sources: Sequence[TraceFile], options: Iterable[str]) -> dict[str, int]:
    """Return the correction of each node, as the user wrote it, or estimated from the traces (`auto`)."""
    skews: dict[str, int] = {}
    for wish in options:
        if wish == "auto":
            for skew in estimate_skews(sources):
                skews[skew.node] = skew.add_ns
                known = "no messages both ways, so not corrected"
                if skew.uncertainty_ns == skew.pairs == 0:
                    known = "the others are measured against it"
                elif skew.uncertainty_ns is not None:
                    known = f"±{duration(skew.uncertainty_ns)}, from {plural(skew.pairs, 'message')}"
                streams.notify(f"skew of {skew.node}: {duration(skew.add_ns)} ({known})")
            continue
        node, add_ns = skew_of(wish, {source.node for source in sources})
        skews[node] = add_ns
    return skews


def skew_of(wish: str, nodes: Collection[str]) -> tuple[str, int]:
    """Parse `NODE=DURATION`; return the node and its correction in ns.

    Raises:
        TimeError: the duration is malformed.
        RenderError: the text has another form, or names an unknown node.
    """
    node, separator, length = wish.partition("=")
    if not separator:
        raise render.RenderError(f"{wish!r}: write NODE=DURATION, for instance n2=+1.3s, or auto")
    if node not in nodes:
        raise render.RenderError(f"{wish!r}: no node {node}; there are {', '.join(sorted(nodes))}")
    return node, parse_duration(length)


def _shown(
    sources: Sequence[TraceFile],
    wanted: RecordFilter,
    options: ViewOptions,
    skews: dict[str, int],
    tally: RecordTally,
) -> Iterable[SelectedRecord]:
    if options.mode is ViewMode.RECORDS and (options.lines is not None or options.follow):
        count = FOLLOWED_LINES if options.lines is None else options.lines
        ends = {source: seen_whole_from(source) for source in sources} if options.follow else {}
        return last(sources, wanted, count, skews, ends)
    whole = (
        options.output not in {"short", "raw"}
        or options.mode is not ViewMode.RECORDS
        or wanted.run is not None
    )
    return select(
        sources, wanted, skews_ns=skews, before=options.before, after=options.after, tally=tally, whole=whole
    )


class _Writer:
    """A writer of the first records one by one, so that they can be read at once, then of larger pieces."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._size = 0
        self._records = 0

    def put(self, piece: str) -> None:
        """Add a piece of text."""
        self._pieces.append(piece)
        self._size += len(piece)
        self._records += 1
        if self._size >= BUFFERED or self._records == FIRST_SCREEN:
            self.flush()

    def flush(self) -> None:
        """Write all pieces."""
        if self._pieces:
            streams.put("".join(self._pieces))
            self._pieces.clear()
            self._size = 0


def _options_of(
    sources: Sequence[TraceFile], options: ViewOptions, environ: dict[str, str]
) -> render.RenderOptions:
    nodes = {source.node for source in sources}
    return render.RenderOptions(
        colour=streams.wants_colour(sys.stdout, environ, options.colour),
        highlight=options.highlight,
        node_width=max(map(len, nodes)) if len(nodes) > 1 else 0,
    )


def _renderer(
    sources: Sequence[TraceFile], options: ViewOptions, environ: dict[str, str]
) -> Callable[[TraceRecord], str]:
    look = _options_of(sources, options, environ)
    match options.output:
        case "short":
            return lambda record: render.short(record, look)
        case "full":
            return lambda record: render.full(record, look)
        case "jsonl":
            return render.json_line
        case output if output.startswith("template="):
            return render.by_template(output.removeprefix("template="))
        case output:
            raise render.RenderError(
                f"{output!r} is not an output: choose short, full, raw, jsonl, json, parquet or template=…"
            )


def _put_records(
    sources: Sequence[TraceFile],
    shown: Iterable[SelectedRecord],
    options: ViewOptions,
    environ: dict[str, str],
) -> None:
    if options.output == "parquet":
        _put_parquet(one.record for one in shown)
        return
    if options.output == "raw":
        _put_raw(one.record for one in shown)
        return
    if options.output == "json":
        _put_json(one.record for one in shown)
        return
    as_text = _renderer(sources, options, environ)
    gap_ns = parse_duration(options.gaps) if options.gaps else None
    writer = _Writer()
    for piece in _pieces(shown, as_text, gap_ns, mark=options.output != "jsonl"):
        writer.put(piece)
    writer.flush()


def _pieces(
    shown: Iterable[SelectedRecord], as_text: Callable[[TraceRecord], str], gap_ns: int | None, *, mark: bool
) -> Iterator[str]:
    before: int | None = None
    for one in shown:
        if one.apart and mark:
            yield "--\n"
        time = one.record.time_ns
        if gap_ns is not None and mark and time is not None:
            if before is not None and time - before >= gap_ns:
                yield f"-- {duration(time - before)} of silence --\n"
            before = time
        yield f"{as_text(one.record)}\n"


def _put_raw(records: Iterable[TraceRecord]) -> None:
    """Write the bytes of the records; on a terminal without unprintable characters."""
    if sys.stdout.isatty():
        for record in records:
            streams.put(text.visible(record.raw.decode("utf-8", "replace"), keep_lines=True))
        return
    streams.put("")
    for record in records:
        streams.put_bytes(as_written(pathlib.Path(record.file), record.offset, record.raw))
    streams.put("")


def _put_json(records: Iterable[TraceRecord]) -> None:
    """Write all records in one document, as they come."""
    from ospltool.output import envelope  # only for this output

    head = envelope.line("trace-records", []).rstrip("\n")
    begin, end = head[: -len("]}")], head[-len("]}") :]
    writer = _Writer()
    writer.put(begin)
    separator = "\n"
    for record in records:
        one = envelope.line("", render.as_json(record)).rstrip("\n")
        writer.put(separator + one[one.index('"data":') + len('"data":') : -1])
        separator = ",\n"
    writer.put(f"\n{end}\n")
    writer.flush()


def _put_parquet(records: Iterable[TraceRecord]) -> None:
    if sys.stdout.isatty():
        raise render.RenderError("parquet is not for a terminal; redirect standard output to a file")
    from ospltool.trace.case.columnar import write_parquet  # needs pyarrow

    sys.stdout.flush()
    write_parquet(records, sys.stdout.buffer)


def _put_count(count: int, options: ViewOptions) -> None:
    if options.output in {"json", "jsonl"}:
        from ospltool.output import envelope

        streams.put(envelope.line("trace-count", {"records": count}))
    else:
        streams.put(f"{count}\n")


def _put_histogram(records: Iterable[TraceRecord], options: ViewOptions) -> None:
    spans = overview.histogram(records, parse_duration(options.span))
    if options.output in {"json", "jsonl"}:
        from ospltool.output import envelope

        data = [{"start_ns": span.start_ns, "counts": span.counts} for span in spans]
        streams.put(envelope.document("trace-histogram", data))
        return
    most = max((span.total for span in spans), default=0)
    for span in spans:
        begun = clock_since(spans[0].start_ns, span.start_ns)
        streams.put(f"{begun:<13}{span.total:>9}  {overview.bar(span, most, BAR_WIDTH)}\n")


def _put_kinds(records: Iterable[TraceRecord], options: ViewOptions) -> None:
    kinds = overview.by_template(records, unknown_only=options.mode is ViewMode.UNKNOWN)
    if options.output in {"json", "jsonl"}:
        from ospltool.output import envelope

        streams.put(envelope.document("trace-templates", kinds))
        return
    header = ("COUNT", "LEVEL", "TEMPLATE", "MESSAGE")
    streams.put(
        text.table(header, [(one.count, one.level, one.template or "-", one.pattern) for one in kinds])
    )


def _say_what_was_left_out(tally: RecordTally, only_last: bool, skews: dict[str, int]) -> None:
    if only_last:
        return
    if tally.unparsed_bytes:
        unparsed = plural(tally.unparsed_bytes, "byte belongs", "bytes belong")
        streams.notify(f"{unparsed} to no record, shown as unparsed")
    if tally.unmatched:
        streams.notify(
            f"{tally.unmatched:,} of {plural(tally.records, 'record')} match no template; "
            "--unknown lists them"
        )
    if tally.untimed:
        streams.notify(
            f"{plural(tally.untimed, 'record has', 'records have')} no timestamp, and no other place than "
            "in the file"
        )
    relative = sorted(tally.relative - skews.keys())
    if relative:
        names = ", ".join(relative)
        streams.notify(
            f"times of {names} count from the start of the service; --skew {relative[0]}=+DURATION places "
            "them"
        )


def _follow(
    found: SourceSet,
    wanted: RecordFilter,
    options: ViewOptions,
    skews: dict[str, int],
    environ: dict[str, str],
) -> None:
    starts = {source.file: seen_whole_from(source) for source in found.sources}
    sources = (*found.sources, *found.awaited)
    growing = GrowingFiles(sources, starts, None if options.output == "full" else wanted.needle)
    as_text = None if options.output == "raw" else _renderer(sources, options, environ)
    forever = threading.Event()
    try:
        for batch in growing.run(forever.wait):
            follow_batch(batch, wanted, skews, as_text)
    finally:
        growing.close()


def follow_batch(
    batch: list[TraceRecord | FileNotice],
    wanted: RecordFilter,
    skews: dict[str, int],
    as_text: Callable[[TraceRecord], str] | None,
) -> None:
    """Show a batch: the records of all files by time, and notices on standard error.

    `skews` are the corrections of clocks in nanoseconds, by node; `as_text` renders a record.
    """
    records: list[TraceRecord] = []
    for one in batch:
        if isinstance(one, FileNotice):
            streams.notify(one)
            continue
        record = corrected(one, skews.get(one.node, 0))
        if wanted(record):
            records.append(record)
    # Files are read one after the other; a stable sort keeps the order within each.
    records.sort(key=lambda record: record.time_ns or 0)
    if not records:
        return
    if as_text is None:
        _put_raw(records)
    else:
        streams.put("".join(f"{as_text(record)}\n" for record in records))
