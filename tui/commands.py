"""The commands of the `:` line and of the palette, what `export` writes, and what `--operate` asks."""

from __future__ import annotations

import dataclasses
import datetime
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar, Final, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.screen import ModalScreen

from ospltool.health import export
from ospltool.live.recording import RecordingFault, moment_of
from ospltool.output import envelope
from ospltool.output.streams import new_text
from ospltool.views import pages, text
from ospltool.views.applications import application_names, by_application
from ospltool.views.cells import Line, Span, Tone, plain
from ospltool.views.node import leaving
from ospltool.views.topics import topic_names
from ospltool.views.view import Filter, Subject
from tui import themes
from tui.console import Command, CommandError, Console
from tui.operator import Operation, OperationError, Operator
from tui.widgets.lines import Lines

FORMATS: Final = ("page", "json", "csv", "svg")
SHOWN: Final = {
    "overview": "",
    "node": "nodes",
    "name-space": "name-spaces",
    "alignment": "alignment",
    "incidents": "incidents",
    "incident": "incidents",
    "groups": "groups",
    "trace": "events",
    "topics": "topics",
    "topic": "topics",
    "applications": "applications",
    "application": "applications",
}
"""The page of `ospltool show` that says what a screen does; the other screens have only JSON."""
DAY_NS: Final = 86_400_000_000_000
# Fits into a terminal of 80 with the frame.
QUESTION_WIDTH: Final = 68
MOST_PREVIEWED: Final = 4
Plan = Callable[..., Operation]
"""Plans an operation of an `Operator` on a node, as `Operator.stop` does."""


def write_export(app: Console, words: list[str]) -> None:
    """Carry out `export FORMAT [FILE]`. An existing file is never overwritten.

    Raises:
        CommandError: the format is unknown, or the file cannot be written.
    """
    if not words or words[0] not in FORMATS:
        raise CommandError(f"export what? {', '.join(FORMATS)}")
    given = " ".join(words[1:])
    if words[0] == "page":
        base = Path(given or default_name(app, "txt")).expanduser()
        files = {base.with_suffix(f".{form}"): text for form, text in page_texts(app).items()}
    else:
        path = Path(given or default_name(app, words[0])).expanduser()
        files = {path: content(app, words[0])}
    for path, written in files.items():
        try:
            with new_text(path) as file:
                file.write(written)
        except FileExistsError:
            raise CommandError(f"{path} exists already") from None
        except OSError as error:
            raise CommandError(f"{path}: {error.strerror or error}") from error
    app.show_message(f"written to {' and '.join(map(str, files))}")


def page_texts(app: Console) -> dict[str, str]:
    """Return what the screen in front shows as `ospltool show` prints it: as text, and as JSON.

    Raises:
        CommandError: no page of `ospltool show` says the same.
    """
    front = app.front
    page = SHOWN.get(front.NAME) if front is not None else None
    if front is None or page is None:
        raise CommandError("`ospltool show` has no such page; `:export svg` writes the picture")
    search = front.filter.text
    page = page or ("nodes" if search else "")
    fields = pages.PAGES[page].fields if page else ()
    view, layout = dataclasses.replace(app.view(), filter=Filter.parse(search, fields)), pages.Layout()
    try:
        every = pages.sections(view, page, front.named, pages.WIDE)
    except pages.UnknownName as error:
        raise CommandError(str(error)) from error
    lines = pages.page_lines(view, every, pages.WIDE, layout, pages.place(view, app.feed.title))
    table = next((one.rows for one in every if one.rows is not None), None)
    rows = pages.records(table, layout) if table is not None else []
    data = pages.document(view, every, layout) if not page else rows
    return {
        "txt": "".join(f"{text.visible(plain(line)).rstrip()}\n" for line in lines),
        "json": envelope.document(page or "show", data),
    }


def shell_line(app: Console, screen: str, name: str = "", search: str = "") -> str:
    """Return the line of the shell that says what a screen does.

    Args:
        app: the console: the line is about the system and the moment that it shows.
        screen: name of the screen.
        name: what is shown in full; empty for all.
        search: a filter.
    """
    source, systems, page = app.source, app.systems, SHOWN.get(screen)
    uri, options = source.uri, list(source.options)
    if systems.past is not None and systems.recording is not None:
        options = ["--replay", str(systems.recording)]
    elif app.feed.mode == "simulated" and not any(one.startswith("--simulate") for one in options):
        uri, options = "", ["--simulate", "none"]
    elif len(systems.all) > 1 and app.feed.mode == "live":
        options += ["--domain", app.feed.title.rpartition(" ")[2]]
    if app.travel is not None:
        moment = datetime.datetime.fromtimestamp(app.view().now_ns // 1_000_000_000, datetime.UTC)
        options += ["--at", f"{moment:%Y-%m-%d %H:%M:%S}"]
    if page is None:
        return shlex.join(
            ["ospltool", "top", *([uri] if uri else []), "--json", "--screen", screen, *options]
        )
    options += [f"--filter={search}"] if search else []
    words = list(filter(None, (page or ("nodes" if search else ""), name, uri)))
    words = [*options, "--", *words] if name.startswith("-") else [*words, *options]
    return shlex.join(["ospltool", "show", *words])


def page_line(app: Console) -> str:
    """Return the line of the shell that says what the screen in front does."""
    front = app.front
    return shell_line(app, front.NAME, front.named, front.filter.text) if front is not None else ""


def line_of(app: Console, line: str) -> str:
    """Return the line of the shell for a line of the command line; empty if only a console can do it."""
    name, _, rest = line.strip().partition(" ")
    one, front = by_name(app.commands).get(name), app.front
    if one is None:
        return ""
    if one.name in PLANS:
        try:
            return planned(app, one.name, rest.split())[1].shell_line
        except CommandError:
            return ""
    if one.arguments == "[FILTER]":
        return shell_line(app, one.name, search=rest)
    if one.name in SHOWN:
        here = front.named if front is not None and one.name == front.NAME else ""
        return shell_line(app, one.name, rest or here)
    return page_line(app) if line.split() == ["export", "page"] else ""


def content(app: Console, wanted: str) -> str:
    """Return the content of the file."""
    now_ns = app.view().now_ns
    if wanted == "json":
        return export.as_json(app.health, now_ns)
    if wanted == "csv":
        return export.as_csv(app.health)
    return app.export_screenshot(title=app.title, simplify=True)


def default_name(app: Console, wanted: str) -> str:
    """Return a file name with the moment of the picture."""
    seconds = app.view().now_ns // 1_000_000_000
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return f"ospltool-{moment:%Y%m%d-%H%M%S}.{wanted}"


def _opens(screen: str) -> Callable[[Console, list[str]], None]:
    def run(app: Console, words: list[str]) -> None:
        app.go(screen, app.subject)
        app.set_filter(" ".join(words))

    return run


def _node(app: Console, words: list[str]) -> None:
    app.go("node", Subject(find_node(app, words[0]), app.subject.name_space) if words else app.subject)


def _name_space(app: Console, words: list[str]) -> None:
    if words and words[0] not in app.model.name_space_names():
        raise CommandError(f"no name-space {words[0]!r}")
    app.go("name-space", Subject(app.subject.node, words[0]) if words else app.subject)


def _topic(app: Console, words: list[str]) -> None:
    known = topic_names(app.view())
    if words and words[0] not in known:
        raise CommandError(f"no topic {words[0]!r}")
    app.go("topic", Subject(app.subject.node, topic=words[0]) if words else app.under_cursor())


def _application(app: Console, words: list[str]) -> None:
    name = " ".join(words)
    every = [one.application for one in by_application(app.view())]
    found = [one for one in every if name in application_names(one)]
    if words and len(found) != 1:
        raise CommandError(f"{len(found) or 'no'} applications are called {name!r}")
    subject = Subject(app.subject.node, application=found[0].key) if words else app.under_cursor()
    app.go("application", subject)


def _theme(app: Console, words: list[str]) -> None:
    known = list(themes.ALL)
    if not words:
        app.theme = known[(known.index(app.theme) + 1) % len(known)]
    elif words[0] in known:
        app.theme = words[0]
    else:
        raise CommandError(f"no theme {words[0]!r}; there are {', '.join(known)}")


def _domain(app: Console, words: list[str]) -> None:
    if not app.systems.show(" ".join(words)):
        known = ", ".join(one.feed.title for one in app.systems.all)
        raise CommandError(f"no such domain here; watched: {known}")
    app.show_system()


def find_node(app: Console, name: str) -> str:
    """Return the id of the node with a name or the first digits of an id.

    Raises:
        CommandError: no node matches, or several.
    """
    nodes = app.model.ordered_nodes()
    found = [node.id for node in nodes if node.snapshot.name == name]
    found = found or [node.id for node in nodes if node.id.startswith(name)]
    if len(found) != 1:
        raise CommandError(f"{len(found) or 'no'} nodes are called {name!r}")
    return found[0]


def _time(app: Console, words: list[str]) -> None:
    if words not in (["local"], ["utc"]):
        raise CommandError("say `time local` or `time utc`")
    text.TIMES.is_local = words == ["local"]
    app.show_message(f"times are {text.TIMES.name}")


def _bell(app: Console, words: list[str]) -> None:
    if words not in (["on"], ["off"]):
        raise CommandError("say `bell on` or `bell off`")
    app.alarm.is_on = words == ["on"]
    app.show_message(f"bell and notification are {words[0]}")


def _mark(app: Console, words: list[str]) -> None:
    if app.travel is None:
        raise CommandError("only a recording or a simulation has marks")
    try:
        app.travel.mark(" ".join(words))
    except RecordingFault as fault:
        raise CommandError(str(fault)) from fault
    app.show_message("marked")


def _at(app: Console, words: list[str]) -> None:
    if app.travel is None and not app.systems.recordings:
        raise CommandError("only a recording or a simulation can be wound")
    now_ns = app.view().now_ns
    begin_ns = app.travel.timeline.begin_ns if app.travel is not None else now_ns - DAY_NS
    try:
        app.wind_to(moment_of(" ".join(words), begin_ns, now_ns))
    except ValueError as error:
        raise CommandError(str(error)) from error


def _live(app: Console, words: list[str]) -> None:
    if app.systems.past is None:
        raise CommandError("this is no past of a live system")
    app.action_live()


def _speed(app: Console, words: list[str]) -> None:
    if app.travel is None:
        raise CommandError("only a recording or a simulation has a speed")
    try:
        speed = float(words[0])
    except (IndexError, ValueError):
        speed = 0.0
    if not 0.1 <= speed <= 1000:
        raise CommandError("the speed is a number from 0.1 to 1000")
    app.travel.set_speed(speed)
    app.refresh_all()


COMMANDS: Final = (
    Command("overview", "[FILTER]", "nodes and name-spaces on one page", _opens("overview")),
    Command("domain", "NUMBER", "another domain of the fleet", _domain),
    Command("node", "[NAME]", "one node", _node, ("nodes",)),
    Command("name-space", "[NAME]", "one name-space", _name_space, ("name-spaces", "ns")),
    Command("alignment", "[FILTER]", "who aligns whom", _opens("alignment")),
    Command("incidents", "[FILTER]", "present and past incidents", _opens("incidents")),
    Command("conflicts", "[FILTER]", "conflicts, open and past", _opens("conflicts")),
    Command("groups", "[FILTER]", "all groups", _opens("groups")),
    Command("topics", "[FILTER]", "all topics, who writes and reads them", _opens("topics")),
    Command("topic", "NAME", "one topic: readers, writers, values", _topic),
    Command("applications", "[FILTER]", "all processes with readers or writers", _opens("applications")),
    Command("application", "NAME", "what one process writes and is given", _application),
    Command("trace", "[FILTER]", "the merged trace", _opens("trace")),
    Command("store", "[FILTER]", "the store of each node", _opens("store"), ("stores",)),
    Command(
        "findings", "[FILTER]", "findings of the check about the live system", _opens("findings"), ("check",)
    ),
    Command(
        "persistence",
        "[FILTER]",
        "persistence services and their providers",
        _opens("persistence"),
        ("services",),
    ),
    Command(
        "filter",
        "[WORDS]",
        "filter this screen; without words, remove the filter",
        lambda a, w: a.set_filter(" ".join(w)),
    ),
    Command("theme", "[NAME]", "another look; without a name the next one", _theme),
    Command("pause", "", "freeze the picture, or continue", lambda app, _: app.action_pause()),
    Command("time", "local|utc", "show times of this machine's zone, or UTC", _time),
    Command("bell", "on|off", "ring and notify when a severe incident begins", _bell),
    Command("mark", "[NOTE]", "mark this moment of the recording or simulation", _mark),
    Command("at", "MOMENT", "wind to +90 or -90 (seconds), 12:30:05, 2026-11-21 12:30:05", _at),
    Command("speed", "TIMES", "play N times as fast", _speed),
    Command("help", "", "the keys of this screen, and these commands", lambda app, _: app.action_help()),
    Command(
        "quit", "", "leave; the system is not affected", lambda app, _: app.action_quit_console(), ("q",)
    ),
)


RETURN: Final = (Command("live", "", "back from the past of a system to the system as it is", _live),)
"""Commands of a console that has recordings of what it watches."""


EXPORT: Final = (
    Command(
        "export",
        "FORMAT [FILE]",
        "page: text and JSON; json or csv of the system; svg: to new files",
        write_export,
    ),
)


class AskScreen(ModalScreen[bool]):
    """Says what will be done and by which command; only `y` does it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes", show=False),
        Binding("n,escape,q,enter", "answer(False)", "no", show=False),
        Binding("c", "copy_line", "copy as a command", show=False),
    ]

    def __init__(self, operation: Operation) -> None:
        super().__init__()
        self._operation = operation

    def compose(self) -> ComposeResult:
        """Return one block of text."""
        yield Lines()

    def on_mount(self) -> None:
        """Fit the height to the text."""
        lines = question_lines(self._operation)
        widget = self.query_one(Lines)
        widget.styles.height = len(lines) + 2
        widget.show(lines)

    def action_copy_line(self) -> None:
        """Copy the line that does the same."""
        cast("Console", self.app).copy(self._operation.shell_line)

    def action_answer(self, answer: bool) -> None:
        """Close with the answer."""
        self.dismiss(answer)


def question_lines(operation: Operation) -> list[Line]:
    """Return the question, what it means, the command, and the keys."""
    lines: list[Line] = [(Span(operation.title, Tone.STRONG),), ()]
    for sentence in operation.consequences:
        lines += [(Span(part),) for part in text.wrap(sentence, QUESTION_WIDTH, 3)]
    # Work that is planned for later, or in steps, says here when and in which.
    lines += [(), (Span("when", Tone.DIM),), (Span("  now, after your answer"),)]
    lines += [(), (Span("the same as", Tone.DIM),)]
    lines += [(Span(f"  {part}"),) for part in text.wrap(operation.shell_line, QUESTION_WIDTH - 2, 4)]
    keys = {"y": " does it, ", "n": " does not, ", "c": " copies the line"}
    answers = tuple(span for key, meaning in keys.items() for span in (Span(key, Tone.ACCENT), Span(meaning)))
    return [*lines, (), answers]


PLANS: Final[dict[str, Plan]] = {
    "stop": Operator.stop,
    "restart": Operator.restart,
    "start": Operator.start,
}


def planned(app: Console, verb: str, words: list[str]) -> tuple[Operator, Operation]:
    """Return what a command on a node would do, and who carries it out.

    Args:
        app: the console.
        verb: a key of PLANS.
        words: the name of a node; none for that under the cursor.

    Raises:
        CommandError: it is impossible.
    """
    operator = app.operator
    if app.systems.past is not None:
        raise CommandError("this is the past: L returns to live")
    if operator is None or app.feed.mode != "live":
        raise CommandError("this console only watches; start it with --operate")
    node = app.model.nodes.get(find_node(app, words[0]) if words else app.under_cursor().node)
    if node is None:
        raise CommandError(f"{verb} which node?")
    try:
        operation = PLANS[verb](operator, node, is_away=app.health.is_away(node))
    except OperationError as fault:
        raise CommandError(str(fault)) from fault
    effects = () if verb == "start" else leaving(app.view(), node)
    told = (*operation.consequences[:1], *effects, *operation.consequences[1:])
    return operator, dataclasses.replace(operation, consequences=told)


def _ask(app: Console, verb: str, words: list[str]) -> None:
    operator, operation = planned(app, verb, words)

    def answered(yes: bool | None) -> None:
        if yes:
            app.run_worker(carry_out, thread=True, exit_on_error=False)

    def carry_out() -> None:
        app.call_from_thread(app.show_message, f"{operation.shell_line}: under way")
        said = operator.carry_out(operation)
        app.call_from_thread(app.show_message, f"{operation.shell_line}: {said}")

    app.push_screen(AskScreen(operation), answered)


def _operation(verb: str, help_: str) -> Command:
    return Command(verb, "[NODE]", help_, lambda app, words: _ask(app, verb, words))


OPERATIONS: Final = (
    _operation("stop", "end a node in order, after a question"),
    _operation("restart", "end a node in order and start it again, after a question"),
    _operation("start", "start a node that is gone, after a question"),
)
"""Commands of a console with `--operate`, the one place from which it changes anything: each asks first."""


def by_name(commands: tuple[Command, ...]) -> dict[str, Command]:
    """Return commands by name and alias."""
    return {name: command for command in commands for name in (command.name, *command.aliases)}


def run(app: Console, line: str) -> None:
    """Carry out a line. A name may be shortened if it stays unique.

    Raises:
        CommandError: the command is unknown, or cannot be carried out.
    """
    words = line.split()
    if not words:
        return
    known = by_name(app.commands)
    found = {known[words[0]].name} if words[0] in known else set()
    found = found or {known[name].name for name in known if name.startswith(words[0])}
    if len(found) != 1:
        meant = f"; {', '.join(sorted(found))}?" if found else "; :help lists the commands"
        raise CommandError(f"no command {words[0]!r}{meant}")
    known[found.pop()].run(app, words[1:])


def preview(app: Console, line: str) -> list[Line]:
    """Return what the commands do that a line begins, or that begin like it; at most `MOST_PREVIEWED`."""
    name, _, rest = line.lstrip().partition(" ")
    known = by_name(app.commands)
    found = [known[name]] if name in known else []
    found += [one for one in app.commands if not rest and one.name.startswith(name) and one not in found]
    lines: list[Line] = [
        (Span(f" :{f'{one.name} {one.arguments}'.strip():<24} ", Tone.ACCENT), Span(one.help))
        for one in found[:MOST_PREVIEWED]
    ]
    shell = line_of(app, line)
    return [*lines, (Span(" ^y", Tone.ACCENT), Span(" copies ", Tone.DIM), Span(shell))] if shell else lines


def suggestions(app: Console) -> Iterator[str]:
    """Yield whole command lines, for completion and for the palette."""
    for command in app.commands:
        yield command.name
    for node in app.model.ordered_nodes():
        yield f"node {node.snapshot.name}"
    for command in app.commands:
        if command.arguments == "[NODE]":
            for node in app.model.ordered_nodes():
                yield f"{command.name} {node.snapshot.name}"
    for name in app.model.name_space_names():
        yield f"name-space {name}"
    for topic in topic_names(app.view()):
        yield f"topic {topic}"
    for title in dict.fromkeys(one.title for one in app.model.applications.by_participant.values()):
        yield f"application {title}"
    for name in themes.ALL:
        yield f"theme {name}"


class ConsoleCommands(Provider):
    """The same commands in the palette (ctrl+p), found by parts of their names."""

    async def discover(self) -> Hits:
        """Yield the commands that the palette shows before a query."""
        app = self._console
        for command in app.commands:
            line = command.name
            yield DiscoveryHit(f":{line}", self._runner(line), help=command.help)

    async def search(self, query: str) -> Hits:
        """Yield the command lines that match a query."""
        matcher = self.matcher(query)
        helps = {command.name: command.help for command in self._console.commands}
        for line in suggestions(self._console):
            score = matcher.match(line)
            if score > 0:
                yield Hit(score, matcher.highlight(line), self._runner(line), help=helps.get(line.split()[0]))

    @property
    def _console(self) -> Console:
        return cast("Console", self.app)

    def _runner(self, line: str) -> Callable[[], None]:
        return lambda: self._console.run_command(line)
