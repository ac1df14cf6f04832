"""Facts for the rules of `anomalies` and for the `timeline`, gathered in one pass over the records."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeVar

from ospltool.output.times import SECOND_NS
from ospltool.trace.meaning.exchanges import FOLLOWED, FOLLOWERS, ExchangeBook, StepRows, told_by
from ospltool.trace.meaning.fact_kinds import (
    TOLD_BY,
    Activity,
    Described,
    Jump,
    MasterConfirmation,
    Merge,
    MergeState,
    Run,
    SetSize,
    StateSpan,
    StoredReplaced,
    TracedConflict,
    Wait,
    told_size,
)
from ospltool.trace.meaning.lines import NumberedLines, RecordPlace, place
from ospltool.trace.meaning.names import TAUGHT_BY, Names
from ospltool.trace.meaning.reports import DomainStarts, missed_heartbeat
from ospltool.trace.reading.headers import disagrees
from ospltool.trace.reading.record import (
    NEEDED,
    STRAGGLER_NS,
    RecordKind,
    TimeBase,
    TraceRecord,
    nanoseconds,
    no_collection,
    number,
)

# Some hundred megabytes. A trace with more of one kind is in trouble throughout.
MOST_FACTS: Final = 500_000
"""Most facts of one kind; `TraceFacts.dropped` counts the others."""

Fact = TypeVar("Fact")

MAIN_THREADS: Final = frozenset({"ospl_durability", "mainThread", "conflictResolver"})
# Shorter pauses are the rule, and none of them explains anything.
_LEAST_WAIT_NS: Final = SECOND_NS // 10
# Chosen: of more, the first ones are kept.
_MOST_WAITS: Final = 10_000
JUMP_BACK_NS: Final = SECOND_NS
REPORTED: Final = frozenset({"WARNING", "SEVERE", "ERROR", "CRITICAL", "FATAL"})


class TraceFacts:
    """Facts from records, which must come in the order of time, those of a node in the order of its file.

    Args:
        with_waits: gather silences of main threads, which needs all of their records. Everything else needs
            only the records that `ospltool.trace.case.reading_back` chooses.

    Attributes:
        lines: the lines about steps of alignments.
        stopping: times at which runs began to stop in order.
        applied: applied merge policies: run, policy, group, number of the line.
        losses: lost fellows: run, event, address.
        told_sizes: sizes of sets that ospltool nodes report themselves.
        late_heartbeats: heartbeats later than their period allows: run, address, nanoseconds after the last.
        readers: waits for historical data: run, reader, request, fulfilment.
        starts: starts of the domain service by node.
        roles: role of a node by its address, as the node or a fellow reported it.
        unparsed_bytes: bytes that belong to no record, or are beyond the size of any.
    """

    def __init__(self, *, with_waits: bool = True) -> None:
        self._with_waits = with_waits
        self.names = Names()
        self.lines = NumberedLines()
        self.book = ExchangeBook(self.names, self.lines)
        self.states: list[StateSpan] = []
        self.stopping: dict[Run, int] = {}
        self.choices: list[MasterConfirmation] = []
        self.conflicts: list[TracedConflict] = []
        self.merges: list[Merge] = []
        self.applied: list[tuple[Run, str, str, int]] = []
        self.losses: list[tuple[Run, str, str, RecordPlace]] = []
        self.merge_states: list[MergeState] = []
        self.described: list[Described] = []
        self.stored_replaced: list[StoredReplaced] = []
        self.told_sizes: list[SetSize] = []
        self.heartbeats: dict[tuple[Run, str], tuple[int, RecordPlace]] = {}
        self.late_heartbeats: list[tuple[Run, str, int, RecordPlace]] = []
        self.reported: list[tuple[Reported, RecordPlace]] = []
        self.activity: dict[tuple[Run, str], Activity] = {}
        self.waits: list[Wait] = []
        self.jumps: list[Jump] = []
        self.readers: list[tuple[Run, str, RecordPlace, RecordPlace | None]] = []
        self.starts: dict[str, DomainStarts] = {}
        self.roles: dict[str, str] = {}
        self.dropped: collections.Counter[str] = collections.Counter()
        self.unparsed_bytes = 0
        self.last_ns: dict[Run, int] = {}
        self.first_ns: dict[Run, int] = {}
        self._run: Run = ("", -1)
        """The run of the record before, with its threads."""

        self._line = 0
        """The line of the last step of which a record was made."""

        self._threads: dict[str, Activity] = {}
        self._threads_of: dict[Run, dict[str, Activity]] = {}
        self._open_state: dict[str, tuple[Run, str, int, RecordPlace]] = {}
        self._last_span: dict[str, StateSpan] = {}
        self._open_conflicts: dict[tuple[Run, str], TracedConflict] = {}
        self._previous: dict[str, tuple[int, TraceRecord, Run]] = {}
        self._main: dict[tuple[Run, str], tuple[int, TraceRecord]] = {}
        self._merging: dict[tuple[Run, str], str] = {}
        """Policies of ospltool merges that began, by run and name-space."""

        self._described: dict[tuple[Run, str, str], Described] = {}

    @classmethod
    def from_records(cls, records: Iterable[TraceRecord], *, with_waits: bool = True) -> TraceFacts:
        """Return the facts from records."""
        facts = cls(with_waits=with_waits)
        with no_collection():
            for record in records:
                facts.add(record)
        facts.finish()
        return facts

    def add_rows(self, rows: StepRows, records: Iterator[TraceRecord]) -> None:
        """Take in rows of a case; `records` are those that are no steps."""
        own_of, book = self.names.own.get, self.book
        for follower, node, said, run in zip(rows.followers, rows.nodes, rows.told, rows.runs, strict=True):
            if follower is None:
                self.add(next(records))
                continue
            own = own_of(node)
            if own is not None:
                follower(book, own, said)
            if follower is APPLYING:
                self._keep("applied", self.applied, ((node, run), said[4], said[1], said[0]))

    def add(self, record: TraceRecord) -> None:
        """Take in a record."""
        kind, node, _, _, time, _, state, _, _, _, number, template, _, level, _ = record
        event = template.event if template is not None else ""
        if event in TAUGHT_BY or kind is RecordKind.REPORT:
            self.names.learn(record)
        if kind is RecordKind.REPORT and "pid" in record.fields:
            process = f"{record.fields.get('host')} {record.fields['pid']}"
            self.starts.setdefault(node, DomainStarts()).add(process, record.text)
        # Releases report the loss of a node at different levels, so its content decides.
        if level in REPORTED or (kind is RecordKind.REPORT and missed_heartbeat(record.text) is not None):
            self._keep("reported", self.reported, (_reported(record), place(record)))
        if kind is RecordKind.UNPARSED:
            self.unparsed_bytes += record.length
        if kind is not RecordKind.TRACE or time is None:
            return
        run = self._run
        if run[1] != number or run[0] != node:
            run = self._run = (node, number)
            self._threads = self._threads_of.setdefault(run, {})
            self.first_ns.setdefault(run, time)
        self.last_ns[run] = time
        self._follow_clock(record, run, time)
        self._follow_thread(record, run, time)
        if state:
            known = self._open_state.get(node)
            if known is None or known[1] != state or known[0] != run:
                self._follow_state(record, run, time, known)
        if event in EVENTS:
            self._add_event(event, record, run)

    def _add_event(self, event: str, record: TraceRecord, run: Run) -> None:
        """Take in the event of a record, if it is whole."""
        needed, follower, taker = _PLANS[event]
        fields = record[12]
        for name in needed:
            if name not in fields:
                return
        if follower is not None:
            own = self.names.own.get(record[1])
            if own is not None or taker is not None:
                self._line = self.lines.add(place(record))
            if own is not None:
                follower(self.book, own, told_by(record, self._line))
        if taker is not None:
            taker(self, record, run)

    def finish(self) -> None:
        """Close the states that are still open."""
        for run, state, start, where in self._open_state.values():
            self.states.append(StateSpan(run, state, start, self.last_ns[run], where))
        self._open_state.clear()
        # By run: the states of one run follow each other, and the last one is its end.
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

    def _follow_clock(self, record: TraceRecord, run: Run, time: int) -> None:
        previous = self._previous.get(record.file)
        if previous is not None and time < previous[0] - JUMP_BACK_NS and previous[2] == run:
            self._keep("jumps", self.jumps, Jump(run, time - previous[0], place(previous[1]), place(record)))
        if record.raw and record.clock is TimeBase.ABSOLUTE and disagrees(record.raw):
            self._keep("jumps", self.jumps, Jump(run, 0, place(record), place(record), is_mismatch=True))
        self._previous[record.file] = (time, record, run)

    def _follow_thread(self, record: TraceRecord, run: Run, time: int) -> None:
        activity = self._threads.get(record.thread)
        if activity is None:
            self._threads[record.thread] = self.activity[run, record.thread] = Activity(time, record)
        else:
            activity.last_ns, activity.last_record = time, record
        if self._with_waits and record.thread in MAIN_THREADS:
            key = (run, record.thread)
            before = self._main.get(key)
            if before is not None and time - before[0] >= _LEAST_WAIT_NS and len(self.waits) < _MOST_WAITS:
                said = before[1]
                wait = Wait(run, said.state, record.thread, time - before[0], place(said), place(record))
                self.waits.append(wait)
            self._main[key] = (time, record)

    def _follow_state(
        self, record: TraceRecord, run: Run, time: int, known: tuple[Run, str, int, RecordPlace] | None
    ) -> None:
        if known is not None and known[0] == run:
            before = self._last_span.get(record.node)
            if (
                before
                and before.run == run
                and before.state == record.state
                and time - known[2] < STRAGGLER_NS
            ):
                return  # a thread wrote its line a little late
        if known is not None:
            end = time if known[0] == run else self.last_ns[known[0]]
            span = StateSpan(known[0], known[1], known[2], end, known[3])
            self._last_span[record.node] = span
            self._keep("states", self.states, span)
        self._open_state[record.node] = (run, record.state, time, place(record))

    # ------------------------------------------------------------------ events

    def _chosen(self, record: TraceRecord, run: Run) -> None:
        own = self.names.own.get(record.node, record.node)
        master = own if record.event == "election.confirmed-self" else record.fields["fellow"]
        choice = MasterConfirmation(run, record.fields["namespace"], own, master, place(record))
        self._keep("choices", self.choices, choice)

    def _merge_requests(self, record: TraceRecord, run: Run) -> None:
        fields = record.fields
        groups, fellows = number(fields["groups"]) or 0, number(fields["fellows"]) or 0
        self._keep("merges", self.merges, Merge(run, fields["namespace"], groups, fellows, place(record)))

    def _merge_started(self, record: TraceRecord, run: Run) -> None:
        fields = record.fields
        if "policy" in fields:  # ospltool merges whole name-spaces
            self._keep("merges", self.merges, Merge(run, fields["namespace"], 0, 1, place(record)))
            self._merging[run, fields["namespace"]] = fields["policy"].upper()

    def _aligned(self, record: TraceRecord, run: Run) -> None:
        policy = self._merging.pop((run, record.fields["group"]), "")
        if policy:
            self._keep("applied", self.applied, (run, policy, record.fields["group"], self._line))

    def _applied(self, record: TraceRecord, run: Run) -> None:
        fields = record.fields
        self._keep("applied", self.applied, (run, fields["policy"], fields["group"], self._line))

    def _merge_state(self, record: TraceRecord, run: Run) -> None:
        fields = record.fields
        role, state = fields.get("role", ""), fields["merge_state"]
        said = MergeState(run, fields["namespace"], role, state, record.event, place(record))
        self._keep("merge states", self.merge_states, said)
        self._learn_role(self.names.own.get(record.node, ""), role)

    def _own_role(self, record: TraceRecord, _: Run) -> None:
        self._learn_role(self.names.own.get(record.node, ""), record.fields.get("role", ""))

    def _late(self, record: TraceRecord, run: Run) -> None:
        elapsed_ns = nanoseconds(record.fields["elapsed_ns"])
        if elapsed_ns is not None:
            late = (run, record.fields["fellow"], elapsed_ns, place(record))
            self._keep("late heartbeats", self.late_heartbeats, late)

    def _lost(self, record: TraceRecord, run: Run) -> None:
        fellow = record.fields.get("fellow", "")
        self._keep("losses", self.losses, (run, record.event, fellow, place(record)))
        self.heartbeats.pop((run, fellow), None)

    def _name_space(self, record: TraceRecord, run: Run) -> None:
        self._learn_role(record.fields["fellow"], record.fields.get("role", ""))
        self._describe(record, run)

    def _stored_replaced(self, record: TraceRecord, run: Run) -> None:
        fields = record.fields
        before = number(fields.get("samples"))
        if before is not None and "namespace" in fields:
            former = StoredReplaced(
                run, fields["namespace"], before, fields.get("version", ""), place(record)
            )
            self._keep("replaced sets", self.stored_replaced, former)

    def _told_size(self, record: TraceRecord, _: Run) -> None:
        size = told_size(record)
        if size is not None:
            self._keep("set sizes", self.told_sizes, size)

    def _reader_waits(self, record: TraceRecord, run: Run) -> None:
        self._keep("readers", self.readers, (run, record.fields["reader"], place(record), None))

    def _learn_role(self, address: str, role: str) -> None:
        """Note the role of an address; a node may not report it at once."""
        if address and role:
            self.roles[address] = role

    def _describe(self, record: TraceRecord, run: Run) -> None:
        fields = record.fields
        new = Described(
            run, fields["namespace"], fields["fellow"], fields.get("master", ""), fields.get("role", ""),
            fields.get("merge_state", ""), place(record),
        )  # fmt: skip
        key = (run, new.namespace, new.fellow)
        before = self._described.get(key)
        if before is None or (before.master, before.role, before.state) != (new.master, new.role, new.state):
            self._described[key] = new
            self._keep("descriptions of fellows", self.described, new)

    def _heartbeat(self, record: TraceRecord, run: Run) -> None:
        fellow, time = record.fields["fellow"], record.time_ns or 0
        known = self.heartbeats.get((run, fellow))
        seconds = number(record.fields.get("period", "").partition(".")[0])
        if known is not None and seconds:
            gap = time - known[0]
            if gap > seconds * SECOND_NS:
                self._keep("late heartbeats", self.late_heartbeats, (run, fellow, gap, place(record)))
        self.heartbeats[run, fellow] = (time, place(record))

    def _fulfilled(self, record: TraceRecord, run: Run) -> None:
        reader = record.fields["reader"]
        for index in range(len(self.readers) - 1, -1, -1):
            known_run, known_reader, start, end = self.readers[index]
            if known_run == run and known_reader == reader and end is None:
                self.readers[index] = (run, reader, start, place(record))
                return

    def _conflict(self, record: TraceRecord, run: Run) -> None:
        number = record.fields.get("conflict")
        if number is None:
            return
        event = record.event
        known = self._open_conflicts.get((run, number))
        if event in CREATED:
            fields = record.fields
            conflict = TracedConflict(
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

    def _conflict_goes_on(self, known: TracedConflict, record: TraceRecord) -> None:
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
"""Events that create a conflict."""

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


_CONFLICT_ENDS: Final = frozenset(
    f"conflict.{what}" for what in ("combined", "resolving", "started", "stopped", "resolved", "discarded")
)

_TAKERS: Final[Mapping[str, Callable[[TraceFacts, TraceRecord, Run], None]]] = {
    **dict.fromkeys(CREATED | _CONFLICT_ENDS, TraceFacts._conflict),
    **dict.fromkeys(_MERGE_STATES, TraceFacts._merge_state),
    **dict.fromkeys(_LOSSES, TraceFacts._lost),
    **dict.fromkeys(TOLD_BY, TraceFacts._told_size),
    "election.confirmed-self": TraceFacts._chosen,
    "election.confirmed-fellow": TraceFacts._chosen,
    "election.proposing": TraceFacts._own_role,
    "election.basis": TraceFacts._own_role,
    "merge.requests": TraceFacts._merge_requests,
    "merge.started": TraceFacts._merge_started,
    "merge.applying": TraceFacts._applied,
    "align.completed": TraceFacts._aligned,
    "fellow.heartbeat": TraceFacts._heartbeat,
    "fellow.late": TraceFacts._late,
    "namespace.received": TraceFacts._name_space,
    "store.backup": TraceFacts._stored_replaced,
    "store.not-kept": TraceFacts._stored_replaced,
    "client.request": TraceFacts._reader_waits,
    "deliver.started": TraceFacts._reader_waits,
    "client.fulfilled": TraceFacts._fulfilled,
    "deliver.finished": TraceFacts._fulfilled,
}

EVENTS: Final = frozenset(_TAKERS) | FOLLOWED | TAUGHT_BY
"""Events that are facts by themselves; of other records only time, state and thread matter."""

APPLYING: Final = FOLLOWERS["merge.applying"]

_PLANS: Final = {event: (NEEDED.get(event, ()), FOLLOWERS.get(event), _TAKERS.get(event)) for event in EVENTS}
"""The fields that each event needs, and what takes it in."""


@dataclasses.dataclass(frozen=True, slots=True)
class Reported:
    """The parts of a warning or worse that the rules need."""

    node: str
    level: str
    event: str
    template: str
    kind: RecordKind
    text: str


def _reported(record: TraceRecord) -> Reported:
    return Reported(
        record.node, record.level, record.event, record.template_id, record.kind, record.text[:2000]
    )
