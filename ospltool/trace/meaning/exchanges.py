"""Follows alignments from request to completion in the traces of both sides.

OpenSplice does not number requests: their source is 0,0,0 unless they are for one reader. But between two
nodes the requests of one group are answered in their order, so that an answer belongs to the oldest open
request. ospltool numbers requests and aligns whole name-spaces, which are then the group. Requests to a lost
fellow, or of a node that was restarted, are closed unanswered.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from ospltool.trace.meaning.alignments import (
    AlignmentEnd,
    AlignmentStep,
    KindCounts,
    TracedAlignment,
    line_of,
    noted_as,
    step_of,
)
from ospltool.trace.meaning.lines import NumberedLines, place
from ospltool.trace.meaning.names import NOBODY, Names
from ospltool.trace.reading.record import TraceRecord, number

# Some hundred bytes each; alignments that never end are of nodes without a trace.
MOST_OPEN: Final = 100_000
"""Most open alignments; beyond that the oldest are closed and counted."""


# Chosen: answers come late for one or two requests.
MOST_LATE: Final = 8
SOON_NS: Final = 1_000_000_000
"""Time within which two nodes print the two ends of one message, in any order."""

Told = tuple[int, str, str, int | None, str, KindCounts | None]
"""What a record tells of an alignment: number of its line, group, fellow, samples, another field by its event
(see `WORDS`), and samples by kind. A text is empty without the field."""

WORDS: Final[Mapping[str, str]] = {
    "align.sending": "fellows",
    "align.link": "equal",
    "align.sent": "total",
    "align.equal": "total",
    "merge.applying": "policy",
    "merge.started": "policy",
}
"""The field that `Told` holds beside the usual ones; of other events it is the source."""

KINDS: Final = frozenset({"align.sent-kinds", "merge.injected"})
"""Events with samples by kind."""

_GROUPS: Final = {"merge.started": "namespace", "merge.finished": "namespace"}
"""The field with the group, by event; `group` for others."""


def kind_counts(writes: str | None, both: str | None, disposes: str | None) -> KindCounts | None:
    """Return the counts of a line by kind; `both` are writes that dispose. None without writes."""
    data = number(writes)
    return None if data is None else KindCounts(data + (number(both) or 0), number(disposes) or 0)


def told_by(record: TraceRecord, line: int) -> Told:
    """Return what a record tells of an alignment; `line` is the number of its line."""
    event, fields = record.event, record.fields
    kinds = None
    if event in KINDS:
        kinds = kind_counts(fields.get("writes"), fields.get("write_disposes"), fields.get("disposes"))
    return (
        line,
        fields.get(_GROUPS.get(event, "group"), ""),
        fields.get("fellow", ""),
        number(fields.get("samples")),
        fields.get(WORDS.get(event, "source"), ""),
        kinds,
    )


class ExchangeBook:
    """Follows all alignments. Records must come by time, those of a node in the order of its file."""

    def __init__(self, names: Names, lines: NumberedLines) -> None:
        self._names = names
        self._lines = lines
        self._open: dict[str, list[TracedAlignment]] = {}
        """Open alignments by group, oldest first."""

        self._late: dict[tuple[str, str], collections.deque[TracedAlignment]] = {}
        """Ended alignments that one side may print further lines about, by group and aligner."""

        self._started: dict[str, str] = {}
        """The address of each node in its current run."""

        self._merging: dict[tuple[str, str, str], str] = {}
        """Policies of ospltool merges before their requests, by alignee, aligner and name-space."""

        self._split: dict[int, set[str]] = {}
        """The aligners that have received a request to all, by its number; each receives it once."""

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
        follower = FOLLOWERS.get(record.event)
        own = self._names.own.get(record.node)
        if follower is not None and own is not None:
            follower(self, own, told_by(record, self._lines.add(place(record))))

    def all(self) -> list[TracedAlignment]:
        """Return all alignments, in the order of requests; a request to all counts once for each aligner."""
        if self._all[0] != self._count:
            waiting = [one for some in self._open.values() for one in some]
            # In the order in which they began, whichever have ended.
            found = sorted((*self.done, *waiting), key=lambda one: one.number)
            self._all = (self._count, found)
        return [one for one in self._all[1] if not one.is_split]

    # ------------------------------------------------------------------ the alignee's side

    def _requested(self, own: str, told: Told) -> None:
        """Note a request. It is printed after it was written, so aligners may have printed theirs before."""
        line, group, aligner, _, source, _ = told
        early = [
            one
            for one in self._late_and_open(group, aligner)
            if one.alignee == own
            and (one.aligner == aligner or aligner == NOBODY)
            and not one.seen & _REQUESTED_BIT
            and self._is_soon_after(one, line)
        ]
        if aligner != NOBODY:
            exchange = early[0] if early else self._new(group, own, aligner, source)
            if self._merging:
                exchange.policy = self._merging.pop((own, aligner, group), exchange.policy)
            exchange.note_first(AlignmentStep.REQUESTED, line)
            return
        for one in early:
            one.note_first(AlignmentStep.REQUESTED, line)
        to_all = self._new(group, own, aligner, source)
        to_all.note(AlignmentStep.REQUESTED, line)
        to_all.is_split = bool(early)

    def _link(self, own: str, told: Told) -> None:
        line, group, aligner, samples, equal, _ = told
        exchange = self._oldest(group, own, aligner, AlignmentStep.LINK) or self._new(group, own, aligner, "")
        exchange.samples = samples
        if "equal" in equal:
            exchange.is_equal = True
        exchange.note(AlignmentStep.LINK, line)

    def _refused(self, own: str, told: Told) -> None:
        line, group, aligner, *_ = told
        exchange = self._oldest(group, own, aligner, AlignmentStep.LINK)
        if exchange is not None:
            exchange.note(AlignmentStep.LINK, line)
            self._close(exchange, AlignmentEnd.REFUSED)

    def _taken(self, own: str, group: str, step: AlignmentStep, line: int) -> list[TracedAlignment]:
        """Note a step of all alignments of a group whose end marks a node has; return them."""
        bit, noted = step.bit, noted_as(step, line)
        wanted = _LINK_BIT | bit
        taken = []
        for one in self._open.get(group, ()):
            if one.seen & wanted == _LINK_BIT and one.alignee == own:
                one.noted.append(noted)
                one.seen |= bit
                taken.append(one)
        return taken

    def _whole(self, own: str, told: Told) -> None:
        self._taken(own, told[1], AlignmentStep.BEADS, told[0])

    def _applied(self, own: str, told: Told) -> None:
        for one in self._taken(own, told[1], AlignmentStep.APPLIED, told[0]):
            one.policy = told[4]

    def _complete(self, own: str, told: Told) -> None:
        taken = self._taken(own, told[1], AlignmentStep.COMPLETE, told[0])
        for one in taken:
            self._close(one, AlignmentEnd.COMPLETE)
        self._just_taken[own] = taken

    def _injected(self, own: str, told: Told) -> None:
        """Note the injected samples. OpenSplice prints this line right after that of the complete group."""
        if not told[1]:  # of one group, in ospltool
            for exchange in self._just_taken.pop(own, ()):
                exchange.kinds = told[5]

    def _completed(self, own: str, told: Told) -> None:
        """Note the end of an alignment in ospltool, which is one line."""
        line, group, aligner, samples, source, _ = told
        exchange = self._oldest(group, own, aligner, AlignmentStep.COMPLETE, source)
        if exchange is None:
            exchange = self._new(group, own, aligner, source)
        exchange.samples = samples
        exchange.note(AlignmentStep.COMPLETE, line)
        self._close(exchange, AlignmentEnd.COMPLETE)

    def _merge_started(self, own: str, told: Told) -> None:
        _, group, aligner, _, policy, _ = told
        if policy:
            self._merging[own, aligner, group] = policy.upper()

    def _merge_finished(self, own: str, told: Told) -> None:
        for exchange in self._open.get(told[1], ()):
            if exchange.alignee == own and exchange.policy and not exchange.has(AlignmentStep.APPLIED):
                exchange.note(AlignmentStep.APPLIED, told[0])
                return

    # ------------------------------------------------------------------ the aligner's side

    def _received(self, own: str, told: Told) -> None:
        line, group, alignee, _, source, _ = told
        exchange = self._oldest(group, alignee, own, AlignmentStep.RECEIVED, source)
        if exchange is None:
            exchange = self._of_all(group, alignee, own)
        if exchange is None:
            exchange = self._new(group, alignee, own, source)
        exchange.note(AlignmentStep.RECEIVED, line)

    def _of_all(self, group: str, alignee: str, own: str) -> TracedAlignment | None:
        """Split an alignment to this node off a request to all aligners."""
        to_all = next(
            (
                one
                for one in self._open.get(group, ())
                if one.alignee == alignee
                and one.aligner == NOBODY
                and own not in self._split.get(one.number, ())
            ),
            None,
        )
        if to_all is None:
            return None
        self._split.setdefault(to_all.number, set()).add(own)
        to_all.is_split = True
        exchange = self._new(group, alignee, own, to_all.source)
        for one in to_all.noted[:1]:
            exchange.note(step_of(one), line_of(one))
        return exchange

    def _combined(self, own: str, told: Told) -> None:
        self._aligner_step(own, told[1], told[2], AlignmentStep.COMBINED, told[0])

    def _not_combined(self, own: str, told: Told) -> None:
        """Close a request that is answered together with an earlier one of the fellow."""
        _, group, alignee, *_ = told
        again = [
            one
            for one in self._open.get(group, ())
            if one.seen & _WAITING_BITS == _RECEIVED_BIT and one.alignee == alignee and one.aligner == own
        ]
        if len(again) > 1:
            self._close(again[-1], AlignmentEnd.ABSORBED)

    def _sending(self, own: str, told: Told) -> None:
        for alignee in told[4].split(","):
            self._aligner_step(own, told[1], alignee.strip(), AlignmentStep.SENDING, told[0])

    def _sent(self, own: str, told: Told) -> None:
        self._answered(own, told, AlignmentStep.SENT, told[3])

    def _equal(self, own: str, told: Told) -> None:
        for exchange in self._answered(own, told, AlignmentStep.EQUAL, 0):
            exchange.is_equal = True

    def _answered(
        self, own: str, told: Told, step: AlignmentStep, samples: int | None
    ) -> list[TracedAlignment]:
        """Note the alignments that an answer is for, and return them; ospltool names several fellows."""
        line, group, alignees, _, total, _ = told
        answered = [
            one for alignee in alignees.split(",") for one in self._answered_to(group, alignee.strip(), own)
        ]
        self._just_sent[own] = answered
        for exchange in answered:
            exchange.set_size = number(total)
            exchange.samples_sent = samples
            exchange.note(step, line)
        return answered

    def _sent_kinds(self, own: str, told: Told) -> None:
        for exchange in self._just_sent.pop(own, ()):
            exchange.kinds_sent = told[5]

    def _answered_to(self, group: str, alignee: str, own: str) -> list[TracedAlignment]:
        """Return the alignments that an answer to a fellow is for; one to fellow 0 is for all being sent."""
        some = self._late_and_open(group, own)
        if alignee == NOBODY:
            return [one for one in some if one.seen & _ON_ITS_WAY_BITS == _SENDING_BIT and one.aligner == own]
        oldest = None
        for one in some:
            if one.alignee == alignee and one.aligner == own and not one.seen & _ANSWERED_BITS:
                if one.seen & _SENDING_BIT:
                    return [one]
                oldest = oldest or one
        return [] if oldest is None else [oldest]

    def _aligner_step(self, own: str, group: str, alignee: str, step: AlignmentStep, line: int) -> None:
        exchange = self._oldest(group, alignee, own, step)
        if exchange is not None:
            exchange.note(step, line)

    # ------------------------------------------------------------------ what ends them

    def _fellow_lost(self, own: str, told: Told) -> None:
        lost = told[2]
        self._close_where(lambda one: one.alignee == own and one.aligner == lost, AlignmentEnd.ALIGNER_LOST)

    def _restarted(self, own: str, _: Told) -> None:
        name = self._names.node_of[own]
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
        self._split.pop(exchange.number, None)
        if not some:
            del self._open[exchange.group]
        self._open_count -= 1
        self.done.append(exchange)
        unsent = end is AlignmentEnd.COMPLETE and exchange.seen & _ON_ITS_WAY_BITS == _SENDING_BIT
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
        exchange = TracedAlignment(self._count, group, alignee, aligner, source, self._lines)
        self._open.setdefault(group, []).append(exchange)
        return exchange

    def _oldest(
        self, group: str, alignee: str, aligner: str, without: AlignmentStep, source: str = ""
    ) -> TracedAlignment | None:
        """Return the oldest alignment that waits for a step, one of the same source first."""
        bit = without.bit
        oldest = None
        for one in self._open.get(group, ()):
            if one.alignee == alignee and one.aligner == aligner and not one.seen & bit:
                if one.source == source:
                    return one
                oldest = oldest or one
        return oldest

    def _late_and_open(self, group: str, aligner: str) -> Iterable[TracedAlignment]:
        late, waiting = self._late.get((group, aligner)), self._open.get(group, ())
        return itertools.chain(late, waiting) if late else waiting

    def _is_soon_after(self, exchange: TracedAlignment, line: int) -> bool:
        start, time = exchange.start_ns, self._lines.time(line)
        return start is None or time is None or time - start < SOON_NS


_REQUESTED_BIT: Final = AlignmentStep.REQUESTED.bit
_RECEIVED_BIT: Final = AlignmentStep.RECEIVED.bit
_SENDING_BIT: Final = AlignmentStep.SENDING.bit
_LINK_BIT: Final = AlignmentStep.LINK.bit
_ANSWERED_BITS: Final = AlignmentStep.SENT.bit | AlignmentStep.EQUAL.bit
_ON_ITS_WAY_BITS: Final = AlignmentStep.SENDING.bit | AlignmentStep.SENT.bit
_WAITING_BITS: Final = AlignmentStep.RECEIVED.bit | AlignmentStep.SENT.bit

Follower = Callable[[ExchangeBook, str, Told], None]
"""Takes in what a record tells; the second argument is the address of its node."""


class StepRows(NamedTuple):
    """Rows of a case in order: steps of alignments, and others, of which records are made.

    Attributes:
        followers: what takes in each row; None for one that is a record.
        nodes: the node of each row.
        told: what each tells.
        runs: the number of the run of each.
    """

    followers: list[Follower | None]
    nodes: list[str]
    told: Iterator[Told]
    runs: list[int]


FOLLOWERS: Final[Mapping[str, Follower]] = {
    "align.request": ExchangeBook._requested,
    "align.request-filtered": ExchangeBook._requested,
    "align.request-delayed": ExchangeBook._requested,
    "align.request-received": ExchangeBook._received,
    "align.request-received-filtered": ExchangeBook._received,
    "align.combined": ExchangeBook._combined,
    "align.not-combined": ExchangeBook._not_combined,
    "align.sending": ExchangeBook._sending,
    "align.sent": ExchangeBook._sent,
    "align.equal": ExchangeBook._equal,
    "align.sent-kinds": ExchangeBook._sent_kinds,
    "merge.injected": ExchangeBook._injected,
    "align.link": ExchangeBook._link,
    "align.refused": ExchangeBook._refused,
    "align.received": ExchangeBook._whole,
    "merge.applying": ExchangeBook._applied,
    "group.complete": ExchangeBook._complete,
    "align.completed": ExchangeBook._completed,
    "merge.started": ExchangeBook._merge_started,
    "merge.finished": ExchangeBook._merge_finished,
    "fellow.quarantined": ExchangeBook._fellow_lost,
    "fellow.disconnected": ExchangeBook._fellow_lost,
    "fellow.heartbeat-lost": ExchangeBook._fellow_lost,
    "lifecycle.address": ExchangeBook._restarted,
}
"""What takes in a record of an event."""

FOLLOWED: Final = frozenset(FOLLOWERS)
"""The events that are steps of an alignment, or end one."""

Condition = Callable[[TracedAlignment], bool]
