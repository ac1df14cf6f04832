"""The alignee's side of a comparison, which describes its set and applies the difference.

A comparison belongs to one request. Its base is the alignee's set at the time of the request; samples
captured meanwhile are newer than those that will come. The result counts only if it has the count and digest
that the aligner named; otherwise the next request asks for the whole set. Work that grows with the set is
done in steps (`engine.runtime.steps`).
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from engine.core.events import ExpectSet, is_asked_for
from engine.core.messages import MERGE_PURPOSES, Outgoing, SampleRequest
from engine.core.name_spaces import Group
from engine.dataset.blocks import MAX_SAMPLES
from engine.dataset.dataset import DataSet, weight_of
from engine.dataset.group_set import ApplyOutcome, Summary
from engine.dataset.groups import GroupDescription
from engine.dataset.rateless import Encoder, Stepwise, Symbols, Words
from engine.dataset.sample import Sample, digest_sum
from engine.dataset.sample_rows import SampleRows
from engine.runtime.incoming import IncomingStream, conversion_of, fills_store, held_before
from engine.runtime.name_space_data import Difference, NameSpaceData
from engine.runtime.reconciling import messages
from engine.runtime.reconciling.aligner import FIRST_SYMBOLS, LackingSamples
from engine.runtime.shared_state import SharedState
from engine.runtime.steps import Steps, StreamFault
from engine.runtime.store_queue import Conversion
from engine.runtime.stream import StreamEnd
from engine.store.interface import GroupChange

# A sketch costs a round and `aligner.MIN_SYMBOLS` symbols; the whole set of 16 small samples costs hardly
# more.
MIN_SAMPLES: Final = 16
"""Samples below which a comparison costs more than the whole set."""
# A quarter of `FIRST_SYMBOLS`: tens of changes can be decoded, and more are asked for as always.
MORE_SYMBOLS: Final = 64
"""Symbols in a first sketch that names the lacking samples: they only show later changes."""
# 16 MiB on the wire at 16 bytes each: more differences than that are a list (`MAX_LIST`).
MAX_SYMBOLS: Final = 1 << 20
"""Symbols in one sketch, whatever the aligner asks for: a damaged message must not cost gigabytes."""
# With `aligner.LIST_BYTES` each, and half of `MAX_BATCH_BYTES`.
MAX_LIST: Final = 8 << 20
"""Identities in a list at most: 64 MiB."""
_MASK: Final = (1 << 128) - 1
_OF_LOADED: Final = ("initial",)
_OF_WORKING: Final = ("collect", "repair", *MERGE_PURPOSES)


class ComparisonBase(msgspec.Struct, eq=False):
    """The set to which a difference will be applied."""

    aligner: str
    """Node that was asked."""
    salt: bytes
    """Salt of the identities."""
    groups: list[tuple[Group, SampleRows]]
    """The samples, as they were at the time of the request."""
    root: Summary
    """Summary of the set."""
    began_s: float
    """Time of the request, on the monotonic clock."""
    lacks: Words | None = None
    """Identities that an earlier comparison found missing here; symbols include them."""
    told: int = 0
    """Symbols sent so far."""
    _identities: Words | None = None
    _encoder: Encoder | None = None

    def identities(self) -> Stepwise[Words]:
        """Compute the identities of the samples, group after group."""
        from engine.dataset import reconciliation  # needs numpy, which takes a moment to load

        if self._identities is None:
            self._identities = yield from reconciliation.identities(self.groups, self.salt)
        return self._identities

    def symbols(self, end: int) -> Stepwise[Symbols]:
        """Compute the symbols up to `end` that have not been sent."""
        import numpy as np

        from engine.dataset import rateless, reconciliation

        if self._encoder is None:
            here = yield from self.identities()
            if self.lacks is not None:
                self.lacks = yield from reconciliation.absent(self.lacks, here)
                here = np.concatenate((here, self.lacks))
            self._encoder = rateless.Encoder(here)
        return (yield from self._encoder.until(end))


class Finished(msgspec.Struct, frozen=True):
    """The combination of a received set or difference with the set here.

    Attributes:
        data: the whole new set, or only its new samples.
        conversion: changes that bring the store there.
        surplus: samples that only this node has.
        gives_way: why the stored set is not in it; empty if it is, or if there is none.
    """

    data: DataSet
    conversion: Conversion
    surplus: Difference = msgspec.field(default_factory=dict)
    gives_way: str = ""


class AligneeComparisons:
    """The comparisons of an alignee.

    Args:
        steps: carries out comparisons.
        secret: secret of this node, from which it makes salts.
        lacking: identities that this node lacks by its own comparisons as aligner.
    """

    def __init__(self, shared: SharedState, steps: Steps, secret: bytes, lacking: LackingSamples) -> None:
        self._shared = shared
        self._steps = steps
        self._secret = secret
        self._lacking = lacking
        self._bases: dict[tuple[str, int], ComparisonBase] = {}
        self._distrusted: set[str] = set()

    def begin(self, event: ExpectSet) -> None:
        """Send a sketch of the set with a request that is about to go out, if the set is large enough."""
        self.keep_wanted()
        name = event.name_space
        state = self._shared.spaces[name].state
        if state.policy.filtered:
            return  # a filtered set would never reach the aligner's count and digest
        if name in self._distrusted:
            self._distrusted.discard(name)
            return
        held = _held(self._shared.spaces[name], event)
        root = held.summary() if held is not None else None
        if held is None or root is None or not MIN_SAMPLES <= root.count <= MAX_LIST:
            return
        groups = [(group, group_set.samples()) for group, group_set in held.groups.items()]
        salt = hashlib.blake2b(f"{name} {event.request}".encode(), key=self._secret, digest_size=16).digest()
        lacking = self._lacking.pop(name, event.aligner)
        salt, lacks = lacking or (salt, None)
        base = self._bases[name, event.request] = ComparisonBase(
            event.aligner, salt, groups, root, self._shared.clock.monotonic(), lacks
        )
        known = self._shared.core.fellow(event.aligner)
        roll_up = known.roll_up(name) if known else None
        is_equal = roll_up is not None and (roll_up.count, roll_up.digest) == (root.count, root.digest)
        first = FIRST_SYMBOLS if lacks is None else MORE_SYMBOLS
        length = 0 if is_equal else min(first, root.count)
        self._steps.begin(self._send(name, event.request, base, length))

    def announced(self, outgoing: Outgoing) -> Outgoing:
        """Return an outgoing message; mark in a request that a sketch goes with it."""
        message = outgoing.message
        if isinstance(message, SampleRequest) and (message.name_space, message.request) in self._bases:
            return msgspec.structs.replace(outgoing, message=msgspec.structs.replace(message, compares=True))
        return outgoing

    def asked(self, sender: str, message: messages.More) -> None:
        """Answer a question of the aligner; of others it is a fault, and one about the past is ignored.

        Raises:
            StreamFault: the sender is not the aligner.
        """
        base = self._bases.get((message.name_space, message.request))
        if base is None:
            return
        if base.aligner != sender:
            raise StreamFault(f"{sender} asks about a request to {base.aligner}")
        self._shared.core.set_progress(message.name_space, message.request, self._shared.clock.monotonic())
        if message.symbols:
            symbols = min(message.symbols, MAX_SYMBOLS)
            self._steps.begin(self._send(message.name_space, message.request, base, symbols))
        else:
            self._steps.begin(self._send_list(message.name_space, message.request, base))

    def _send_list(self, name: str, request: int, base: ComparisonBase) -> Stepwise[None]:
        identities = yield from base.identities()
        body = identities.astype("<u8").tobytes()
        self._send_sketch(name, request, base, body, length=len(identities), is_list=True)

    def _send(self, name: str, request: int, base: ComparisonBase, end: int) -> Stepwise[None]:
        """Send the symbols that follow the last ones."""
        first, body, lacking = base.told, b"", 0
        if end > first:
            body = (yield from base.symbols(end)).to_bytes(base.root.count)
            base.told = end
            if not first and base.lacks is not None:
                lacking, body = len(base.lacks), body + base.lacks.astype("<u8").tobytes()
        self._send_sketch(name, request, base, body, first=first, length=base.told - first, lacking=lacking)

    def _send_sketch(
        self,
        name: str,
        request: int,
        base: ComparisonBase,
        body: bytes,
        *,
        length: int,
        first: int = 0,
        lacking: int = 0,
        is_list: bool = False,
    ) -> None:
        if self._bases.get((name, request)) is not base:
            return  # the request is not wanted any more
        shared = self._shared
        node, root = shared.settings.node, base.root
        sketch = messages.Sketch(
            name, node, request, base.salt, root.count, root.digest, first, length, is_list, lacking
        )
        message = messages.encode(sketch, body)
        shared.counters["comparison_bytes_sent"] += len(message)
        shared.tracer.event(
            "align.comparing",
            group=name,
            fellow=shared.core.name_of(base.aligner),
            samples=root.count,
            symbols=length,
            bytes=len(message),
        )
        shared.wire.send_note(base.aligner, message)

    def keep_wanted(self) -> None:
        """Forget the bases of requests that are not wanted any more."""
        if not self._bases:
            return
        expects, patience_s = self._shared.core.expects, self._shared.settings.request_patience_s
        for key in [key for key in self._bases if not expects(*key)]:
            base = self._bases.pop(key)
            if self._shared.clock.monotonic() - base.began_s >= patience_s:
                self._distrusted.add(key[0])  # perhaps sketches do not reach the aligner

    def finish(self, incoming: IncomingStream, *, whole: bool, joins: bool) -> Stepwise[Finished | None]:
        """Apply a received difference to its base.

        Returns None if the result is not the aligner's set; then the next request asks for the whole set.

        Args:
            incoming: the difference.
            whole: make the whole set, not only the new samples.
            joins: keep in the whole set the samples that only this node has stored.
        """
        name, request = incoming.begin.name_space, incoming.target.request
        base = self._bases.pop((name, request), None)
        if base is None:
            made = None
        else:
            made = yield from self._make(base, incoming, whole=whole, joins=joins)
        if made is None:
            self._distrusted.add(name)
            self._shared.counters["comparisons_failed"] += 1
            self._shared.tracer.event(
                "align.mismatch",
                group=name,
                fellow=self._shared.core.name_of(incoming.begin.aligner),
                source=request,
            )
        return made

    def _unchanged(
        self, base: ComparisonBase, incoming: IncomingStream, end: StreamEnd
    ) -> Stepwise[Finished | None]:
        """Return the base as it is, because nothing differs."""
        if (base.root.count, base.root.digest) != (end.count, end.digest):
            return None
        loaded = self._shared.spaces[incoming.begin.name_space].loaded
        data = incoming.data
        is_loaded = loaded is not None and loaded.summary().same_content(base.root)
        if (
            loaded is None
            or not is_loaded
            or any(group not in data.groups for group, samples in base.groups if samples)
        ):
            made = yield from _put(base, {}, data)
        else:
            made = loaded
            for group, group_set in data.groups.items():
                known = made.open_like(group, group_set)
                known.depth = group_set.depth
        if not made.summary().same_content(base.root):
            return None
        return Finished(made, Conversion([], before=base.root))

    def _make(
        self, base: ComparisonBase, incoming: IncomingStream, *, whole: bool, joins: bool
    ) -> Stepwise[Finished | None]:
        from engine.dataset import reconciliation

        end = incoming.end
        assert end is not None
        if whole and not incoming.samples and not incoming.identities:
            return (yield from self._unchanged(base, incoming, end))
        identities = yield from base.identities()
        gone = yield from reconciliation.positions(identities, incoming.removed())
        if gone is None:
            return None
        removed = yield from reconciliation.samples_at(base.groups, gone)
        digest = base.root.digest
        for group, samples in removed.items():
            digest -= digest_sum(samples) * weight_of(group)
        for group, group_set in incoming.data.groups.items():
            digest += group_set.summary().digest * weight_of(group)
        count = base.root.count - len(gone) + incoming.samples
        if (count, digest & _MASK) != (end.count, end.digest):
            return None
        describe = self._shared.descriptions
        if not whole:
            return Finished(incoming.data, Conversion([]), removed)
        made = yield from _put(base, removed, incoming.data)
        if not made.summary().same_content(
            msgspec.structs.replace(base.root, count=end.count, digest=end.digest)
        ):
            return None
        data = self._shared.spaces[incoming.begin.name_space]
        surplus: Difference = {}
        evicted: Difference = {}
        back: Difference = {}  # stored samples that the base lacks
        if joins and data.loaded is not None:
            surplus, evicted = _put_back(made, removed, data.loaded)
            back, removed = _less(surplus, removed), _less(removed, surplus)
        new = {group: group_set.samples() for group, group_set in incoming.data.groups.items()}
        for group, samples in evicted.items():  # by what was kept: either came just now or was here
            digests = {sample.digest for sample in samples}
            came = {sample.digest for sample in new.get(group, ()) if sample.digest in digests}
            new[group] = new[group].without(came) if came else new.get(group, SampleRows())
            removed.setdefault(group, []).extend(one for one in samples if one.digest not in came)
        if fills_store(data, incoming):
            conversion = conversion_of(data, incoming, base.root, base.groups, removed, describe)
            goes, comes = (
                evicted,
                {group: SampleRows.coerce(samples) for group, samples in back.items()},
            )
        else:
            conversion, goes, comes = Conversion([], before=base.root), removed, new
        for group in (*goes, *comes):
            if group in describe and data.is_on_disk(describe[group]):
                conversion.changes.append(GroupChange(describe[group], None, goes.pop(group, [])))
                rows = comes.pop(group, SampleRows())
                conversion.changes.extend(GroupChange(describe[group], sample) for sample in rows)
        return Finished(made, conversion, surplus)


def joined(
    incoming: IncomingStream, data: NameSpaceData, describe: dict[Group, GroupDescription]
) -> Stepwise[Finished]:
    """Join the stored set with a whole set that came."""
    made, conversion = incoming.data, Conversion([], incoming.number)
    surplus: Difference = {}
    assert data.loaded is not None
    for group, group_set in data.loaded.groups.items():
        target = made.open_like(group, group_set)
        known = set(target.samples().each_digest())
        for some in group_set.samples().split(MAX_SAMPLES):
            for sample in some.without(known):
                outcome, evicted = target.apply(sample)
                if outcome is ApplyOutcome.STORED:
                    surplus.setdefault(group, []).append(sample)
                    if group in describe and data.is_on_disk(describe[group]):
                        conversion.changes.append(GroupChange(describe[group], sample, evicted))
            yield
    return Finished(made, conversion, surplus)


def _put_back(made: DataSet, removed: Difference, loaded: DataSet) -> tuple[Difference, Difference]:
    """Put back stored samples that the aligner lacks; return them, and the samples that they pushed out.

    The aligner may not know the group, if its topic is younger than the aligner's last run.
    """
    kept: Difference = {}
    evicted: Difference = {}
    for group, samples in removed.items():
        stored = loaded.groups.get(group)
        if stored is None:
            continue
        target = made.open_like(group, stored)
        # Whole instances: a sample of a stream that broke off may have pushed out others, which are stored.
        for key in dict.fromkeys(sample.key for sample in samples):
            here = {one.digest for one in target.instance(key)}
            lacking = [one for one in stored.instance(key) if one.digest not in here]
            for one in reversed(lacking):  # the newest first, so that none pushes out another one
                outcome, out = target.apply(one)
                if outcome is ApplyOutcome.STORED:
                    kept.setdefault(group, []).append(one)
                    if out:
                        evicted.setdefault(group, []).extend(out)
    return kept, evicted


def _less(samples: Difference, others: Difference) -> Difference:
    """Return the samples without the others."""
    less: Difference = {}
    for group, each in samples.items():
        digests = {sample.digest for sample in others.get(group, ())}
        less[group] = [sample for sample in each if sample.digest not in digests]
    return less


def _held(data: NameSpaceData, event: ExpectSet) -> DataSet | None:
    """Return the set with which a request is compared; None if there is none."""
    if event.purpose in _OF_LOADED and not data.state.holder and not event.elements:
        return held_before(data)
    if event.purpose in _OF_WORKING and data.state.holder:
        asked = DataSet()
        groups = data.working.groups
        asked.groups = {group: groups[group] for group in groups if is_asked_for(group, event.elements)}
        return asked
    return None


def _put(base: ComparisonBase, removed: dict[Group, list[Sample]], new: DataSet) -> Stepwise[DataSet]:
    """Return the base without the removed samples and with the new ones."""
    made = DataSet()
    for group, group_set in new.groups.items():
        made.open_like(group, group_set)
    for group, samples in base.groups:
        gone = {sample.digest for sample in removed.get(group, ())}
        for some in samples.split(MAX_SAMPLES):
            kept = some.without(gone)
            if group not in made.groups and kept:
                raise StreamFault(f"group {group} has samples on both sides but is not described")
            if kept:
                made.groups[group].extend(kept)
                yield
    for group, group_set in new.groups.items():
        for some in group_set.samples().split(MAX_SAMPLES):
            made.groups[group].extend(some)
            yield
    return made
