"""`ospltool show`: the system, or one kind of thing in it, as tables."""

from __future__ import annotations

import csv
import dataclasses
import enum
import io
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from engine.config.values import did_you_mean
from ospltool.cli import domains, exits
from ospltool.cli.exits import CommandError, Exit
from ospltool.cli.options import LiveTarget, SourceOptions, duration, uri_argument
from ospltool.cli.targets import is_uri
from ospltool.health.export import csv_field
from ospltool.health.system import System
from ospltool.live.expectation import NOTHING
from ospltool.live.feed import TimeTravel
from ospltool.output import envelope, libraries, streams
from ospltool.output.text import Style, paint
from ospltool.views import alignment, node, pages
from ospltool.views import text as text_views
from ospltool.views.cells import ASCII, Line, Span, Tone, choose, plain
from ospltool.views.pages import PAGES, WIDE, Layout, Section, UnknownName
from ospltool.views.view import AGES, Filter, View, shown

if TYPE_CHECKING:
    from engine.supervisor.node_status import NodeStatus


class Format(enum.StrEnum):
    """Form of the output."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


@dataclasses.dataclass(frozen=True, slots=True)
class TableOptions:
    """How tables are printed."""

    form: Annotated[
        Format,
        typer.Option("--format", help="Print a table, one with all columns (wide), or json, jsonl or csv."),
    ] = Format.TABLE
    columns: Annotated[
        str, typer.Option(metavar="LIST", help="Print only these columns, separated by commas.")
    ] = ""
    sort: Annotated[
        str,
        typer.Option(metavar="COLUMN", help="Sort by this column; --sort=-COLUMN puts the largest first."),
    ] = ""
    search: Annotated[
        str,
        typer.Option(
            "--filter",
            metavar="TEXT",
            help="Print only rows with all these words; !word, node:n2 as in the console.",
        ),
    ] = ""
    no_header: Annotated[bool, typer.Option("--no-header", help="Leave out headings and titles.")] = False

    @property
    def is_text(self) -> bool:
        """Whether tables are printed for people."""
        return self.form in (Format.TABLE, Format.WIDE)

    @property
    def layout(self) -> Layout:
        """The columns and their order."""
        names = tuple(name.strip() for name in self.columns.split(",") if name.strip())
        return Layout(names, self.sort, has_header=not self.no_header)


Uri = Annotated[
    str | None,
    uri_argument("Use the domain of this configuration or fleet file (.toml)."),
]
Moment = Annotated[
    str | None,
    typer.Option(
        metavar="MOMENT", help="Show this moment of a recording or simulation, such as +90 or 12:30:05."
    ),
]
# Twice as long as the feed holds them back.
ENDPOINTS_S: Final = 0.5
"""Time in which no reader or writer must have come before a page of them is printed."""
WHAT: Final = f"Show one kind of thing: {', '.join(PAGES)}."


def _complete_what(incomplete: str) -> list[str]:
    return [one for one in PAGES if one.startswith(incomplete)]


def _complete_name(context: typer.Context, incomplete: str) -> list[str]:
    """Return the nodes, name-spaces or topics of what runs; nothing if that cannot be known."""
    page = PAGES.get(context.params.get("what") or "")
    if page is None:
        return []
    try:
        source = domains.sources(
            context.params.get("uri") or os.environ.get("OSPL_URI"),
            LiveTarget(context.params.get("domain")),
            SourceOptions(),
            is_one=True,
        )[0]
        system = System(source)
        try:
            domains.listen_briefly(system)
            return [one for one in page.names(_view(system)) if one.startswith(incomplete)]
        finally:
            system.feed.close()
    except CommandError:
        return []


def show(
    what: Annotated[
        str,
        typer.Argument(metavar="WHAT", help=WHAT, autocompletion=_complete_what),
    ] = "",
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Show one node, name-space, topic, application or incident in full.",
            autocompletion=_complete_name,
        ),
    ] = "",
    uri: Uri = None,
    *,
    target: LiveTarget,
    source: SourceOptions,
    at: Moment = None,
    watch: Annotated[
        bool,
        typer.Option("--watch", "-w", help="Keep showing: in place on a terminal, else changes as lines."),
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="With alignment: show progress until every set is whole.")
    ] = False,
    timeout_s: float | None = duration(None, "End --wait after this time.", "--timeout"),
    table: TableOptions,
) -> None:
    """Show nodes, name-spaces, alignment, topics, applications, incidents and more, as tables.

    Without a word it shows the whole system on one page. The tables are those of the console, with reasons:
    why a node is master, why a set is not complete, why a reader waits, why a writer's data is not kept. The
    command listens for at most two seconds, and less where all nodes have answered. A word that ends in .xml
    or .toml, or begins with file://, is the URI.

    Exit codes: 0 nothing wrong, 1 warnings, nodes still start, or --timeout has passed, 2 errors or wrong
    usage, 3 no node heard or domain not reachable, 70 the watch itself failed. --wait: 0 as soon as every set
    is whole.
    """
    what, name, uri = _words(what, name, uri)
    _require_sense(what, source, at, table, is_watched=watch, waits=wait, has_timeout=timeout_s is not None)
    system = System(domains.sources(uri, target, source, is_one=True)[0])
    printer = _Printer(system, what, name, table)
    try:
        with libraries.kept_for_the_end():
            if isinstance(system.feed, TimeTravel):
                domains.wind(system, system.feed, at)
            else:
                streams.wait_for("listening")
                domains.listen_briefly(system, ENDPOINTS_S if what in ("topics", "applications") else 0.0)
            code = _wait(printer, timeout_s) if wait else _watch(printer) if watch else printer.put()
    except UnknownName as error:
        raise _refused(system, error) from error
    finally:
        system.feed.close()
    domains.require_listening(system)
    raise typer.Exit(code)


def _words(what: str, name: str, uri: str | None) -> tuple[str, str, str | None]:
    """Return kind, name and URI; each of the first two words may be the URI, which is always the last one."""
    if is_uri(what):
        return "", "", what
    return (what, "", name) if is_uri(name) else (what, name, uri)


def _require_sense(
    what: str, source: SourceOptions, at: str | None, table: TableOptions, *, is_watched: bool, waits: bool,
    has_timeout: bool,
) -> None:  # fmt: skip
    """Require that the options fit each other.

    Raises:
        CommandError: they do not.
    """
    if what and what not in PAGES:
        raise CommandError(
            f"no table {what!r}; {did_you_mean(what, list(PAGES)) or 'there are ' + ', '.join(PAGES)}"
        )
    if not what and (table.columns or table.sort or table.search):
        raise CommandError(
            "--columns, --sort and --filter need a table, as in `ospltool show nodes --sort state`"
        )
    if not what and table.form in (Format.CSV, Format.JSONL):
        raise CommandError(
            f"--format {table.form} needs a table, as in `ospltool show nodes --format {table.form}`"
        )
    if at is not None and source.is_live:
        raise CommandError("--at needs a recording or a simulation: give --replay or --simulate")
    if (is_watched or waits) and not source.is_live:
        raise CommandError("--watch and --wait need a live domain: leave out --replay and --simulate")
    if waits and what != "alignment":
        raise CommandError("--wait belongs to `ospltool show alignment`")
    if has_timeout and not waits:
        raise CommandError("--timeout needs --wait")
    if (is_watched or waits) and table.form is Format.CSV:
        raise CommandError("--format csv does not go with --watch or --wait: choose jsonl")


def _refused(system: System, error: UnknownName) -> CommandError:
    """Return the error for a name that is not there; where nobody is heard, that is the reason."""
    if not system.model.nodes:
        return CommandError(f"{error}: no node heard in {system.feed.title}", Exit.UNREACHABLE)
    hint = did_you_mean(error.name, list(error.known))
    known = f"there are {', '.join(error.known[:12])}{' and others' if len(error.known) > 12 else ''}"
    return CommandError(f"{error}; {hint or (known if error.known else 'there is none at all')}")


def _view(system: System, search: Filter | None = None) -> View:
    glyphs = choose(sys.stdout.encoding, ascii_only=False)
    return View(system.health, system.feed.now_ns(), glyphs, search or Filter())


class _Printer:
    """Prints one page of a system, once or again and again.

    Args:
        system: what is shown.
        what: a key of PAGES; empty for the whole system.
        name: what is shown in full; empty for all.
        options: how.
    """

    def __init__(self, system: System, what: str, name: str, options: TableOptions) -> None:
        self.system = system
        self.what = what
        self.options = options
        self._name = name
        self._filter = Filter.parse(options.search, PAGES[what].fields if what else ())

    @property
    def width(self) -> int:
        """The cells of a line, now."""
        return WIDE if self.options.form is Format.WIDE else _width()

    @property
    def view(self) -> View:
        """The system now."""
        return _view(self.system, self._filter)

    def sections(self, view: View) -> list[Section]:
        """Return the page.

        Raises:
            UnknownName: there is nothing of the name that was given.
        """
        return pages.sections(view, self.what, self._name, self.width)

    def is_whole(self, view: View) -> bool:
        """Return whether every expected node was heard, and every present one holds what is shown whole."""
        are_awaited = any(not (report and report.in_order) for report in view.health.unheard.values())
        return view.is_anybody_heard and not alignment.unfinished(view, self._name) and not are_awaited

    def code(self) -> int:
        """Return the exit code, by the verdict."""
        return domains.verdict_code(self.system.health.verdict)

    def put(self) -> int:
        """Print the page once; return the exit code."""
        view = self.view
        if self.options.is_text:
            streams.put(_text(self.lines(view)))
        elif not self.what:
            streams.put(
                envelope.document("show", pages.document(view, self.sections(view), self.options.layout))
            )
        else:
            self._put_records(self.records(view))
        if not self.system.model.nodes and not self.options.is_text:  # the pages say so
            streams.notify(f"ospltool: no node heard in {self.system.feed.title}")
        return self.code()

    def records(self, view: View) -> list[dict[str, object]]:
        """Return the rows of the table as values."""
        table = next((one.rows for one in self.sections(view) if one.rows is not None), None)
        return pages.records(table, self.options.layout) if table is not None else []

    def _put_records(self, rows: Sequence[dict[str, object]]) -> None:
        if self.options.form is Format.JSON:
            streams.put(envelope.document(self.what, rows))
        elif self.options.form is Format.JSONL:
            streams.put("".join(envelope.line(self.what, row) for row in rows))
        else:
            streams.put(_as_csv(rows, has_header=not self.options.no_header))

    def lines(self, view: View) -> list[Line]:
        """Return the page as lines."""
        place = "" if self.what else pages.place(view, self.system.feed.title)
        return pages.page_lines(view, self.sections(view), self.width, self.options.layout, place)


def _as_csv(rows: Sequence[dict[str, object]], *, has_header: bool) -> str:
    """Return rows as CSV; lists are joined."""
    made = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.writer(made, lineterminator="\n")
    if has_header and names:
        writer.writerow(names)
    for row in rows:
        values = (row.get(name) for name in names)
        writer.writerow(
            [
                csv_field(
                    "; ".join(map(str, one)) if isinstance(one, list | tuple) else "" if one is None else one
                )
                for one in values
            ]
        )
    return made.getvalue()


def _width() -> int:
    """Return the cells of a line: of the terminal, or of COLUMNS; elsewhere nothing is cut."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit():
        return max(40, shutil.get_terminal_size().columns)
    return WIDE


_STYLES: Final = {
    Tone.DIM: Style.DIM,
    Tone.STRONG: Style.BOLD,
    Tone.ACCENT: Style.BOLD,
    Tone.WARN: Style.YELLOW,
    Tone.FAULT: Style.RED,
    Tone.CONFLICT: Style.MAGENTA,
}
"""The look of tones other than PLAIN, as in the theme ops-ansi."""


def _drawn(lines: Sequence[Line], *, has_colour: bool) -> str:
    """Return lines as text for a terminal; what a name could make the terminal do is an escape in it."""
    return "".join(f"{''.join(_painted(span, on=has_colour) for span in line)}\n" for line in lines)


def _painted(span: Span, *, on: bool) -> str:
    shown = text_views.visible(span.text)
    return paint(shown, _STYLES[span.tone], on=on) if span.tone in _STYLES else shown


def _text(lines: Sequence[Line]) -> str:
    """Return lines as text for standard output, in colour for a terminal."""
    return _drawn(lines, has_colour=streams.wants_colour(sys.stdout, os.environ))


REDRAW_S: Final = 0.5
"""Time between two pictures."""


def _views(printer: _Printer) -> Iterator[View]:
    """Yield the system again and again, until interrupted."""
    with exits.interrupt_flag(signal.SIGINT, signal.SIGTERM) as over:
        while not over.is_set():
            printer.system.update()
            if pause := printer.system.pauses.news():
                streams.notify(f"ospltool: {pause}")
            yield printer.view
            over.wait(REDRAW_S)


def _watch(printer: _Printer) -> int:
    """Show the page until interrupted; return the exit code of that moment."""
    _follow(printer, lambda _: False)
    return printer.code()


def _wait(printer: _Printer, timeout_s: float | None) -> int:
    """Show the alignment until every set is whole; return 0, or 1 after the timeout, 3 if nobody is heard."""
    end = None if timeout_s is None else time.monotonic() + timeout_s

    def is_over(view: View) -> bool:
        return printer.is_whole(view) or (end is not None and time.monotonic() >= end)

    _follow(printer, is_over)
    view = printer.view
    if printer.is_whole(view):
        return Exit.GOOD
    if not view.is_anybody_heard:
        streams.notify(f"ospltool: no node heard in {printer.system.feed.title}")
        return Exit.UNREACHABLE
    if end is not None and time.monotonic() >= end:
        streams.notify(
            *(f"ospltool: not whole: {plain(line).strip()}" for line in alignment.lacking_lines(view))
        )
        return Exit.RECOVERABLE
    return Exit.INTERRUPTED


def _follow(printer: _Printer, is_over: Callable[[View], bool]) -> None:
    """Show the page until it is over: in place on a terminal, else what changes as lines."""
    if not (printer.options.is_text and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"):
        _follow_lines(printer, is_over)
        return
    from rich import console, live, text  # they draw in place, for this alone

    streams.wait_for("")
    has_colour = streams.wants_colour(sys.stdout, os.environ)
    screen = console.Console(file=sys.stdout, no_color=not has_colour, highlight=False)
    with live.Live(console=screen, auto_refresh=False, vertical_overflow="ellipsis") as picture:
        for view in _views(printer):
            drawn = _drawn(printer.lines(view), has_colour=has_colour)
            picture.update(text.Text.from_ansi(drawn.rstrip("\n")), refresh=True)
            if is_over(view):
                return


VOLATILE: Final = {
    *(f"{age}_ns" for age in AGES),
    *("rate_per_s", "left_s", "bytes", "digest", "time_ns", "disk_bytes", "memory_bytes", "skew_ns", "took"),
}
"""Values that change all the time: a line for each change would be no news."""


def _follow_lines(printer: _Printer, is_over: Callable[[View], bool]) -> None:
    """Print the page, then a line for each row that comes, changes or goes."""
    before: dict[tuple[str, str], dict[str, object]] = {}
    is_first = True
    for view in _views(printer):
        now = _rows(printer, view)
        if is_first and printer.options.is_text:
            streams.put(_text(printer.lines(view)))
        if not is_first or not printer.options.is_text:
            for key in [*now, *(one for one in before if one not in now)]:
                old, new = before.get(key), now.get(key)
                if new is None and key[0] == "events":
                    continue  # the page has only the newest
                if old is None or new is None or _settled(printer, old) != _settled(printer, new):
                    _put_change(printer, view, key[0], old, new)
        before, is_first = now, False
        if is_over(view):
            return


def _rows(printer: _Printer, view: View) -> dict[tuple[str, str], dict[str, object]]:
    """Return the rows of all tables of a page by section and key."""
    found: dict[tuple[str, str], dict[str, object]] = {}
    for section in printer.sections(view):
        if section.rows is not None:
            rows = pages.records(section.rows, Layout())
            found |= {(section.key, key): row for key, row in zip(section.rows.keys, rows, strict=True)}
    return found


def _settled(printer: _Printer, row: dict[str, object]) -> dict[str, object]:
    """Return the values of a row whose change is news; of progress, each tenth."""
    kept = {name: value for name, value in row.items() if name not in VOLATILE}
    fraction = kept.get("fraction")
    if isinstance(fraction, float):
        kept = {**kept, "samples": 0, "fraction": int(fraction * 10)}
    elif printer.what != "groups":
        kept.pop("samples", None)
    return kept


def _put_change(
    printer: _Printer, view: View, section: str, old: dict[str, object] | None, new: dict[str, object] | None
) -> None:
    row = new or old or {}
    if not printer.options.is_text:
        change = "new" if old is None else "gone" if new is None else "changed"
        streams.put(envelope.line(section, {"time_ns": view.now_ns, "change": change, **row}))
        return
    if section == "events":
        clock = text_views.clock(int(str(row["time_ns"])))
        streams.put(text_views.visible(f"{clock} UTC  {row['sentence']}") + "\n")
        return
    first, *others = (value for value in row.values() if isinstance(value, str) and value)
    arrow = "->" if view.glyphs is ASCII else view.glyphs.arrow
    if old is None or new is None:
        told = f"{'new' if old is None else 'gone'}: {', '.join(others[:4])}"
    else:
        kept = _settled(printer, new)
        parts = [
            f"{name.replace('_', ' ')} {_word(view, name, old.get(name))} {arrow} {_word(view, name, value)}"
            for name, value in new.items()
            if name in kept and value != old.get(name)
        ]
        told = ", ".join(parts)
    noun = {"incidents": "incident"}.get(section, section.removesuffix("s"))
    clock = text_views.clock(view.now_ns)
    streams.put(text_views.visible(f"{clock} UTC  {noun} {first}: {told}") + "\n")


def _word(view: View, name: str, value: Any) -> str:
    return shown(view, "percent" if name == "fraction" else name, value) or "nothing"


def node_text(status: NodeStatus, look: Callable[[], list[NodeStatus]]) -> tuple[list[NodeStatus], str]:
    """Listen to a node that runs; return its status afterwards, and a line for each question about it.

    Args:
        status: the node as it was found.
        look: finds it again, so that both are of one moment: listening takes up to two seconds.
    """
    record = status.record
    try:
        place = domains.place_of(record.configuration, None)
    except CommandError:
        place = domains.place_of(None, None)  # its file has changed: its domain may be in reach all the same
    place = dataclasses.replace(place, domain_id=record.domain_id)
    watched = domains.Watched(place, NOTHING)
    try:
        system = domains.opened(watched, None)
    except CommandError as error:
        streams.notify(f"ospltool: what the node itself reports is not known: {error}")
        return look(), ""
    try:
        domains.listen_briefly(system)
        view = _view(system)
        found = look()
        status = found[0] if len(found) == 1 else status
        pid = record.node.pid if record.node is not None else 0
        own = [
            one for one in system.model.nodes.values() if one.snapshot.pid == pid and view.is_heard(one.id)
        ]
        lines = [
            part
            for one in own[:1]
            for line in node.summary_lines(view, one, since_ns=status.state_since_ns, failure=record.failure)
            for part in pages.wrapped(line, _width())
        ]
        return found, _text(lines)
    finally:
        system.feed.close()
