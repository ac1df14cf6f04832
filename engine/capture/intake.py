"""What nodes and persistence services do alike with discovery: writers and their taps, and types to look up.

`MatchWatch` finds durable writers that a tap should capture and does not match, or that end before it has a
sample. `DiscoveryIntake` reports these, writers that are refused, and those that are kept after all.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from engine.capture.tap_registry import look_up_type
from engine.capture.unkept import UnkeptReason
from engine.dataset.sample import Sample
from engine.dds.native_topics import Refusals
from engine.dds.typeinfo import ATTEMPTS
from engine.dds.writer_names import WRITER_GONE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence

    from engine.capture.neighbourhood import DiscoveryChanges, Neighbourhood, Offer
    from engine.capture.tap import TapMove
    from engine.capture.tap_registry import TapRegistry
    from engine.capture.unkept import Unkept
    from engine.dataset.captured import CapturedRun
    from engine.dds.discovery import EndpointSeen
    from engine.dds.participant import NodeParticipant
    from engine.dds.typeinfo import Resolution


# Not measured. Longer only delays the answer about a writer that refuses the tap; shorter would call a
# writer lost whose match waits for a loaded process.
MATCH_S: Final = 5.0
"""Time for a writer to match its tap. Cyclone DDS matches both at once when it knows both."""
LOOK_S: Final = 1.0
"""Pause between two looks."""
END_S: Final = 15.0
"""Age of a writer at which its end is reported if nothing of it was captured. By default Cyclone DDS
gives up a dead process after 10 s. A writer that ends later may have had nothing to write."""
SHOWN_S: Final = 600.0
"""Time for which such a writer is shown; most people look for what is missing later than that it was lost."""
# A screenful: a crash of one application would otherwise push the living writers out of the snapshot.
MAX_SHOWN: Final = 20
"""Limit for these writers, so that they leave room for those that are there."""
# Discovery and the matches of the tap come on different threads, so one look may fall between the two.
TIRED: Final = 2
"""Looks in succession that must find no match: a writer that has just ended may still be known here."""


class MatchWatch:
    """Watches writers until their taps match them, and have captured something of them.

    Args:
        taps: says whether a writer is matched.
        neighbourhood: knows the writers, and remembers those that are not kept.
    """

    def __init__(self, taps: TapRegistry, neighbourhood: Neighbourhood) -> None:
        self._taps = taps
        self._neighbourhood = neighbourhood
        self._new: list[Offer] = []
        self._silent: dict[bytes, tuple[Offer, float]] = {}
        self._due_s: dict[bytes, float] = {}
        self._misses: dict[bytes, int] = {}
        self._shown_s: dict[bytes, float] = {}
        self._next_s = 0.0

    def watch(self, offers: Iterable[Offer]) -> None:
        """Look at these writers once they have had time to match."""
        new = [offer for offer in offers if offer.endpoint.handle]
        self._new += new
        self._silent.update({offer.endpoint.guid: (offer, math.inf) for offer in new})

    def heard(self, records: Iterable[Sample | CapturedRun]) -> None:
        """Take in what taps captured: the writers of samples are not watched any more for their end."""
        for record in records if self._silent else ():
            if not isinstance(record, Sample) or not record.status & WRITER_GONE:
                self._silent.pop(record.writer, None)

    def turn(self, now_s: float) -> list[Unkept]:
        """Look at the writers that are due; return those that do not match, or have ended, each once."""
        for offer in self._new:
            writer = offer.endpoint.guid
            self._due_s[writer] = now_s + MATCH_S
            if self._silent.pop(writer, None) is not None:  # it goes behind those that are due earlier
                self._silent[writer] = offer, now_s + END_S
        self._new.clear()
        if not (self._due_s or self._silent or self._shown_s) or now_s < self._next_s:
            return []
        self._next_s = now_s + LOOK_S
        self._hide(now_s)
        due = [writer for writer, due_s in self._due_s.items() if due_s <= now_s]
        looks = [self._examine(writer, now_s) for writer in due]
        return [unkept for unkept in looks if unkept is not None] + list(self._ended(now_s))

    def _ended(self, now_s: float) -> Iterator[Unkept]:
        """Yield the writers that have ended, were not told, and of which a tap has nothing."""
        while self._silent and not self._taps.has_news():
            writer, (offer, due_s) = next(iter(self._silent.items()))
            if due_s > now_s:
                return
            del self._silent[writer]
            is_gone = self._neighbourhood.offer_of(writer) is None and self._neighbourhood.routes.get(writer)
            if is_gone and any(map(self._taps.is_tapped, offer.groups)):
                self._shown_s[writer] = now_s + SHOWN_S
                unkept = self._neighbourhood.unkept.add(offer.endpoint, UnkeptReason.ENDED)
                if unkept is not None:
                    yield unkept

    def _hide(self, now_s: float) -> None:
        """Forget the oldest writers that have ended."""
        for writer, until_s in list(self._shown_s.items()):
            if until_s > now_s and len(self._shown_s) <= MAX_SHOWN:
                return
            del self._shown_s[writer]
            if self._neighbourhood.offer_of(writer) is None:  # it has not come back
                self._neighbourhood.unkept.remove(writer)

    def _examine(self, writer: bytes, now_s: float) -> Unkept | None:
        misses = self._misses.pop(writer, 0)
        del self._due_s[writer]
        offer = self._neighbourhood.offer_of(writer)
        if offer is None:
            return None
        if self._taps.is_matched(offer.groups, offer.endpoint.handle) is not False:
            return self._neighbourhood.unmatched(offer, is_so=False) if misses else None
        self._misses[writer] = min(misses + 1, TIRED)
        self._due_s[writer] = now_s + LOOK_S
        if misses + 1 < TIRED:
            return None
        self._silent.pop(writer, None)
        return self._neighbourhood.unmatched(offer, is_so=True)


class DiscoveryIntake:
    """Takes in what discovery and taps find out of writers. One thread makes all calls.

    What it finds it gives to methods that do nothing unless a subclass overrides them.

    Args:
        participant: looks up types.
        neighbourhood: turns discovery into changes.
        taps: the readers of captured topics.
        counters: `refused_samples` counts those that do not fit the type that their writer announces.

    Attributes:
        neighbourhood: the endpoints in the domain.
        watch: looks whether writers match, and whether something of them was captured.
    """

    def __init__(
        self,
        participant: NodeParticipant,
        neighbourhood: Neighbourhood,
        taps: TapRegistry,
        counters: MutableMapping[str, int],
    ) -> None:
        self._participant = participant
        self.neighbourhood = neighbourhood
        self.taps = taps
        self.counters = counters
        self._refusals = Refusals()
        self.watch = MatchWatch(taps, neighbourhood)

    def changed(self, changes: DiscoveryChanges) -> None:
        """Take in durable writers that came and went, and groups that are known better."""

    def not_kept(self, unkept: Unkept) -> None:
        """Report a writer that is not kept."""

    def kept_after_all(self, unkept: Unkept) -> None:
        """Report a writer that is kept now, as it was reported before."""

    def mismatched(self, offer: Offer, policies: Sequence[str]) -> None:
        """Report a writer whose policies do not match those of its tap, so that it is not kept."""

    def moved(self, move: TapMove) -> None:
        """Report that another reader has taken the place of a tap's."""

    def unresolved(self) -> None:
        """Take in that the type of a writer could not be looked up; it is asked for again."""

    def submit(
        self, endpoint: EndpointSeen, work: Callable[[], Resolution], done: Callable[[Resolution], None]
    ) -> None:
        """Look up the type of a writer on another thread, and then do `done` on this one."""

    def topics_seen(self, batch: Sequence[Any]) -> None:
        """Take in a batch of topic discovery."""
        self.changed(self.neighbourhood.topics_seen(batch))

    def look_up(self, endpoint: EndpointSeen, *, is_first: bool = True) -> None:
        """Look up the type of a writer; after the first time with one attempt only, as it may be in vain."""
        reference, attempts = endpoint.type, ATTEMPTS if is_first else 1
        assert reference is not None

        def done(resolution: Resolution) -> None:
            self.changed(self.neighbourhood.resolved(reference, resolution.type, resolution.reason))
            if is_first and resolution.type is None:
                self.unresolved()

        self.submit(endpoint, lambda: look_up_type(self._participant, endpoint, attempts=attempts), done)

    def review(self, now_s: float) -> None:
        """Look at writers and taps, which may have changed without a message of discovery."""
        for unkept in self.watch.turn(now_s):
            self.not_kept(unkept)
        for refusal, count in self._refusals.news(lambda writer: bool(self.neighbourhood.offer_of(writer))):
            self.counters["refused_samples"] += count
            if (news := self.neighbourhood.refused(refusal.writer, refusal.text)) is not None:
                self.not_kept(news)
        for kept in self.neighbourhood.unkept.take_kept():
            self.kept_after_all(kept)
        again = self.neighbourhood.to_ask_again(now_s)
        if again is not None:
            self.look_up(again, is_first=False)
        for topic, type_id in self.taps.take_raised():
            for offer in self.neighbourhood.offers(topic, type_id):
                self.is_refused(offer)
        for move in self.taps.turn():
            self.moved(move)

    def is_refused(self, offer: Offer) -> bool:
        """Whether a writer does not match its tap; then its samples are ignored, which is reported once."""
        if problem := self.taps.problem(offer.groups[0]):
            unkept = self.neighbourhood.refuse(offer, UnkeptReason.TYPE_UNKNOWN, problem)
            if unkept is not None:
                self.not_kept(unkept)
            return True
        policies = self.taps.refusals(offer.groups, offer.endpoint.endpoint_qos)
        if policies and self.neighbourhood.refuse(offer, UnkeptReason.QOS, ", ".join(policies)) is not None:
            self.mismatched(offer, policies)
        return bool(policies)
