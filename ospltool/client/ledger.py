"""The pending samples of a DurableWriter, in memory and in its journal."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from engine.dds.client_protocol.naming import MAX_NAMES, SampleName, SampleVerdict, first_names
from ospltool.client.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine.dataset.sample import Sample
    from ospltool.client.journal import Journal

_log = logging.getLogger("ospltool.client")

# For an error message; `count` has the number.
MAX_UNTOLD: Final = 10
"""Most names of samples that were given up."""
_NEVER: Final = (SampleVerdict.DELETED, SampleVerdict.REFUSED)
"""Verdicts after which a node never keeps a sample."""
# Chosen: the limits are approximate anyhow.
_OVERHEAD: Final = 200
"""Approximate bytes of a sample in memory besides payload and key."""


@dataclasses.dataclass(frozen=True, slots=True)
class DurableCounters:
    """Counts of a DurableWriter since it was made."""

    written: int
    """Samples, disposes and unregisters, including those of the journal."""
    stored: int
    """Those of them that enough nodes have stored, so that they are forgotten here."""
    pending: int
    """Samples neither stored nor given up."""
    pending_bytes: int
    """Bytes of the pending samples."""
    handed_over: int
    """Samples handed over to nodes that had missed them, once for each node."""
    recovered: int
    """Samples from the journal of a former run."""
    blocked: int
    """Writes that waited for room."""
    journal_bytes: int
    """Size of the journal; 0 without a journal."""
    deleted: int = 0
    """Given up and forgotten here, not stored: their source time is at or before the time up to which
    `delete_historical_data` deleted their group, and no node takes them."""
    refused: int = 0
    """Given up, too: limits of DURABILITY_SERVICE leave no room for them, or they are too large."""


class NodeVerdicts(NamedTuple):
    """A node's answer to a question about pending samples.

    Attributes:
        node: name of the node.
        partitions: partitions that it keeps; empty if it does not count.
        is_on_disk: whether it keeps them on disk.
        verdicts: one for each sample of the question.
        store: id of its store, which is another one after the loss of its disk.
    """

    node: str
    partitions: Sequence[str]
    is_on_disk: bool
    verdicts: Sequence[SampleVerdict]
    store: str


class PendingSample:
    """One pending sample.

    Attributes:
        number: number in the order of the writes.
        stored: (node, store, partition) of the nodes that have it on disk.
        is_written: whether Cyclone DDS has accepted it; before that it may be withdrawn.
    """

    __slots__ = ("is_written", "name", "number", "sample", "size", "stored")

    def __init__(self, sample: Sample, number: int) -> None:
        self.sample = sample
        self.name = SampleName.from_sample(sample)
        self.number = number
        self.size = _OVERHEAD + len(sample.payload) + len(sample.key)
        self.stored: set[tuple[str, str, str]] = set()
        self.is_written = False


class PendingQueue:
    """The pending samples, oldest first. The caller holds a lock.

    A sample leaves when enough nodes have stored it or newer samples that supersede it, but within an
    instance in the order of the writes. So a dispose stays until the samples that it disposes are stored,
    and a late hand-over cannot leave an instance in an older state. A sample also leaves when it is given
    up, because no node will accept it: its group was deleted up to a later time, limits of the group leave
    no room for it, or it is too large.

    Args:
        partitions: partitions of the writer; the default one has an empty name.
        nodes: number of nodes that must have stored a sample in each partition.
        max_samples, max_bytes: bounds of the pending samples.
        journal: keeps the samples, too; None for memory only.
    """

    def __init__(
        self,
        partitions: Sequence[str],
        nodes: int,
        max_samples: int,
        max_bytes: int,
        journal: Journal | None,
    ) -> None:
        self._partitions = tuple(partitions)
        self._nodes = nodes
        self._max_samples, self._max_bytes = max_samples, max_bytes
        self._journal = journal
        self._entries: dict[bytes, PendingSample] = {}
        self._stores: dict[str, set[str]] = {}
        self.bytes = self.written = self.settled = 0
        self.last = 0
        self.deleted = self.refused = 0
        self._newest_ns = 0
        self._is_ordered = True
        self._untold: dict[SampleVerdict, tuple[int, tuple[SampleName, ...]]] = {}
        for sample in journal.samples if journal else ():
            self._put(sample).is_written = True

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def earliest_ns(self) -> int | None:
        """Earliest source time of a pending sample, nanoseconds since 1970 UTC; None without one."""
        if self._is_ordered:
            return next((entry.sample.source_time_ns for entry in self._entries.values()), None)
        return min((entry.sample.source_time_ns for entry in self._entries.values()), default=None)

    def has_room(self, size: int) -> bool:
        """Return whether a sample of a size may be added; a single one always may."""
        is_free = len(self) < self._max_samples and self.bytes + size <= self._max_bytes
        return is_free or not self._entries

    def holds(self, entry: PendingSample) -> bool:
        """Return whether an entry is still pending."""
        return entry.sample.digest in self._entries

    def add(self, sample: Sample) -> PendingSample | None:
        """Keep a sample; return its entry, or None if exactly this sample is already pending.

        Raises:
            JournalError: the journal cannot be written; the sample is not kept.
        """
        if sample.digest in self._entries:
            return None
        if self._journal is not None:
            try:
                self._journal.append(sample)
            except JournalError:
                if not self._journal.has_room_inside:
                    raise
                self._compact()
                self._journal.append(sample)
        entry = self._put(sample)
        try:
            self.secure()
        except JournalError:
            self.withdraw(entry)
            raise
        return entry

    def secure(self) -> None:
        """Write the journal again if others removed or changed it.

        Raises:
            JournalError: it cannot be written, or another file or writer is in its place.
        """
        if self._journal is not None and not self._journal.is_intact():
            _log.warning("journal %r was removed or changed; it is written again", str(self._journal.path))
            self._compact()

    def _compact(self) -> None:
        if self._journal is not None:
            self._journal.compact([entry.sample for entry in self._entries.values()])

    def _put(self, sample: Sample) -> PendingSample:
        self.written += 1
        self.last += 1
        self._is_ordered = not self._entries or (
            self._is_ordered and sample.source_time_ns >= self._newest_ns
        )
        self._newest_ns = sample.source_time_ns
        entry = self._entries[sample.digest] = PendingSample(sample, self.last)
        self.bytes += entry.size
        return entry

    def withdraw(self, entry: PendingSample) -> None:
        """Remove an entry that was not written after all."""
        self._remove([entry])
        self.written -= 1

    def first(self) -> list[PendingSample]:
        """Return the oldest written pending samples, as many as fit into one question."""
        some = list(itertools.islice(self._entries.values(), MAX_NAMES))
        some = list(itertools.takewhile(lambda entry: entry.is_written, some))
        return some[: first_names([entry.name for entry in some])]

    def following(
        self, entries: Iterable[PendingSample], among: Sequence[PendingSample]
    ) -> list[PendingSample]:
        """Return these entries and those written later to their instances, in order."""
        wanted: set[bytes] = set()
        digests = {entry.sample.digest for entry in entries}
        found = []
        for entry in among:
            if entry.sample.digest in digests or entry.sample.key in wanted:
                wanted.add(entry.sample.key)
                found.append(entry)
        return found

    def judge(
        self,
        entries: Sequence[PendingSample],
        answers: Sequence[NodeVerdicts],
    ) -> int:
        """Take in the answers of nodes; return how many entries have left, including those given up.

        A sample in a node's memory counts in this answer only; one on its disk counts from then on, until
        only other stores answer under the name of the node.
        """
        held: dict[bytes, set[tuple[str, str, str]]] = {}
        said: dict[bytes, set[SampleVerdict]] = {}
        for name in {answer.node for answer in answers}:
            self._stores[name] = {answer.store for answer in answers if answer.node == name}
        for node, partitions, is_on_disk, verdicts, store in answers:
            if not partitions:
                continue
            where = {(node, store, partition) for partition in partitions}
            for entry, verdict in zip(entries, verdicts, strict=True):
                said.setdefault(entry.sample.digest, set()).add(verdict)
                if verdict.is_kept and is_on_disk:
                    entry.stored |= where
                elif verdict.is_kept:
                    held.setdefault(entry.sample.digest, set()).update(where)
        blocked: set[bytes] = set()
        gone: list[PendingSample] = []
        given_up: dict[SampleVerdict, list[PendingSample]] = {}
        for entry in entries:
            has = entry.stored | held.get(entry.sample.digest, set())
            is_enough = self._is_enough(has)
            why = None if is_enough else _given_up(said.get(entry.sample.digest, set()))
            if entry.sample.key in blocked or not (is_enough or why):
                blocked.add(entry.sample.key)
            elif self.holds(entry):
                (gone if why is None else given_up.setdefault(why, [])).append(entry)
        self.settled += len(gone)
        for why, some in given_up.items():
            self._give_up(why, some)
            gone += some
        self._remove(gone)
        return len(gone)

    def _give_up(self, why: SampleVerdict, entries: Sequence[PendingSample]) -> None:
        self.deleted += len(entries) * (why is SampleVerdict.DELETED)
        self.refused += len(entries) * (why is SampleVerdict.REFUSED)
        count, names = self._untold.get(why, (0, ()))
        names = (*names, *(entry.name for entry in entries[: MAX_UNTOLD - len(names)]))
        self._untold[why] = count + len(entries), names

    def tell_given_up(self) -> list[tuple[SampleVerdict, int, tuple[SampleName, ...]]]:
        """Return the samples given up since the last call: why, how many, and the names of the first ones."""
        told = [(why, *one) for why, one in sorted(self._untold.items())]
        self._untold.clear()
        return told

    def _is_enough(self, stored: set[tuple[str, str, str]]) -> bool:
        present = [where for node, store, where in stored if store in self._stores[node]]
        return all(present.count(partition) >= self._nodes for partition in self._partitions)

    def _remove(self, entries: Sequence[PendingSample]) -> None:
        for entry in entries:
            if self._entries.pop(entry.sample.digest, None) is not None:
                self.bytes -= entry.size
        if self._journal is not None and entries:
            self._journal.stored([entry.sample.digest for entry in entries])
            if self._journal.is_worth_compacting:
                with contextlib.suppress(JournalError):  # the former file stays valid, only longer
                    self._compact()

    def is_settled_until(self, number: int) -> bool:
        """Return whether all entries up to a number have left."""
        oldest = next(iter(self._entries.values()), None)
        return oldest is None or oldest.number > number


def _given_up(said: set[SampleVerdict]) -> SampleVerdict | None:
    """Return why no asked node will ever keep a sample; None if one may."""
    if not all(one in _NEVER or one.is_kept for one in said):
        return None
    return next((one for one in _NEVER if one in said), None)
