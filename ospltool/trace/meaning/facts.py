"""What the rules of `anomalies` and the `timeline` look at: gathered in one pass over the records."""

from __future__ import annotations

import collections
import dataclasses
import re
from typing import TYPE_CHECKING, Final, TypeVar

from ospltool.trace.meaning.exchanges import ExchangeBook, Place, place
from ospltool.trace.meaning.names import Names
from ospltool.trace.reading.record import Clock, Kind
from ospltool.trace.reading.whole import is_whole, nanoseconds, number
from ospltool.trace.views.times import SECOND_NS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ospltool.trace.reading.record import Record

MOST_FACTS: Final = 500_000
"""Facts of one kind that are kept; what comes after is counted in `Facts.dropped`."""

Fact = TypeVar("Fact")

Run = tuple[str, int]
"""A node and the run of its service."""


@dataclasses.dataclass(frozen=True, slots=True)
class StateSpan:
    """A service state of a run, from its first record to the first record of the next state."""

    run: Run
    state: str
    start_ns: int
    end_ns: int
    place: Place


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """A node confirmed a master.

    Attributes:
        run: who.
        namespace: of which name-space.
        chooser: the address of the node.
        master: the address of the master that it confirmed.
        place: where it says so.
    """

    run: Run
    namespace: str
    chooser: str
    master: str
    place: Place


@dataclasses.dataclass(slots=True)
class Conflict:
    """A conflict on one node.

    Attributes:
        run: the node.
        number: its number there.
        kind: the event of its creation, such as `conflict.master`.
        namespace: the name-space, if it is about one.
        fellow: the address of the other node, if there is one.
        created: where it was created.
        resolving: how often work on it began.
        started: when merging for it began.
        stopped: when its last merge ended.
        ended: where it was resolved, combined with another or discarded.
        how: the event of its end.
    """

    run: Run
    number: str
    kind: str
    namespace: str
    fellow: str
    created: Place
    resolving: int = 0
    started: Place | None = None
    stopped: Place | None = None
    ended: Place | None = None
    how: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Merge:
    """Requests were made for a merge: the merge begins."""

    run: Run
    namespace: str
    groups: int
    fellows: int
    place: Place


@dataclasses.dataclass(frozen=True, slots=True)
class MergeState:
    """A node says in which merge state its own set is, or advertises it."""

    run: Run
    namespace: str
    role: str
    state: str
    event: str
    place: Place


@dataclasses.dataclass(slots=True)
class Activity:
    """A thread in one run: how often it spoke, and its longest silence."""

    count: int = 0
    first_ns: int = 0
    last_ns: int = 0
    longest_ns: int = 0
    longest_from: Place | None = None
    last: Place | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Wait:
    """A main thread printed nothing for a while: what it said before, what after."""

    run: Run
    state: str
    thread: str
    length_ns: int
    before: Place
    after: Place


@dataclasses.dataclass(frozen=True, slots=True)
class Jump:
    """A clock that was set: two neighbouring records of one file."""

    run: Run
    by_ns: int
    before: Place
    after: Place
    is_mismatch: bool = False
    """The two timestamps of one line do not agree."""


_MAIN_THREADS: Final = frozenset({"ospl_durability", "mainThread", "conflictResolver"})
_STRAGGLER_NS: Final = SECOND_NS // 100
_LEAST_WAIT_NS: Final = SECOND_NS // 10
_MOST_WAITS: Final = 10_000
_JUMP_BACK_NS: Final = SECOND_NS
_REPORTED: Final = frozenset({"WARNING", "SEVERE", "ERROR", "CRITICAL", "FATAL"})
_LOCAL: Final = re.compile(rb"\d{4}-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)([+-])(\d\d)(\d\d) (\d+)\.")


class Facts:
    """Gathers facts. Records must come in the order of time, those of a node in the order of its file."""

    def __init__(self) -> None:
        self.names = Names()
        self.book = ExchangeBook(self.names)
        self.states: list[StateSpan] = []
        self.stopping: dict[Run, int] = {}
        """When runs began to stop in order."""

        self.choices: list[Choice] = []
        self.conflicts: list[Conflict] = []
        self.merges: list[Merge] = []
        self.applied: list[tuple[Run, str, str, Place]] = []
        """Applied merge policies: run, policy, group."""

        self.losses: list[tuple[Run, str, str, Place]] = []
        """Fellows that were lost: run, event, address."""

        self.merge_states: list[MergeState] = []
        self.heartbeats: dict[tuple[Run, str], tuple[int, Place]] = {}
        self.late_heartbeats: list[tuple[Run, str, int, Place]] = []
        """Heartbeats that came later than their period allows: run, address, nanoseconds after the last."""

        self.reported: list[tuple[Reported, Place]] = []
        self.activity: dict[tuple[Run, str], Activity] = {}
        self.waits: list[Wait] = []
        self.jumps: list[Jump] = []
        self.readers: list[tuple[Run, str, Place, Place | None]] = []
        """Waits for historical data: run, reader, request, fulfilment."""

        self.roles: dict[str, str] = {}
        """Role of a node by its address, where a fellow reported it."""

        self.dropped: collections.Counter[str] = collections.Counter()
        self.last_ns: dict[Run, int] = {}
        self.first_ns: dict[Run, int] = {}
        self._open_state: dict[str, tuple[Run, str, int, Place]] = {}
        self._last_span: dict[str, StateSpan] = {}
        self._open_conflicts: dict[tuple[Run, str], Conflict] = {}
        self._previous: dict[str, tuple[int, Place, Run]] = {}
        self._main: dict[tuple[Run, str], tuple[int, Place, str]] = {}

    @classmethod
    def of(cls, records: Iterable[Record]) -> Facts:
        """The facts of records."""
        facts = cls()
        for record in records:
            facts.add(record)
        facts.finish()
        return facts

    def add(self, record: Record) -> None:
        """Takes a record."""
        self.names.learn(record)
        if record.level in _REPORTED:
            self._keep("reported", self.reported, (_reported(record), place(record)))
        if record.kind is not Kind.TRACE or record.time_ns is None:
            return
        run = (record.node, record.run)
        self.first_ns.setdefault(run, record.time_ns)
        self.last_ns[run] = record.time_ns
        self._follow_clock(record, run, record.time_ns)
        self._follow_thread(record, run, record.time_ns)
        if record.state:
            self._follow_state(record, run, record.time_ns)
        if record.event and is_whole(record):
            self.book.add(record)
            self._take(record, run, record.time_ns)

    def finish(self) -> None:
        """Ends what is still open."""
        for run, state, start, where in self._open_state.values():
            self.states.append(StateSpan(run, state, start, self.last_ns[run], where))
        self._open_state.clear()
        self.states.sort(key=lambda span: (span.run, span.start_ns))
        for span in self.states:
            if span.state.startswith("TERMINAT"):
                self.stopping.setdefault(span.run, span.start_ns)

    def _keep(self, kind: str, facts: list[Fact], fact: Fact) -> None:
        if len(facts) < MOST_FACTS:
            facts.append(fact)
        else:
            self.dropped[kind] += 1

    # ------------------------------------------------------------------ every record

    def _follow_clock(self, record: Record, run: Run, time: int) -> None:
        previous = self._previous.get(record.file)
        if previous is not None and time < previous[0] - _JUMP_BACK_NS and previous[2] == run:
            self._keep("jumps", self.jumps, Jump(run, time - previous[0], previous[1], place(record)))
        if record.clock is Clock.ABSOLUTE and _disagrees(record.raw):
            self._keep("jumps", self.jumps, Jump(run, 0, place(record), place(record), is_mismatch=True))
        self._previous[record.file] = (time, place(record), run)

    def _follow_thread(self, record: Record, run: Run, time: int) -> None:
        key = (run, record.thread)
        activity = self.activity.get(key)
        if activity is None:
            activity = self.activity[key] = Activity(first_ns=time, last_ns=time)
        if time - activity.last_ns > activity.longest_ns:
            activity.longest_ns, activity.longest_from = time - activity.last_ns, activity.last
        activity.count += 1
        activity.last_ns, activity.last = time, place(record)
        if record.thread in _MAIN_THREADS:
            before = self._main.get(key)
            if before is not None and time - before[0] >= _LEAST_WAIT_NS and len(self.waits) < _MOST_WAITS:
                wait = Wait(run, before[2], record.thread, time - before[0], before[1], place(record))
                self.waits.append(wait)
            self._main[key] = (time, place(record), record.state)

    def _follow_state(self, record: Record, run: Run, time: int) -> None:
        known = self._open_state.get(record.node)
        if known is not None and known[0] == run:
            if known[1] == record.state:
                return
            before = self._last_span.get(record.node)
            if (
                before
                and before.run == run
                and before.state == record.state
                and time - known[2] < _STRAGGLER_NS
            ):
                return  # a thread that wrote its line a little late
        if known is not None:
            end = time if known[0] == run else self.last_ns[known[0]]
            span = StateSpan(known[0], known[1], known[2], end, known[3])
            self._last_span[record.node] = span
            self._keep("states", self.states, span)
        self._open_state[record.node] = (run, record.state, time, place(record))

    # ------------------------------------------------------------------ events

    def _take(self, record: Record, run: Run, time: int) -> None:
        event, fields = record.event, record.fields
        area = event.partition(".")[0]
        if area == "conflict":
            self._conflict(record, run)
        elif event in {"election.confirmed-self", "election.confirmed-fellow"}:
            own = self.names.own.get(record.node, record.node)
            master = own if event == "election.confirmed-self" else fields["fellow"]
            self._keep("choices", self.choices, Choice(run, fields["namespace"], own, master, place(record)))
        elif event == "merge.requests":
            groups, fellows = number(fields["groups"]) or 0, number(fields["fellows"]) or 0
            merge = Merge(run, fields["namespace"], groups, fellows, place(record))
            self._keep("merges", self.merges, merge)
        elif event == "merge.started" and "policy" in fields:  # of our engine; it merges whole name-spaces
            self._keep("merges", self.merges, Merge(run, fields["namespace"], 0, 1, place(record)))
            applied = (run, fields["policy"].upper(), fields["namespace"], place(record))
            self._keep("applied", self.applied, applied)
        elif event == "merge.applying":
            self._keep("applied", self.applied, (run, fields["policy"], fields["group"], place(record)))
        elif event in _MERGE_STATES:
            role, merge_state = fields.get("role", ""), fields["merge_state"]
            said = MergeState(run, fields["namespace"], role, merge_state, event, place(record))
            self._keep("merge states", self.merge_states, said)
        elif event == "fellow.heartbeat":
            self._heartbeat(record, run, time)
        elif event == "fellow.late":
            elapsed_ns = nanoseconds(fields["elapsed_ns"])
            if elapsed_ns is not None:
                late = (run, fields["fellow"], elapsed_ns, place(record))
                self._keep("late heartbeats", self.late_heartbeats, late)
        elif event in _LOSSES:
            self._keep("losses", self.losses, (run, event, fields.get("fellow", ""), place(record)))
            self.heartbeats.pop((run, fields.get("fellow", "")), None)
        elif event == "namespace.received":
            self.roles[fields["fellow"]] = fields.get("role", "")
        elif event in {"client.request", "deliver.started"}:
            self._keep("readers", self.readers, (run, fields["reader"], place(record), None))
        elif event in {"client.fulfilled", "deliver.finished"}:
            self._fulfilled(run, fields["reader"], place(record))

    def _heartbeat(self, record: Record, run: Run, time: int) -> None:
        fellow = record.fields["fellow"]
        known = self.heartbeats.get((run, fellow))
        seconds = number(record.fields.get("period", "").partition(".")[0])
        if known is not None and seconds:
            gap = time - known[0]
            if gap > seconds * SECOND_NS:
                self._keep("late heartbeats", self.late_heartbeats, (run, fellow, gap, place(record)))
        self.heartbeats[run, fellow] = (time, place(record))

    def _fulfilled(self, run: Run, reader: str, where: Place) -> None:
        for index in range(len(self.readers) - 1, -1, -1):
            known_run, known_reader, start, end = self.readers[index]
            if known_run == run and known_reader == reader and end is None:
                self.readers[index] = (run, reader, start, where)
                return

    def _conflict(self, record: Record, run: Run) -> None:
        number = record.fields.get("conflict")
        if number is None:
            return
        event = record.event
        known = self._open_conflicts.get((run, number))
        if event in CREATED:
            fields = record.fields
            conflict = Conflict(
                run, number, event, fields.get("namespace", ""), fields.get("fellow", ""), place(record)
            )
            self._open_conflicts[run, number] = conflict
            self._keep("conflicts", self.conflicts, conflict)
        elif event == "conflict.combined":
            discarded = self._open_conflicts.pop((run, record.fields.get("discarded", number)), None)
            if discarded is not None:
                discarded.ended, discarded.how = place(record), event
        elif known is not None:
            self._conflict_goes_on(known, record)

    def _conflict_goes_on(self, known: Conflict, record: Record) -> None:
        match record.event:
            case "conflict.resolving":
                known.resolving += 1
            case "conflict.started":
                known.started = place(record)
            case "conflict.stopped":
                known.stopped = place(record)
                if known.ended is not None:
                    self._open_conflicts.pop((known.run, known.number), None)
            case "conflict.resolved" | "conflict.discarded":
                known.ended, known.how = place(record), record.event
                if known.started is None:
                    self._open_conflicts.pop((known.run, known.number), None)


CREATED: Final = frozenset(
    {
        "conflict.master",
        "conflict.native-state",
        "conflict.foreign-state",
        "conflict.disconnect",
        "conflict.connect",
        "conflict.federation-disconnect",
        "conflict.initial",
        "conflict.group-complete",
        "conflict.new-namespace",
    }
)
"""The events by which a conflict comes into the world."""

_MERGE_STATES: Final = frozenset(
    {"namespace.merge-state", "namespace.slaved", "namespace.merge-state-advertised"}
)

_LOSSES: Final = frozenset(
    {
        "fellow.heartbeat-lost",
        "fellow.federation-lost",
        "fellow.reconnected",
        "fellow.non-responsive",
        "fellow.asymmetric",
        "fellow.quarantined",
        "fellow.disconnected",
    }
)


@dataclasses.dataclass(frozen=True, slots=True)
class Reported:
    """A warning or worse, as far as the rules need it."""

    node: str
    level: str
    event: str
    template: str
    kind: Kind
    text: str


def _reported(record: Record) -> Reported:
    return Reported(
        record.node, record.level, record.event, record.template_id, record.kind, record.text[:2000]
    )


def _disagrees(raw: bytes) -> bool:
    """Whether minute and second of the local time of a line are not those of its seconds since 1970."""
    found = _LOCAL.match(raw)
    if found is None:
        return False
    seconds = int(found[9])
    offset = (int(found[7]) * 60 + int(found[8])) * (1 if found[6] == b"+" else -1)
    of_day = (seconds // 60 + offset) % 1440 * 60 + seconds % 60
    return of_day != (int(found[3]) * 60 + int(found[4])) * 60 + int(found[5])
