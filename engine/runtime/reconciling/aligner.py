"""The aligner's side of a comparison, which finds the difference and sends only that.

Request and sketch come on different topics, in either order. Once both are here, the sketch is compared with
the set as it is then, step by step (`engine.runtime.steps`). Changes made meanwhile are added to the
difference at the end; if the set has another lineage by then, the comparison begins again. If symbols are too
few, the aligner estimates how many are needed and asks for them; above a third of the set the list of all
identities is cheaper, and always decides. So it does if symbols cannot be decoded, because identities collide
or a peer is damaged; where the list costs too much, the whole set goes.

A merge compares two sets twice: the master collects the other's samples, and the other then takes the
master's. The first comparison has found what the second looks for. So the aligner keeps the identities that
it lacks itself (`LackingSamples`) and names them when it asks in turn; symbols then show only later changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from engine.core.events import AligneeRequest
from engine.core.messages import MERGE_PURPOSES, Epoch
from engine.core.name_spaces import Group
from engine.core.untrusted import Newest
from engine.dataset.dataset import DataSet
from engine.dataset.group_set import Summary
from engine.dataset.rateless import Difference, Encoder, Stepwise, Symbols, Words
from engine.dataset.sample import Sample
from engine.dataset.sample_rows import SampleRows, changes
from engine.runtime.ports import Clock
from engine.runtime.reconciling import messages
from engine.runtime.shared_state import SharedState
from engine.runtime.steps import Steps, StreamFault

# As long as a batch may take (`engine.node.wire.BATCH_TIMEOUT_S`): the two travel by different ways.
FORGET_S: Final = 30.0
"""Seconds after which a request without a sketch, or a sketch without a request, is forgotten."""
# As many as streams that may be under way to a node.
MAX_QUESTIONS: Final = 64
"""Comparisons under way at most; a further request is answered with the whole set."""
FIRST_SYMBOLS: Final = 256
"""Symbols in the first sketch: enough to decode a hundred differences, or to estimate their number."""
MIN_SYMBOLS: Final = 16
"""Least number in a further sketch: fewer seldom decode, and each costs a round."""
# There 1.35 symbols of 14 bytes for each difference come near to 8 bytes for each sample of the set, and a
# list needs one round.
MANY: Final = 0.3
"""Part of the set: if more differs, the aligner asks for the list of identities."""
LIST_BYTES: Final = 8
"""Bytes of each identity in a list."""
MAX_SKETCHES: Final = 6
"""Sketches after which symbols have failed; two or three are enough as a rule."""
# With `MAX_LACKING_IDENTITIES` each they take 16 MiB at most.
MAX_LACKING: Final = 16
"""Comparisons whose lacking samples are kept."""
MAX_LACKING_IDENTITIES: Final = 1 << 17
"""Identities kept of one comparison: 1 MiB."""
# Each holds an identity of every sample of a set, 8 MB for a million.
MAX_COMPARED: Final = 4
"""Sets kept between the sketches of a comparison; further ones are made again for each sketch."""
_NEEDS_WHOLE: Final = ("initial", *MERGE_PURPOSES)


class _Question(msgspec.Struct):
    """A request, and the description of its sender's set."""

    since_s: float
    """When the last message about it came or went, on the monotonic clock."""
    name_space: str
    """Name-space that is asked for."""
    target: AligneeRequest | None = None
    """The request; None while only a sketch is here."""
    sketch: messages.Sketch | None = None
    """The newest sketch; None while only the request is here."""
    symbols: Symbols | None = None
    """The alignee's symbols so far."""
    identities: Words | None = None
    """All identities of the alignee, if it sent the list."""
    lacking: Words | None = None
    """Identities that the alignee knows that it lacks; its symbols include them."""
    ours: ComparedSet | None = None
    """The set here, with which the comparison began."""
    bytes: int = 0
    """Bytes of sketches and answers received."""
    asked_for: int = -1
    """Symbols last asked for; 0 for the list of identities, -1 for nothing."""
    sketches: int = 0
    """Sketches whose symbols could not be decoded."""
    is_compared: bool = False
    """A comparison is running."""
    lineage: Epoch | None = None
    """Lineage of the set when the comparison began."""


class ComparedSet(msgspec.Struct):
    """The set here, as it was when the comparison began."""

    groups: list[tuple[Group, SampleRows]]
    root: Summary
    identities: Words
    encoder: Encoder
    symbols: Symbols


class SetDifference(msgspec.Struct, frozen=True):
    """The difference between this set and an alignee's.

    `new` are the samples that the alignee lacks, `removed` the identities under its salt that it has too
    many, 8 bytes each; `root` is the summary of this set.
    """

    new: dict[Group, list[Sample]]
    removed: bytes
    root: Summary


class LackingSamples:
    """Identities, with their salt, that this node lacks by its last comparisons as aligner."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: Newest[tuple[str, str], tuple[float, bytes, Words]] = Newest(MAX_LACKING)

    def add(self, name_space: str, fellow: str, salt: bytes, lacking: Words) -> None:
        """Keep identities that a fellow has and this node lacks. The identities were computed with `salt`."""
        self._known.pop((name_space, fellow), None)
        if 0 < len(lacking) <= MAX_LACKING_IDENTITIES:
            self._known[name_space, fellow] = self._clock.monotonic(), salt, lacking

    def pop(self, name_space: str, fellow: str) -> tuple[bytes, Words] | None:
        """Take salt and identities that this node lacks of a fellow's set, if found within `FORGET_S`."""
        known = self._known.pop((name_space, fellow), None)
        return known[1:] if known and self._clock.monotonic() < known[0] + FORGET_S else None


class AlignerComparisons:
    """The comparisons of an aligner.

    Args:
        steps: carries out comparisons.
        send: sends a set, or with an answer only the difference, to a target.
        lacking: keeps the identities that this node lacks.
    """

    def __init__(
        self,
        shared: SharedState,
        steps: Steps,
        send: Callable[[str, AligneeRequest, SetDifference | None], None],
        lacking: LackingSamples,
    ) -> None:
        self._shared = shared
        self._steps = steps
        self._send = send
        self._lacking = lacking
        self._questions: dict[tuple[str, int], _Question] = {}

    @property
    def next_s(self) -> float | None:
        """When `work` has something to do."""
        if not self._questions:
            return None
        since_s = [q.since_s for q in self._questions.values() if not q.is_compared]
        return min(since_s) + FORGET_S if since_s else None

    def _question(self, node: str, request: int, name_space: str) -> _Question | None:
        known = self._questions.get((node, request))
        if known is None and len(self._questions) < MAX_QUESTIONS:
            now = self._shared.clock.monotonic()
            known = self._questions[node, request] = _Question(now, name_space)
        return known

    def asked(self, name_space: str, target: AligneeRequest) -> None:
        """Answer a request whose RequestCombinePeriod is over (deployment guide 5.3.4)."""
        question = self._question(target.node, target.request, name_space)
        if question is None or question.name_space != name_space:
            self._send(name_space, target, None)
            return
        question.target = target
        self._answer(question)

    def sketched(self, sketch: messages.Sketch, body: bytes, size: int) -> None:
        """Take a sketch of an alignee's set.

        Args:
            sketch: the message.
            body: its symbols or identities.
            size: bytes of the whole message.

        Raises:
            StreamFault: the sketch is invalid.
        """
        if sketch.name_space not in self._shared.spaces:
            raise StreamFault(f"a sketch of name-space {sketch.name_space[:80]!r}, which is not known here")
        question = self._question(sketch.node, sketch.request, sketch.name_space)
        if question is None:
            return
        question.since_s = self._shared.clock.monotonic()
        question.sketch = sketch
        question.bytes += size
        if sketch.length:
            self._decode(question, sketch, body)
        self._answer(question)

    @staticmethod
    def _decode(question: _Question, sketch: messages.Sketch, body: bytes) -> None:
        from engine.dataset import rateless, reconciliation

        try:
            if sketch.is_list:
                question.identities = reconciliation.from_list(body, sketch.count)
                return
            if not 0 <= 8 * sketch.lacking <= len(body):
                raise ValueError(f"{len(body)} bytes do not end with {sketch.lacking} identities")
            end = len(body) - 8 * sketch.lacking
            symbols = rateless.Symbols.from_bytes(body[:end], sketch.first, sketch.length, sketch.count)
            if sketch.lacking:
                question.lacking = reconciliation.from_list(body[end:], sketch.lacking)
        except ValueError as error:
            raise StreamFault(f"a sketch: {error}") from error
        known = question.symbols
        if known is None and not sketch.first:
            question.symbols = symbols
        elif known is not None and len(known) == sketch.first:
            question.symbols = known + symbols

    def work(self, now: float) -> None:
        """Forget questions that have waited for `FORGET_S`."""
        if not self._questions:
            return
        for key, question in list(self._questions.items()):
            if now >= question.since_s + FORGET_S and not question.is_compared:
                del self._questions[key]

    def _end(self, question: _Question, answer: SetDifference | None) -> None:
        target = question.target
        assert target is not None
        state = self._shared.spaces[question.name_space].state
        if answer is not None and question.lineage != state.lineage:
            question.is_compared, question.ours = False, None
            self._answer(question)  # another set has another difference
            return
        self._questions.pop((target.node, target.request), None)
        if state.complete or target.purpose not in _NEEDS_WHOLE:
            self._send(question.name_space, target, answer)
        else:
            self._shared.core.refuse(question.name_space, target, "this set is being merged")

    def _answer(self, question: _Question) -> None:
        if question.target is None or question.sketch is None or question.is_compared:
            return
        # Only the groups asked for are compared; equal roots settle it without a difference (guide, 5.4.6).
        sketch = question.sketch
        space = self._shared.spaces[question.name_space]
        question.lineage = space.state.lineage
        sent = sent_part(self._shared, space.working, question.target.wants)
        root = sent.summary()
        if (sketch.count, sketch.digest) == (root.count, root.digest):
            self._shared.tracer.event(
                "align.equal",
                group=question.name_space,
                samples=root.count,
                fellow=self._shared.core.name_of(sketch.node),
                fellows=1,
            )
            self._end(question, SetDifference({}, b"", root))
            return
        if question.symbols is None and question.identities is None:
            self._ask(question, min(FIRST_SYMBOLS, max(MIN_SYMBOLS, sketch.count)))
            return
        question.is_compared = True
        self._steps.begin(self._compare(question, sketch, sent, root))

    def _compare(
        self, question: _Question, sketch: messages.Sketch, sent: DataSet, root: Summary
    ) -> Stepwise[None]:
        """Find the difference to the set as it was when this began, and send it.

        OpenSplice sends whole sets (guide, 5.4.6, 5.5.17); the text for this is docs/internals/protocol.md,
        "What travels: the difference".
        """
        from engine.dataset import rateless, reconciliation

        # 1. Hash this set under the alignee's salt, once for all rounds.
        if question.ours is None:
            groups = [(group, group_set.samples()) for group, group_set in sent.groups.items()]
            identities = yield from reconciliation.identities(groups, sketch.salt)
            encoder = rateless.Encoder(identities)
            none_yet = yield from encoder.until(0)
            question.ours = ComparedSet(groups, root, identities, encoder, none_yet)
        ours = question.ours
        # 2. With the list of all identities, the difference is exact.
        if question.identities is not None:
            found = yield from reconciliation.compare(ours.identities, question.identities)
            self._end(question, (yield from self._found(question, ours, found)))
            return
        # 3. Subtract the symbols, as many as the alignee has sent, and decode the difference.
        theirs = question.symbols
        assert theirs is not None
        ours.symbols += yield from ours.encoder.until(len(theirs))
        left = ours.symbols - theirs
        solved = yield from rateless.solve(left)
        if solved is not None:
            # The alignee's symbols include the identities that it knows that it lacks.
            if question.lacking is not None:
                solved = rateless.without(solved, question.lacking)
            self._end(question, (yield from self._found(question, ours, solved)))
            return
        # 4. Too few symbols: estimate how many are needed, and ask for the cheapest that is left of more
        #    symbols and the list. If neither is cheap, send the whole set.
        question.is_compared = False
        question.since_s = self._shared.clock.monotonic()
        question.sketches += 1
        expected = rateless.estimate(left)
        wanted = rateless.enough(expected, len(theirs))
        larger = max(sketch.count, len(ours.identities))
        is_stuck = wanted <= question.asked_for or question.sketches >= MAX_SKETCHES
        if expected <= MANY * larger and wanted <= larger and not is_stuck:
            if sum(one.ours is not None for one in self._questions.values()) > MAX_COMPARED:
                question.ours = None
            self._ask(question, wanted)
        elif question.asked_for and _is_worth_a_list(sketch.count, ours.groups):
            self._ask(question, 0)
        else:
            self._end(question, None)

    def _found(
        self, question: _Question, ours: ComparedSet, found: Difference
    ) -> Stepwise[SetDifference | None]:
        """Return the answer that turns the alignee's set into this one."""
        from engine.dataset import reconciliation

        sketch = question.sketch
        assert sketch is not None
        self._lacking.add(question.name_space, sketch.node, sketch.salt, found.only_theirs)
        places = yield from reconciliation.positions(ours.identities, found.only_ours)
        if places is None:
            return None
        new = yield from reconciliation.samples_at(ours.groups, places)
        answer = SetDifference(new, found.only_theirs.astype("<u8").tobytes(), ours.root)
        answer = self._brought_up_to_date(question, answer, ours.groups, found)
        self._shared.tracer.event(
            "align.difference",
            group=question.name_space,
            fellow=self._shared.core.name_of(sketch.node),
            samples=sum(map(len, answer.new.values())),
            removed=len(answer.removed) // LIST_BYTES,
            bytes=question.bytes,
        )
        return answer

    def _brought_up_to_date(
        self,
        question: _Question,
        answer: SetDifference,
        groups: list[tuple[Group, SampleRows]],
        found: Difference,
    ) -> SetDifference:
        """Add to an answer the changes of this set since the comparison began."""
        import numpy as np

        from engine.dataset import rateless, reconciliation

        target = question.target
        assert target is not None
        working = self._shared.spaces[question.name_space].working
        present = sent_part(self._shared, working, target.wants)
        root = present.summary()
        if root.same_content(answer.root) or question.sketch is None:
            return answer
        before = dict(groups)
        moved = {
            group: changes(before.get(group, SampleRows()), group_set.samples())
            for group, group_set in present.groups.items()
        }
        salt = question.sketch.salt
        came, gone = (
            rateless.finished(
                reconciliation.identities([(group, both[side]) for group, both in moved.items()], salt)
            )
            for side in (0, 1)
        )
        removed = np.concatenate((np.setdiff1d(found.only_theirs, came), np.setdiff1d(gone, found.only_ours)))
        new = {group: list(samples) for group, samples in answer.new.items()}
        at = 0
        for group, (arrived, left) in moved.items():
            is_there = np.isin(came[at : at + len(arrived)], found.only_theirs)
            at += len(arrived)
            evicted = {sample.digest for sample in left}
            kept = [sample for sample in new.get(group, ()) if sample.digest not in evicted]
            kept += [sample for sample, there in zip(arrived, is_there, strict=True) if not there]
            new[group] = kept
        return SetDifference(new, removed.astype("<u8").tobytes(), root)

    def _ask(self, question: _Question, symbols: int) -> None:
        target = question.target
        assert target is not None
        question.asked_for = symbols
        self._send_note(
            question, target, messages.encode(messages.More(question.name_space, target.request, symbols))
        )

    def _send_note(self, question: _Question, target: AligneeRequest, message: bytes) -> None:
        question.since_s = self._shared.clock.monotonic()
        self._shared.counters["comparison_bytes_sent"] += len(message)
        self._shared.wire.send_note(target.node, message)


def _is_worth_a_list(count: int, groups: list[tuple[Group, SampleRows]]) -> bool:
    """Whether a list of `count` identities costs less than half of the payloads here."""
    return 2 * LIST_BYTES * count < sum(samples.payload_bytes for _, samples in groups)


def sent_part(shared: SharedState, held: DataSet, wants: Callable[[Group], bool] = lambda _: True) -> DataSet:
    """Return the groups of a set to send: those that are described and wanted."""
    part = DataSet()
    described = shared.descriptions
    part.groups = {group: held.groups[group] for group in held.groups if group in described and wants(group)}
    return part
