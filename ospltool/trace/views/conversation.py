"""A group's alignments across all nodes as a sequence diagram, in text or for Mermaid."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ospltool.output.text import plural
from ospltool.output.times import clock, duration
from ospltool.trace.meaning.alignments import (
    AlignmentEnd,
    AlignmentStep,
    TracedAlignment,
    line_of,
    step_of,
)
from ospltool.trace.meaning.exchanges import FOLLOWED, ExchangeBook
from ospltool.trace.meaning.lines import NumberedLines, RecordPlace
from ospltool.trace.meaning.names import NOBODY, TAUGHT_BY, Names
from ospltool.trace.reading.record import TraceRecord, is_whole, one_line

if TYPE_CHECKING:
    import numpy as np

    from ospltool.output.documents import Talk
else:
    from engine.dataset.numpy_later import np

# The usual messages fit between two lines of life.
LEAST_WIDTH: Final = 34
# Each is looked up in the case; together that is one query.
_ARROWS_AT_ONCE: Final = 10_000
ALL: Final = "all"


@dataclasses.dataclass(frozen=True, slots=True)
class Arrow:
    """A message between two nodes, or a step of one node, which is then both sender and receiver.

    Attributes:
        number: number of the alignment.
        time_ns: its time, by the node that printed it.
        sender: name of the sender.
        receiver: name of the receiver, or "all".
        text: description.
        is_answer: whether it goes from aligner to alignee.
        place: line of the trace.
    """

    number: int
    time_ns: int | None
    sender: str
    receiver: str
    text: str
    is_answer: bool
    place: RecordPlace


@dataclasses.dataclass(frozen=True, slots=True)
class Conversation:
    """The alignments of one group, with the names of addresses."""

    group: str
    exchanges: tuple[TracedAlignment, ...]
    names: Names
    is_named: bool = True
    """Whether a record names the group; otherwise it may not exist."""

    @property
    def nodes(self) -> list[str]:
        """Names of the nodes that take part."""
        addresses = {address for one in self.exchanges for address in (one.alignee, one.aligner)} - {NOBODY}
        return sorted({self.names.node(address) for address in addresses})

    @property
    def name_spaces(self) -> list[str]:
        """Name-spaces with the group that were aligned as a whole."""
        return sorted({one.group for one in self.exchanges} - {self.group})

    def arrows(self) -> Iterator[Arrow]:
        """Yield all arrows by time; they are made one by one, since there may be millions."""
        counts = [len(one.noted) for one in self.exchanges]
        owners = np.repeat(np.arange(len(counts)), counts)
        firsts = np.cumsum(np.array([0, *counts]))
        times = np.fromiter(
            (one.lines.time(line_of(noted)) or 0 for one in self.exchanges for noted in one.noted),
            np.int64,
            owners.size,
        )
        numbers = np.array([one.number for one in self.exchanges], np.int64)[owners]
        order = np.lexsort((numbers, times))
        for start in range(0, order.size, _ARROWS_AT_ONCE):
            some = order[start : start + _ARROWS_AT_ONCE]
            places = some - firsts[owners[some]]
            for owner, at in zip(owners[some].tolist(), places.tolist(), strict=True):
                one = self.exchanges[owner]
                noted = one.noted[at]
                yield self._arrow(one, step_of(noted), one.lines.place(line_of(noted)))

    def _arrow(self, one: TracedAlignment, step: AlignmentStep, where: RecordPlace) -> Arrow:
        alignee = self.names.node(one.alignee)
        aligner = ALL if one.aligner == NOBODY else self.names.node(one.aligner)
        source, target, text = alignee, alignee, f"{step} {one.number}"
        match step:
            case AlignmentStep.REQUESTED:
                target, text = aligner, f"request {one.number}"
            case AlignmentStep.SENT:
                source, text = aligner, f"answer {one.number}: {_samples(one.samples_sent)}"
            case AlignmentStep.EQUAL:
                source, text = aligner, f"answer {one.number}: sets are equal"
            case AlignmentStep.RECEIVED | AlignmentStep.COMBINED | AlignmentStep.SENDING:
                source = target = aligner
            case AlignmentStep.LINK:
                text = f"end mark {one.number}: {_samples(one.samples)}"
            case AlignmentStep.APPLIED:
                text = f"{one.policy} applied {one.number}"
        is_answer = step in {AlignmentStep.SENT, AlignmentStep.EQUAL}
        return Arrow(one.number, where.time_ns, source, target, text, is_answer, where)


_MERGES: Final = frozenset({"merge.started", "merge.finished"})
_OF_FELLOWS: Final = ("fellow.", "lifecycle.")
"""Beginnings of events that end alignments of all groups."""


def conversation(records: Iterable[TraceRecord], group: str, run: int | None = None) -> Conversation:
    """Collect the alignments of a group from the records of all nodes.

    Args:
        records: records by time, those of a file in its order.
        group: partition.topic, or a name-space that ospltool aligned.
        run: number of the run of the node that asked, in which alignments began; None for all.
    """
    names = Names()
    book = ExchangeBook(names, NumberedLines())
    wanted: set[tuple[str, int]] = set()
    is_named = False
    for record in records:
        names.learn(record)
        is_named = is_named or record.fields.get("group") == group
        if is_whole(record) and _belongs(record, group, names):
            book.add(record)
            if record.run == run:
                wanted.add((record.file, record.offset))
    exchanges = [
        one
        for one in book.all()
        if run is None or any((where.file, where.offset) in wanted for _, where in one.steps[:1])
    ]
    return Conversation(group, tuple(exchanges), names, is_named)


def events_of(*, is_own: bool) -> frozenset[str]:
    """Return the events that a conversation needs of all groups, beside every record of its own group.

    Args:
        is_own: whether there are traces of ospltool, which aligns whole name-spaces: then all steps count.
    """
    steps = FOLLOWED if is_own else {one for one in FOLLOWED if one.startswith(_OF_FELLOWS)} | _MERGES
    return TAUGHT_BY | steps


def _belongs(record: TraceRecord, group: str, names: Names) -> bool:
    """Return whether a record may concern the alignments of a group, or in ospltool its name-space."""
    found = record.fields.get("group")
    if found is None and record.event in _MERGES:
        found = record.fields.get("namespace")
    if found is None:
        return record.event.startswith(_OF_FELLOWS)
    return found == group or (bool(names.name_spaces) and found == names.name_space_of(record.node, group))


def as_text(talk: Conversation) -> Iterator[str]:
    """Yield the conversation as lines of text: a column for each node, an arrow for each message."""
    nodes = talk.nodes
    width = max([LEAST_WIDTH, *(len(node) + 4 for node in nodes)])
    margin = " " * 16
    whole = "".join(f" (with all of name-space {one_line(name)})" for name in talk.name_spaces)
    yield f"{one_line(talk.group)}{whole}: {_count(talk)}"
    yield ""
    yield (margin + "".join(f"{one_line(node):^{width}}" for node in nodes)).rstrip()
    for arrow in talk.arrows():
        time = "" if arrow.time_ns is None else clock(arrow.time_ns)
        yield f"{time:<16}{_line(nodes, width, arrow)}".rstrip()
    yield ""
    yield from (_result(talk, one) for one in talk.exchanges)


def _line(nodes: list[str], width: int, arrow: Arrow) -> str:
    cells = [f"{'|':^{width}}" for _ in nodes]
    if arrow.sender == arrow.receiver or arrow.receiver == ALL or arrow.sender not in nodes:
        where = arrow.sender if arrow.sender in nodes else arrow.receiver
        text = f"{arrow.text} to all" if arrow.receiver == ALL else arrow.text
        if where in nodes:
            cells[nodes.index(where)] = f"{_cut(text, width - 2):^{width}}"
        return "".join(cells)
    first, last = sorted((nodes.index(arrow.sender), nodes.index(arrow.receiver)))
    length = (last - first) * width - 1
    stroke = "." if arrow.is_answer else "-"
    label = f" {_cut(arrow.text, length - 6)} "
    rightward = nodes.index(arrow.sender) == first
    body = f"{label:{stroke}^{length - 1}}"
    shaft = f"{body}>" if rightward else f"<{body}"
    row = "".join(cells)
    start = first * width + (width - 1) // 2 + 1
    if len(f"{'|':^{width}}".split("|")[0]) != (width - 1) // 2:
        start += 1
    return row[:start] + shaft + row[start + length :]


def _cut(text: str, width: int) -> str:
    shown = one_line(text)
    return shown if len(shown) <= width else shown[: max(width - 1, 0)] + "…"


def _samples(number: int | None) -> str:
    return "an unknown number of samples" if number is None else plural(number, "sample")


def _count(talk: Conversation) -> str:
    complete = sum(one.end is AlignmentEnd.COMPLETE for one in talk.exchanges)
    return (
        f"{plural(len(talk.exchanges), 'alignment')}, {complete} complete, {plural(len(talk.nodes), 'node')}"
    )


def _result(talk: Conversation, one: TracedAlignment) -> str:
    start, end = one.start_ns, one.end_ns
    took = f" in {duration(end - start)}" if start is not None and end is not None else ""
    aligner = "all" if one.aligner == NOBODY else talk.names.node(one.aligner)
    samples = f", {plural(one.samples, 'sample')}" if one.samples is not None else ""
    policy = f", {one.policy}" if one.policy else ""
    return f"{one.number:>4}  {talk.names.node(one.alignee)} from {aligner}: {one.end}{took}{samples}{policy}"


def as_mermaid(talk: Conversation) -> Iterator[str]:
    """Yield the conversation as a Mermaid sequence diagram."""
    numbers = {node: f"p{index}" for index, node in enumerate(talk.nodes)}
    yield "sequenceDiagram"
    for node, name in numbers.items():
        yield f"    participant {name} as {_mermaid(node)}"
    for arrow in talk.arrows():
        text = _mermaid(arrow.text if arrow.time_ns is None else f"{clock(arrow.time_ns, 3)} {arrow.text}")
        sender, receiver = numbers.get(arrow.sender), numbers.get(arrow.receiver)
        if sender is None and receiver is None:
            continue
        if sender is None or receiver is None or sender == receiver:
            suffix = " to all" if arrow.receiver == ALL else ""
            yield f"    Note over {sender or receiver}: {text}{suffix}"
        else:
            yield f"    {sender}{'-->>' if arrow.is_answer else '->>'}{receiver}: {text}"


def _mermaid(text: str) -> str:
    """Escape text so that it stays within a Mermaid statement."""
    return "".join(f"#{ord(one)};" if one in "#;:%<>{}[]" else one for one in one_line(text))


def as_value(talk: Conversation, unknown: Sequence[str]) -> Talk:
    """Return the conversation for JSON, with what is `unknown`."""
    return {
        "group": talk.group,
        "name_spaces": talk.name_spaces,
        "nodes": talk.nodes,
        "alignments": [
            {
                "number": one.number,
                "alignee": talk.names.node(one.alignee),
                "alignee_address": one.alignee,
                "aligner": None if one.aligner == NOBODY else talk.names.node(one.aligner),
                "aligner_address": one.aligner,
                "source": one.source,
                "end": one.end.value,
                "samples_sent": one.samples_sent,
                "samples": one.samples,
                "policy": one.policy or None,
                "is_equal": one.is_equal,
                "steps": [
                    {
                        "step": step.value,
                        "time_ns": where.time_ns,
                        "node": where.node,
                        "file": where.file,
                        "offset": where.offset,
                    }
                    for step, where in one.steps
                ],
            }
            for one in talk.exchanges
        ],
        "unknown": unknown,
    }
