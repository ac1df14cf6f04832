"""Sending only what differs: the aligner's side, which finds the difference and answers with it.

Request and sketch come on different ways, in either order. Symbols are held against the set as it is at that
moment, so that what is sent is always the present set. Where they are too few their number is estimated and
asked for; above a third of the set the list of all identities is cheaper, and always ends it.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from engine.dataset.dataset import DataSet
from engine.runtime import notes
from engine.runtime.blocks import StreamFault

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.core.events import Target
    from engine.core.namespaces import Group
    from engine.dataset import reconciliation
    from engine.dataset.sample import Sample
    from engine.runtime.holdings import Holdings

FORGET_S: Final = 30.0
"""A request whose sketch has not come by then is forgotten, and the other way round; who asked asks again."""
MAX_QUESTIONS: Final = 64
"""Comparisons under way; one more is answered with the whole set."""
FIRST_SYMBOLS: Final = 256
MIN_SYMBOLS: Final = 16
MANY: Final = 0.3
"""With more than this part of the set differing, the list of identities is asked for."""
_NEEDS_WHOLE: Final = ("initial", "merge", "replace", "catchup")


@dataclasses.dataclass(slots=True)
class _Question:
    """A request with what is known of its sender's set."""

    since_s: float
    name_space: str
    target: Target | None = None
    sketch: notes.Sketch | None = None
    symbols: reconciliation.Symbols | None = None
    identities: reconciliation.Words | None = None
    bytes: int = 0
    asked_for: int = -1


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What a set has that another has not, and the other way round.

    `removed` are identities under the other's salt, as 8 octets each.
    """

    new: dict[Group, list[Sample]]
    removed: bytes
    question_bytes: int


class Answering:
    """The comparisons of an aligner.

    Args:
        send: sends a set, or with an answer only the difference, to a target.
    """

    def __init__(self, holdings: Holdings, send: Callable[[str, Target, Answer | None], None]) -> None:
        self._holdings = holdings
        self._send = send
        self._questions: dict[tuple[str, int], _Question] = {}

    @property
    def next_s(self) -> float | None:
        """When `work` has something to do."""
        return min((q.since_s + FORGET_S for q in self._questions.values()), default=None)

    def _question(self, node: str, request: int, name_space: str) -> _Question | None:
        known = self._questions.get((node, request))
        if known is None and len(self._questions) < MAX_QUESTIONS:
            now = self._holdings.clock.monotonic()
            known = self._questions[node, request] = _Question(now, name_space)
        return known

    def asked(self, name_space: str, target: Target) -> None:
        """A request that is to be answered now."""
        question = self._question(target.node, target.request, name_space)
        if question is None or question.name_space != name_space:
            self._send(name_space, target, None)
            return
        question.target = target
        self._answer(question)

    def sketched(self, sketch: notes.Sketch, body: bytes, size: int) -> None:
        """An alignee says what it holds.

        Raises:
            StreamFault: it says nonsense.
        """
        if sketch.name_space not in self._holdings.spaces:
            raise StreamFault(f"a sketch of name-space {sketch.name_space[:80]!r}, which is not known here")
        question = self._question(sketch.node, sketch.request, sketch.name_space)
        if question is None:
            return
        question.since_s = self._holdings.clock.monotonic()
        question.sketch = sketch
        question.bytes += size
        if sketch.length:
            self._take(question, sketch, body)
        self._answer(question)

    @staticmethod
    def _take(question: _Question, sketch: notes.Sketch, body: bytes) -> None:
        from engine.dataset import reconciliation

        try:
            if sketch.is_list:
                question.identities = reconciliation.from_list(body, sketch.count)
                return
            symbols = reconciliation.Symbols.from_bytes(body, sketch.first, sketch.length, sketch.count)
        except ValueError as error:
            raise StreamFault(f"a sketch: {error}") from error
        known = question.symbols
        if known is None and not sketch.first:
            question.symbols = symbols
        elif known is not None and len(known) == sketch.first:
            question.symbols = known + symbols

    def work(self, now: float) -> None:
        """Do not wait for ever."""
        for key, question in list(self._questions.items()):
            if now >= question.since_s + FORGET_S:
                del self._questions[key]

    def _end(self, question: _Question, answer: Answer | None) -> None:
        target = question.target
        assert target is not None
        self._questions.pop((target.node, target.request), None)
        state = self._holdings.spaces[question.name_space].state
        if state.complete or target.purpose not in _NEEDS_WHOLE:
            self._send(question.name_space, target, answer)

    def _answer(self, question: _Question) -> None:
        if question.target is None or question.sketch is None:
            return
        sketch = question.sketch
        held = self._holdings.spaces[question.name_space].working
        root = sent_part(self._holdings, held).summary()
        if (sketch.count, sketch.digest) == (root.count, root.digest):
            self._holdings.tracer.event(
                "align.equal",
                group=question.name_space,
                samples=root.count,
                fellow=self._holdings.core.name_of(sketch.node),
                fellows=1,
            )
            self._end(question, Answer({}, b"", question.bytes))
            return
        if question.symbols is None and question.identities is None:
            self._ask(question, min(FIRST_SYMBOLS, max(MIN_SYMBOLS, sketch.count)))
            return
        self._compare(question, sketch, sent_part(self._holdings, held))

    def _compare(self, question: _Question, sketch: notes.Sketch, held: DataSet) -> None:
        from engine.dataset import reconciliation

        groups = [(group, list(group_set.samples())) for group, group_set in held.groups.items()]
        ours = reconciliation.identities(groups, sketch.salt)
        found, wanted = self._difference(question, sketch, ours)
        if found is None and wanted is None:
            self._end(question, None)
        elif found is None:
            assert wanted is not None
            self._ask(question, wanted)
        else:
            self._end(question, self._found(question, groups, ours, found))

    def _difference(
        self, question: _Question, sketch: notes.Sketch, ours: reconciliation.Words
    ) -> tuple[reconciliation.Difference | None, int | None]:
        """The difference, or how many symbols are needed to tell (0 for the list), or neither."""
        from engine.dataset import reconciliation

        theirs = question.symbols
        if question.identities is not None:
            return reconciliation.compare(ours, question.identities), None
        assert theirs is not None
        left = reconciliation.symbols(ours, 0, len(theirs)) - theirs
        found = reconciliation.solve(left)
        if found is not None:
            return found, None
        expected = reconciliation.estimate(left)
        wanted = reconciliation.enough(expected, len(theirs))
        larger = max(sketch.count, len(ours))
        if expected > MANY * larger or wanted > larger:
            held = self._holdings.spaces[question.name_space].working
            octets = sum(group.payload_bytes for group in held.groups.values())
            return None, 0 if 16 * sketch.count < octets else None
        return None, wanted

    def _found(
        self,
        question: _Question,
        groups: list[tuple[Group, list[Sample]]],
        ours: reconciliation.Words,
        found: reconciliation.Difference,
    ) -> Answer | None:
        from engine.dataset import reconciliation

        places = reconciliation.positions(ours, found.only_ours)
        if places is None:
            return None
        new = reconciliation.samples_at(groups, places)
        self._holdings.tracer.event(
            "align.difference",
            group=question.name_space,
            fellow=self._holdings.core.name_of(question.sketch.node if question.sketch else ""),
            samples=len(found.only_ours),
            removed=len(found.only_theirs),
            bytes=question.bytes,
        )
        return Answer(new, found.only_theirs.astype("<u8").tobytes(), question.bytes)

    def _ask(self, question: _Question, symbols: int) -> None:
        target = question.target
        assert target is not None
        if question.identities is not None or (symbols and symbols <= question.asked_for):
            self._end(question, None)
            return
        question.asked_for = symbols
        question.since_s = self._holdings.clock.monotonic()
        note = notes.encode(notes.More(question.name_space, target.request, symbols))
        self._holdings.counters["comparison_bytes_sent"] += len(note)
        self._holdings.wire.send_note(target.node, note)


def sent_part(holdings: Holdings, held: DataSet) -> DataSet:
    """What of a set is sent: the groups that are described."""
    part = DataSet()
    part.groups = {group: held.groups[group] for group in held.groups if group in holdings.descriptions}
    return part
