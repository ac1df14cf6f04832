"""`ospltool health`: report what is wrong, why, its effect, and what to do."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import pathlib
import signal
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from engine.config.values import did_you_mean
from ospltool.cli import domains, exits
from ospltool.cli.exits import CommandError, Exit
from ospltool.cli.options import AsJson, DefaultGroup, LiveTarget, command_group, duration_s, uri_argument
from ospltool.health import export
from ospltool.health.codes import codes, joined
from ospltool.health.health import Health
from ospltool.health.news import IncidentNews
from ospltool.health.system import System
from ospltool.output import envelope, libraries, streams
from ospltool.output.text import visible

if TYPE_CHECKING:
    from ospltool.health.incidents import Incident
    from ospltool.health.mutes import MuteEnd
    from ospltool.output.documents import DomainHealth


PASSING_S: Final = 2.0
"""Time for which the word of the verdict stands before it is told without an incident: while nodes start one
after the other, it changes each time."""

SETTLED_S = 5.0
"""Time without a change of the summary line, or of the effect of an incident, until it is told again."""


def health(
    uri: Annotated[
        str | None,
        uri_argument(
            "Watch the domains of this fleet file (.toml) or configuration, or read this recording."
        ),
    ] = None,
    *,
    target: LiveTarget,
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep watching, and report when an incident begins or ends.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON; with --watch, one document per line.")
    ] = False,
) -> None:
    """Report what is wrong in a running system: a summary line, then the incidents, worst first.

    A fleet file says which nodes, name-spaces and copies to expect. Each incident has a code, a cause, its
    effect on data, and what to do; `ospltool explain CODE` says more. `ospltool health mute CODE[:WHO]
    DURATION` hides what is known, and `ospltool health unmute CODE[:WHO]` shows it again.

    Exit codes: 0 nothing wrong, 1 warnings, or nodes or copies may still come (STARTING), 2 errors or wrong
    usage, 3 no node heard or domain not reachable, 70 the watch itself failed.
    --watch continues until Ctrl+C or SIGTERM, or the end of the recording, and exits with the code of that
    moment.
    """
    recording = domains.recording_at(uri)
    if recording is not None:
        if target != LiveTarget():
            raise CommandError("a recording takes no --domain or --partition")
        raise typer.Exit(_read(recording, watch=watch, as_json=as_json))
    with _listening(uri, target) as systems:
        _put(systems, as_json=as_json, is_first=watch)
        if watch:
            _watch(systems, as_json=as_json)
    raise typer.Exit(max(domains.verdict_code(one.health.verdict) for one in systems))


Muted = Annotated[
    str,
    typer.Argument(metavar="CODE[:WHO]", help="Incidents of this code, and of this subject if it is given."),
]
MuteUri = Annotated[
    str | None,
    uri_argument("Use the domains of this fleet file (.toml) or configuration."),
]


def mute(
    incidents: Muted,
    length: Annotated[
        float,
        typer.Argument(parser=duration_s, metavar="DURATION", help="Mute them for this time, such as 1h."),
    ],
    uri: MuteUri = None,
    *,
    target: LiveTarget,
    as_json: AsJson = False,
) -> None:
    """Mute incidents: `health` and the console do not count them until the time is over.

    A mute ends early if the incident gets worse.

    Exit codes: 0 success, 2 wrong usage or no such code, 3 domain not reachable.
    """
    code, who = _subject(incidents)
    with _listening(uri, target) as systems:
        _warn_of_nobody(systems, code, who)
        made = {one.title: one.health.mute(code, who, int(length * 1e9)) for one in systems}
    if as_json:
        data = [{"domain": title, **dataclasses.asdict(one)} for title, one in made.items()]
        streams.put(envelope.document("health-mute", data))
    else:
        _put_lines(
            [f"{title}: {one.name} is muted until {_clock(one.until_ns)}" for title, one in made.items()]
        )


def unmute(incidents: Muted, uri: MuteUri = None, *, target: LiveTarget, as_json: AsJson = False) -> None:
    """Stop muting incidents, also if they were muted under another code of the same cause.

    Exit codes: 0 success, 1 they were not muted, 2 wrong usage or no such code, 3 domain not reachable.
    """
    code, who = _subject(incidents)
    with _listening(uri, target) as systems:
        ended = {one.title: one.health.unmute(code, who) for one in systems}
    name = f"{code}:{who}" if who else code
    if as_json:
        data = [{"domain": title, "code": code, "who": who, "ended": one} for title, one in ended.items()]
        streams.put(envelope.document("health-unmute", data))
    else:
        _put_lines([
            f"{title}: {name} {'is not muted any more' if one else 'was not muted'}"
            for title, one in ended.items()
        ])  # fmt: skip
    if not any(ended.values()):
        raise typer.Exit(Exit.FINDINGS)


@contextlib.contextmanager
def _listening(uri: str | None, target: LiveTarget) -> Iterator[list[_Domain]]:
    """Listen until the systems are known, and close them at the end of the context."""
    streams.wait_for("starting to listen")
    chosen = domains.watched(uri, target.domain)
    systems: list[_Domain] = []
    try:
        with exits.late_interrupt():
            for each in chosen:
                opened = domains.opened(each, target.partition)
                systems.append(_Domain(each.title, opened, time.monotonic))
        with libraries.kept_for_the_end():
            domains.listen([one.system for one in systems])
            for one in systems:
                one.system.update()
            yield systems
    finally:
        for one in systems:
            one.feed.close()


class _Domain:
    """A watched domain, and the incidents that were reported of it.

    Args:
        title: its name for people.
        system: its feed and health.
        clock: returns seconds, by which news settles.
    """

    def __init__(self, title: str, system: System, clock: Callable[[], float]) -> None:
        self.title = title
        self.system = system
        self.feed = system.feed
        self._clock = clock
        self._news = IncidentNews(SETTLED_S)
        self.line_told = self.word_told = ""
        self._line, self._line_s = "", 0.0
        self._word, self._word_s = "", 0.0

    @property
    def health(self) -> Health:
        """Its health. Winding a recording back puts another one in its place."""
        return self.system.health

    def line(self) -> str:
        """The verdict."""
        return f"{self.title}: {self.health.verdict.text}"

    def lines(self) -> list[str]:
        """The verdict, and if nobody is heard or this watch has failed, why and what to do."""
        told = self.health.verdict
        more = [f"  why:    {told.why}", f"  next:   {told.next}"] if told.why else []
        return [self.line(), *more]

    def is_line_untold(self) -> bool:
        """Return whether the verdict is another one than was told, and has been so for a while."""
        line = self.line()
        if line != self._line:
            self._line, self._line_s = line, self._clock()
        return line != self.line_told and self._clock() - self._line_s >= SETTLED_S

    def is_word_untold(self) -> bool:
        """Return whether the word of the verdict is another one than was told, and no passing one."""
        word = self.health.verdict.word
        if word != self._word:
            self._word, self._word_s = word, self._clock()
        return word != self.word_told and self._clock() - self._word_s >= PASSING_S

    def news(self) -> list[tuple[str, Incident]]:
        """Return what `IncidentNews.changes` returns."""
        return self._news.changes(self.health, self._clock())


def _subject(text: str) -> tuple[str, str]:
    code, _, who = text.partition(":")
    if code.upper() not in codes():
        hint = did_you_mean(code.upper(), list(codes()))
        raise CommandError(f"no code {code!r}; {hint or 'docs/health lists them'}")
    return code.upper(), who


def _warn_of_nobody(systems: list[_Domain], code: str, who: str) -> None:
    """Warn if no domain knows the subject of a new mute: it may be mistyped, or come later."""
    known = [dict.fromkeys(one.health.subjects()) for one in systems]
    if not who or any(who in names or all(one in names for one in who.split(" and ")) for names in known):
        return
    files = dict.fromkeys(one.health.expected.file for one in systems if one.health.expected.file)
    places = [*files, *(one.title for one in systems)]
    hint = did_you_mean(who, list(dict.fromkeys(name for names in known for name in names)))
    know = "know" if len(places) > 1 else "knows"
    said = f"{code}:{who} matches nothing now: {joined(places)} {know} no {who!r}"
    streams.notify(f"ospltool: {said}{f'; {hint}' if hint else ''}")


def _watch(systems: list[_Domain], *, as_json: bool) -> None:
    """Report incidents that begin, change or end, until interrupted."""
    for one in systems:
        one.news()
        one.line_told, one.word_told = one.line(), one.health.verdict.word
    with exits.interrupt_flag(signal.SIGINT, signal.SIGTERM) as over:
        while not over.wait(domains.POLL_S):
            for one in systems:
                one.system.update()
                if pause := one.system.pauses.news():
                    streams.notify(f"ospltool: {pause}")
                _report(one, systems, as_json=as_json)


def _report(one: _Domain, systems: list[_Domain], *, as_json: bool) -> None:
    """Report what is new in one of the systems, if anything is."""
    news, ends = one.news(), one.health.mutes.news()
    is_untold = [one.is_line_untold(), one.is_word_untold()]  # both take in what is said now
    if not (news or ends or any(is_untold)):
        return
    if as_json:
        streams.put(envelope.line("health", _data(systems)))
    else:
        _tell(one, news, ends)
    one.word_told, one.line_told = one.health.verdict.word, one.line()


def _read(path: pathlib.Path, *, watch: bool, as_json: bool) -> int:
    """Report what a recording tells at its end, and with `watch` all that happened; return the exit code."""
    from tui.background import look_for_garbage_less_often

    look_for_garbage_less_often()
    feed, expected = domains.recording(path, 1.0, None, None)
    system = System((feed, lambda model: Health(model, expected)))
    one = _Domain(feed.title, system, lambda: feed.now_ns() / 1e9)
    try:
        feed.seek(feed.end_ns)
        one.line_told, one.word_told = one.line(), one.health.verdict.word
        told_ns = 0
        while feed.is_winding:
            for _ in system.steps():
                examined_ns = one.health.examined_ns(0)
                if watch and examined_ns != told_ns:  # a moment is examined in many steps
                    told_ns = examined_ns
                    _report(one, [one], as_json=as_json)
        system.health.update(feed.now_ns())  # the last line may be what happened
        if not watch:
            one.title += "" if as_json else f" until {_clock(feed.now_ns())}"
            _put([one], as_json=as_json)
            return domains.verdict_code(one.health.verdict)
        _report(one, [one], as_json=as_json)
        if one.line_told != one.line():
            _tell(one, [], [])
    finally:
        feed.close()
    return domains.verdict_code(one.health.verdict)


_NEWS: Final = {"joined": "part of another incident now"}


def _tell(domain: _Domain, news: list[tuple[str, Incident]], ends: list[MuteEnd]) -> None:
    now_ns = domain.feed.now_ns()
    lines = [f"{_clock(one.time_ns)} {one.text}" for one in ends]
    for what, one in news:
        reason = f": {one.worse}" if what == "worse" and one.worse else ""
        lines.append(f"{_clock(now_ns)} {_NEWS.get(what, what)}{reason}")
        if what == "joined":
            lines.append(f"  {one.code.id} {one.who}")
        elif one.muted_until_ns:
            lines.append(_muted_line(one))
        else:
            lines += incident_lines(one, now_ns) if one.is_open else _end_lines(one, now_ns)
    first, *more = domain.lines()
    lines += [f"{_clock(now_ns)} {first}", *more]
    _put_lines(lines)


def _put(systems: list[_Domain], *, as_json: bool, is_first: bool = False) -> None:
    """Put the state of all; with `is_first` other documents follow."""
    if as_json:
        streams.put((envelope.line if is_first else envelope.document)("health", _data(systems)))
        return
    for domain in systems:
        lines = domain.lines()
        for one in domain.health.open:
            lines += incident_lines(one, domain.feed.now_ns())
        lines += [_muted_line(one) for one in domain.health.muted]
        for mute, hidden in domain.health.standing_mutes:
            lines.append(f"  mute {mute.name} until {_clock(mute.until_ns)}: {mute.words(hidden)}")
        _put_lines(lines)
        if domain.health.mutes.problem:
            streams.notify(f"ospltool: mutes cannot be stored: {domain.health.mutes.problem}")


def _put_lines(lines: list[str]) -> None:
    streams.put("".join(f"{visible(line)}\n" for line in lines))


def _data(systems: list[_Domain]) -> list[DomainHealth]:
    return [{"domain": one.title, **export.health(one.health, one.feed.now_ns())} for one in systems]


def incident_lines(one: Incident, now_ns: int) -> list[str]:
    """Describe an incident: what, why, its effect, and what to do."""
    return [
        f"  {heading(one, now_ns)}",
        f"    why:    {one.why}",
        f"    effect: {one.effect}",
        f"    next:   {one.next}",
    ]


def _end_lines(one: Incident, now_ns: int) -> list[str]:
    return [f"  {heading(one, now_ns)}", *([f"    effect: {one.effect}"] if one.effect else [])]


def _muted_line(one: Incident) -> str:
    return f"  muted until {_clock(one.muted_until_ns)}: {one.code.id} {one.who}: {one.what}"


def heading(one: Incident, now_ns: int) -> str:
    """Describe an incident in one line: severity, code, what, since when and how long."""
    lasts, again = one.lasts(now_ns), one.again
    subject = one.what if one.what.startswith(f"{one.who}: ") else f"{one.who}: {one.what}"
    since = f"{one.since} {_clock(one.since_ns)}, {lasts}"
    if not one.is_open:
        times = dict.fromkeys((_clock(one.since_ns), _clock(one.until_ns)))
        to = " to before " if one.ended_before else " to "
        since = f"{'from before ' if one.began_before else ''}{to.join(times)}, {lasts}"
        return f"{one.code.id} {subject}, {one.severity.name} at worst ({since}{again})"
    return f"{one.severity.name} {one.code.id} {subject} ({since}{again})"


def _clock(moment_ns: int) -> str:
    moment = datetime.datetime.fromtimestamp(moment_ns // 1_000_000_000, datetime.UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


group = command_group(
    "Report what is wrong in a running system, and mute what is known.",
    (
        ("report", health, "Report what is wrong (the default)."),
        ("mute", mute, "Mute incidents for a time."),
        ("unmute", unmute, "Stop muting incidents."),
    ),
    cls=DefaultGroup,
    no_args_is_help=False,
)
