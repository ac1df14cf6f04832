"""Follows alignments from request to completion in the traces of both sides.

OpenSplice does not number requests: their source is 0,0,0 unless they are for one reader. But between two
nodes the requests of one group are answered in their order, so that an answer belongs to the oldest open
request. ospltool numbers requests and aligns whole name-spaces, which are then the group. Requests to a lost
fellow, or of a node that was restarted, are closed unanswered.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from ospltool.trace.meaning.names import NOBODY, Names
from ospltool.trace.reading.record import TraceRecord, number

MOST_OPEN: Final = 100_000
"""Most open alignments; beyond that the oldest are closed and counted."""


MOST_LATE: Final = 8
_LONGEST_TEXT: Final = 300
_new: Final = tuple.__new__
"""Makes a place in half of the time of its class, which counts for millions."""

SOON_NS: Final = 1_000_000_000
"""Time within which two nodes print the two ends of one message, in any order."""


class AlignmentStep(enum.StrEnum):
    """Step of an alignment."""

    bit: int
    """A bit of `TracedAlignment.seen`."""

    REQUESTED = "requested"
    RECEIVED = "request received"
    COMBINED = "combined with another request"
    SENDING = "sending"
    SENT = "sent"
    EQUAL = "sets are equal, nothing sent"
    LINK = "end mark received"
    BEADS = "set is whole"
    APPLIED = "merge policy applied"
    COMPLETE = "complete"


for _number, _step in enumerate(AlignmentStep):
    _step.bit = 1 << _number


class AlignmentEnd(enum.StrEnum):
    """End of an alignment."""

    OPEN = "open"
    COMPLETE = "complete"
    ABSORBED = "answered together with an earlier request"
    REFUSED = "refused"
    ALIGNER_LOST = "aligner lost"
    RESTARTED = "node restarted"
    FORGOTTEN = "too many at once"


class RecordPlace(NamedTuple):
    """Place of a record, and the beginning of its text. It is a tuple, since every step has one."""

    node: str
    file: str
    offset: int
    time_ns: int | None
    text: str


def place(record: TraceRecord) -> RecordPlace:
    """Return the place of a record."""
    _, node, file, offset, time_ns, _, _, _, text, *_ = record
    if len(text) > _LONGEST_TEXT or "\n" in text:
        text = text.partition("\n")[0][:_LONGEST_TEXT]
    return _new(RecordPlace, (node, file, offset, time_ns, text))


class KindCounts(NamedTuple):
    """Number of samples of a set by kind: writes (including disposing ones), and disposes alone."""

    data: int
    disposes: int


@dataclasses.dataclass(slots=True)
class TracedAlignment:
    """One alignment of one group."""

    number: int
    """Number from 1, in the order of requests."""
    group: str
    """Partition.topic; a name-space in ospltool traces."""
    alignee: str
    """Address of the node that asks."""
    aligner: str
    """Address of the node that answers; `0` while the request is to all."""
    source: str
    """Source triple."""
    steps: list[tuple[AlignmentStep, RecordPlace]] = dataclasses.field(default_factory=list)
    """Steps with their lines, in order; `note` adds one."""
    seen: int = 0
    """The bits of its steps."""
    end: AlignmentEnd = AlignmentEnd.OPEN
    """Its end, or OPEN."""
    samples_sent: int | None = None
    """Number of samples that the aligner sent; None if unknown."""
    samples: int | None = None
    """Number of samples that the alignee was told to expect; None if unknown."""
    policy: str = ""
    """Applied merge policy; empty for an initial alignment."""
    kinds_sent: KindCounts | None = None
    """Samples that the aligner sent, by kind; None if unknown."""
    kinds: KindCounts | None = None
    """Samples that the alignee injected, by kind; None if unknown."""
    set_size: int | None = None
    """Samples in the aligner's whole set, if only a difference was sent (ospltool)."""
    is_equal: bool = False
    """The sets were equal, so nothing was sent."""
    is_split: bool = False
    """The request was to all aligners, and continues as one alignment for each that received it."""

    def time(self, step: AlignmentStep) -> int | None:
        """Return the first time of a step; None if it did not happen or has no time."""
        return next((where.time_ns for what, where in self.steps if what is step), None)

    def has(self, step: AlignmentStep) -> bool:
        """Return whether a step happened."""
        return self.seen & step.bit != 0

    def note(self, step: AlignmentStep, where: RecordPlace) -> None:
        """Add a step with its line."""
        self.steps.append((step, where))
        self.seen |= step.bit

    def note_first(self, step: AlignmentStep, where: RecordPlace) -> None:
        """Add a step before all others."""
        self.steps.insert(0, (step, where))
        self.seen |= step.bit

    @property
    def start_ns(self) -> int | None:
        """The time of its first step."""
        return self.steps[0][1].time_ns if self.steps else None

    @property
    def end_ns(self) -> int | None:
        """The time of its last step."""
        return self.steps[-1][1].time_ns if self.steps else None


class ExchangeBook:
    """Follows all alignments. Records must come by time, those of a node in the order of its file."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._open: dict[str, list[TracedAlignment]] = {}
        """Open alignments by group, oldest first."""

        self._late: dict[tuple[str, str], collections.deque[TracedAlignment]] = {}
        """Ended alignments that one side may print further lines about, by group and aligner."""

        self._started: dict[str, str] = {}
        """The address of each node in its current run."""

        self._merging: dict[tuple[str, str, str], str] = {}
        """Policies of ospltool merges before their requests, by alignee, aligner and name-space."""

        self._count = 0
        self._open_count = 0
        self.done: list[TracedAlignment] = []
        self._all: tuple[int, list[TracedAlignment]] = (0, [])
        """All alignments, and how many there were when they were put in order."""

        self._just_sent: dict[str, list[TracedAlignment]] = {}
        self._just_taken: dict[str, list[TracedAlignment]] = {}
        """Alignments that the next line about kinds of samples concerns, by address of the node."""

    def add(self, record: TraceRecord) -> None:
        """Take in a whole record; `Names` must have learned from it already."""
        handler = FOLLOWERS.get(record.event)
        own = self._names.own.get(record.node)
        if handler is not None and own is not None:
            handler(self, record, own)

    def all(self) -> list[TracedAlignment]:
        """Return all alignments, in the order of requests; a request to all counts once for each aligner."""
        if self._all[0] != self._count:
            waiting = [one for some in self._open.values() for one in some]
            found = sorted((*self.done, *waiting), key=lambda one: one.number)
            self._all = (self._count, found)
        return [one for one in self._all[1] if not one.is_split]

    # ------------------------------------------------------------------ the alignee's side

    def _requested(self, record: TraceRecord, own: str) -> None:
        """Note a request. It is printed after it was written, so aligners may have printed theirs before."""
        group, aligner = record.fields["group"], record.fields["fellow"]
        where = place(record)
        early = [
            one
            for one in [*self._late.get((group, aligner), ()), *self._open.get(group, ())]
            if one.alignee == own
            and aligner in {one.aligner, NOBODY}
            and not one.has(AlignmentStep.REQUESTED)
            and _is_soon_after(one, record)
        ]
        if aligner != NOBODY:
            exchange = early[0] if early else self._new(group, own, aligner, record.fields.get("source", ""))
            exchange.policy = self._merging.pop((own, aligner, group), exchange.policy)
            exchange.note_first(AlignmentStep.REQUESTED, where)
            return
        for one in early:
            one.note_first(AlignmentStep.REQUESTED, where)
        to_all = self._new(group, own, aligner, record.fields.get("source", ""))
        to_all.note(AlignmentStep.REQUESTED, where)
        to_all.is_split = bool(early)

    def _link(self, record: TraceRecord, own: str) -> None:
        group, aligner = record.fields["group"], record.fields["fellow"]
        exchange = self._oldest(group, own, aligner, without=AlignmentStep.LINK) or self._new(
            group, own, aligner, ""
        )
        exchange.samples = number(record.fields.get("samples"))
        exchange.is_equal = exchange.is_equal or "equal" in record.fields.get("equal", "")
        exchange.note(AlignmentStep.LINK, place(record))

    def _refused(self, record: TraceRecord, own: str) -> None:
        exchange = self._oldest(
            record.fields["group"], own, record.fields["fellow"], without=AlignmentStep.LINK
        )
        if exchange is not None:
            exchange.note(AlignmentStep.LINK, place(record))
            self._close(exchange, AlignmentEnd.REFUSED)

    def _alignee_step(self, record: TraceRecord, own: str) -> None:
        step = _ALIGNEE_STEPS[record.event]
        taken = [
            one
            for one in self._open.get(record.fields["group"], ())
            if one.alignee == own and one.seen & _LINK_BIT and not one.seen & step.bit
        ]
        if taken:
            where = place(record)
            for exchange in taken:
                exchange.note(step, where)
                if step is AlignmentStep.APPLIED:
                    exchange.policy = record.fields.get("policy", "")
                if step is AlignmentStep.COMPLETE:
                    self._close(exchange, AlignmentEnd.COMPLETE)
        if step is AlignmentStep.COMPLETE:
            self._just_taken[own] = taken

    def _injected(self, record: TraceRecord, own: str) -> None:
        """Note the injected samples. OpenSplice prints this line right after that of the complete group."""
        kinds = _kinds(record)
        for exchange in self._just_taken.pop(own, ()) if "group" not in record.fields else ():
            exchange.kinds = kinds

    def _completed(self, record: TraceRecord, own: str) -> None:
        """Note the end of an alignment in ospltool, which is one line."""
        fields = record.fields
        group, aligner, source = fields["group"], fields["fellow"], fields.get("source", "")
        exchange = self._oldest(group, own, aligner, without=AlignmentStep.COMPLETE, source=source)
        if exchange is None:
            exchange = self._new(group, own, aligner, source)
        exchange.samples = number(fields.get("samples"))
        exchange.note(AlignmentStep.COMPLETE, place(record))
        self._close(exchange, AlignmentEnd.COMPLETE)

    def _merge_started(self, record: TraceRecord, own: str) -> None:
        fields = record.fields
        if "policy" in fields:
            self._merging[own, fields["fellow"], fields["namespace"]] = fields["policy"].upper()

    def _merge_finished(self, record: TraceRecord, own: str) -> None:
        for exchange in self._open.get(record.fields["namespace"], ()):
            if exchange.alignee == own and exchange.policy and not exchange.has(AlignmentStep.APPLIED):
                exchange.note(AlignmentStep.APPLIED, place(record))
                return

    # ------------------------------------------------------------------ the aligner's side

    def _received(self, record: TraceRecord, own: str) -> None:
        group, alignee = record.fields["group"], record.fields["fellow"]
        source = record.fields.get("source", "")
        exchange = self._oldest(group, alignee, own, without=AlignmentStep.RECEIVED, source=source)
        if exchange is None:
            exchange = self._of_all(group, alignee, own)
        if exchange is None:
            exchange = self._new(group, alignee, own, source)
        exchange.note(AlignmentStep.RECEIVED, place(record))

    def _of_all(self, group: str, alignee: str, own: str) -> TracedAlignment | None:
        """Split an alignment to this node off a request to all aligners."""
        to_all = self._oldest(group, alignee, NOBODY, without=AlignmentStep.RECEIVED)
        if to_all is None:
            return None
        to_all.is_split = True
        exchange = self._new(group, alignee, own, to_all.source)
        for step, where in to_all.steps[:1]:
            exchange.note(step, where)
        return exchange

    def _combined(self, record: TraceRecord, own: str) -> None:
        self._aligner_step(record, own, record.fields["fellow"], AlignmentStep.COMBINED)

    def _not_combined(self, record: TraceRecord, own: str) -> None:
        """Close a request that is answered together with an earlier one of the fellow."""
        group, alignee = record.fields["group"], record.fields["fellow"]
        again = [
            one
            for one in self._open.get(group, ())
            if one.alignee == alignee
            and one.aligner == own
            and one.has(AlignmentStep.RECEIVED)
            and not one.has(AlignmentStep.SENT)
        ]
        if len(again) > 1:
            self._close(again[-1], AlignmentEnd.ABSORBED)

    def _sending(self, record: TraceRecord, own: str) -> None:
        for alignee in record.fields.get("fellows", "").split(","):
            self._aligner_step(record, own, alignee.strip(), AlignmentStep.SENDING)

    def _sent(self, record: TraceRecord, own: str) -> None:
        samples = number(record.fields.get("samples"))
        step = AlignmentStep.EQUAL if record.event == "align.equal" else AlignmentStep.SENT
        answered = self._just_sent[own] = self._answered(record, own)
        for exchange in answered:
            exchange.set_size = number(record.fields.get("total"))
            exchange.samples_sent = 0 if step is AlignmentStep.EQUAL else samples
            exchange.is_equal = exchange.is_equal or step is AlignmentStep.EQUAL
            exchange.note(step, place(record))

    def _sent_kinds(self, record: TraceRecord, own: str) -> None:
        for exchange in self._just_sent.pop(own, ()):
            exchange.kinds_sent = _kinds(record)

    def _answered(self, record: TraceRecord, own: str) -> list[TracedAlignment]:
        """Return the alignments that an answer is for; ospltool names several fellows."""
        group, alignees = record.fields["group"], record.fields["fellow"].split(",")
        return [one for alignee in alignees for one in self._answered_to(group, alignee.strip(), own)]

    def _answered_to(self, group: str, alignee: str, own: str) -> list[TracedAlignment]:
        """Return the alignments that an answer to a fellow is for; one to fellow 0 is for all being sent."""
        if alignee == NOBODY:
            return [
                one
                for one in [*self._late.get((group, own), ()), *self._open.get(group, ())]
                if one.aligner == own and one.has(AlignmentStep.SENDING) and not one.has(AlignmentStep.SENT)
            ]
        waiting = [
            one
            for one in [*self._late.get((group, own), ()), *self._open.get(group, ())]
            if one.alignee == alignee and one.aligner == own and not one.seen & _ANSWERED_BITS
        ]
        return sorted(waiting, key=lambda one: not one.has(AlignmentStep.SENDING))[:1] if waiting else []

    def _aligner_step(self, record: TraceRecord, own: str, alignee: str, step: AlignmentStep) -> None:
        exchange = self._oldest(record.fields["group"], alignee, own, without=step)
        if exchange is not None:
            exchange.note(step, place(record))

    # ------------------------------------------------------------------ what ends them

    def _fellow_lost(self, record: TraceRecord, own: str) -> None:
        lost = record.fields.get("fellow")
        self._close_where(lambda one: one.alignee == own and one.aligner == lost, AlignmentEnd.ALIGNER_LOST)

    def _restarted(self, record: TraceRecord, own: str) -> None:
        name = record.node
        earlier = {
            address for address, node in self._names.node_of.items() if node == name and address != own
        }
        if self._started.get(name) == own:  # ospltool keeps its address
            earlier.add(own)
        self._started[name] = own
        self._late = {
            key: late
            for key, late in self._late.items()
            if not any(one.alignee in earlier or one.aligner in earlier for one in late)
        }
        self._close_where(
            lambda one: one.alignee in earlier or one.aligner in earlier, AlignmentEnd.RESTARTED
        )

    def _close_where(self, condition: Condition, end: AlignmentEnd) -> None:
        for some in list(self._open.values()):
            for one in list(some):
                if condition(one):
                    self._close(one, end)

    def _close(self, exchange: TracedAlignment, end: AlignmentEnd) -> None:
        exchange.end = end
        some = self._open[exchange.group]
        some.remove(exchange)
        if not some:
            del self._open[exchange.group]
        self._open_count -= 1
        self.done.append(exchange)
        unsent = (
            end is AlignmentEnd.COMPLETE
            and exchange.has(AlignmentStep.SENDING)
            and not exchange.has(AlignmentStep.SENT)
        )
        if unsent or (end is AlignmentEnd.ABSORBED and not exchange.has(AlignmentStep.REQUESTED)):
            late = self._late.setdefault(
                (exchange.group, exchange.aligner), collections.deque(maxlen=MOST_LATE)
            )
            late.append(exchange)

    def _new(self, group: str, alignee: str, aligner: str, source: str) -> TracedAlignment:
        if self._open_count >= MOST_OPEN:
            self._close(
                min((some[0] for some in self._open.values()), key=lambda one: one.number),
                AlignmentEnd.FORGOTTEN,
            )
        self._count += 1
        self._open_count += 1
        exchange = TracedAlignment(self._count, group, alignee, aligner, source)
        self._open.setdefault(group, []).append(exchange)
        return exchange

    def _oldest(
        self, group: str, alignee: str, aligner: str, *, without: AlignmentStep, source: str = ""
    ) -> TracedAlignment | None:
        """Return the oldest alignment that waits for a step, one of the same source first."""
        bit = without.bit
        waiting = [
            one
            for one in self._open.get(group, ())
            if one.alignee == alignee and one.aligner == aligner and not one.seen & bit
        ]
        return next((one for one in waiting if one.source == source), waiting[0] if waiting else None)


def _kinds(record: TraceRecord) -> KindCounts | None:
    """Return the counts of a line by kind."""
    fields = record.fields
    writes, both = number(fields.get("writes")), number(fields.get("write_disposes"))
    disposes = number(fields.get("disposes"))
    return None if writes is None else KindCounts(writes + (both or 0), disposes or 0)


def _is_soon_after(exchange: TracedAlignment, record: TraceRecord) -> bool:
    start = exchange.start_ns
    return start is None or record.time_ns is None or record.time_ns - start < SOON_NS


_LINK_BIT: Final = AlignmentStep.LINK.bit
_ANSWERED_BITS: Final = AlignmentStep.SENT.bit | AlignmentStep.EQUAL.bit

_ALIGNEE_STEPS: Final = {
    "align.received": AlignmentStep.BEADS,
    "merge.applying": AlignmentStep.APPLIED,
    "group.complete": AlignmentStep.COMPLETE,
}

FOLLOWERS: Final[Mapping[str, Callable[[ExchangeBook, TraceRecord, str], None]]] = {
    "align.request": ExchangeBook._requested,
    "align.request-filtered": ExchangeBook._requested,
    "align.request-delayed": ExchangeBook._requested,
    "align.request-received": ExchangeBook._received,
    "align.request-received-filtered": ExchangeBook._received,
    "align.combined": ExchangeBook._combined,
    "align.not-combined": ExchangeBook._not_combined,
    "align.sending": ExchangeBook._sending,
    "align.sent": ExchangeBook._sent,
    "align.equal": ExchangeBook._sent,
    "align.sent-kinds": ExchangeBook._sent_kinds,
    "merge.injected": ExchangeBook._injected,
    "align.link": ExchangeBook._link,
    "align.refused": ExchangeBook._refused,
    "align.received": ExchangeBook._alignee_step,
    "merge.applying": ExchangeBook._alignee_step,
    "group.complete": ExchangeBook._alignee_step,
    "align.completed": ExchangeBook._completed,
    "merge.started": ExchangeBook._merge_started,
    "merge.finished": ExchangeBook._merge_finished,
    "fellow.quarantined": ExchangeBook._fellow_lost,
    "fellow.disconnected": ExchangeBook._fellow_lost,
    "fellow.heartbeat-lost": ExchangeBook._fellow_lost,
    "lifecycle.address": ExchangeBook._restarted,
}
"""What takes in a record of an event, with the address of its node."""

FOLLOWED: Final = frozenset(FOLLOWERS)
"""The events that are steps of an alignment, or end one."""

Condition = Callable[[TracedAlignment], bool]
