"""What a DurableWriter has written and nobody has stored often enough yet: in memory, and in its journal."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, Final

from engine.dds.client_protocol.naming import MAX_NAMES, SampleName, Verdict, first_names
from ospltool.client.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine.dataset.sample import Sample
    from ospltool.client.journal import Journal

MAX_UNTOLD: Final = 10
"""Samples that were given up and are named."""
_OVERHEAD: Final = 200
"""What a sample costs in memory beside its payload and key, about."""


class Entry:
    """One sample that is pending.

    Attributes:
        number: in the order of the writes.
        stored: the nodes that have it on their disks, each with the partition.
        is_written: Cyclone DDS has taken it; before that it may still be withdrawn.
    """

    __slots__ = ("is_written", "name", "number", "sample", "size", "stored")

    def __init__(self, sample: Sample, number: int) -> None:
        self.sample = sample
        self.name = SampleName.of(sample)
        self.number = number
        self.size = _OVERHEAD + len(sample.payload) + len(sample.key)
        self.stored: set[tuple[str, str]] = set()
        self.is_written = False


class Ledger:
    """The pending samples, oldest first. The caller holds a lock.

    A sample leaves when enough nodes have stored it or newer samples that supersede it; but of an instance,
    in the order of the writes. So a dispose stays until what it disposes has been stored, and what is
    handed over late can never end an instance in an older state. A sample also leaves when it has been given
    up: nodes will never take it, because its group was deleted up to a later time.

    Args:
        partitions: each must be stored in; the default one has an empty name.
        nodes: how many nodes must have stored a sample in each.
        max_samples, max_bytes: bounds of what may be pending.
        journal: None keeps it in memory only.
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
        self._entries: dict[bytes, Entry] = {}
        self.bytes = self.written = self.settled = 0
        self.last = 0
        self.deleted = 0
        self._untold = 0
        self._untold_names: list[SampleName] = []
        for sample in journal.samples if journal else ():
            self._put(sample).is_written = True

    def __len__(self) -> int:
        return len(self._entries)

    def has_room(self, size: int) -> bool:
        """Whether a sample of that size may be added; a single one always may."""
        is_free = len(self) < self._max_samples and self.bytes + size <= self._max_bytes
        return is_free or not self._entries

    def holds(self, entry: Entry) -> bool:
        """Whether it is still pending."""
        return entry.sample.digest in self._entries

    def add(self, sample: Sample) -> Entry | None:
        """Keep a sample; None where exactly this one is pending already, which makes it one.

        Raises:
            JournalError: the journal refuses it; it is not kept.
        """
        if sample.digest in self._entries:
            return None
        if self._journal is not None:
            self._journal.append(sample)
        return self._put(sample)

    def _put(self, sample: Sample) -> Entry:
        self.written += 1
        self.last += 1
        entry = self._entries[sample.digest] = Entry(sample, self.last)
        self.bytes += entry.size
        return entry

    def withdraw(self, entry: Entry) -> None:
        """It was not written after all."""
        self._remove([entry])
        self.written -= 1

    def first(self) -> list[Entry]:
        """The oldest pending samples that have been written, as many as fit into one question."""
        some = list(itertools.islice(self._entries.values(), MAX_NAMES))
        some = list(itertools.takewhile(lambda entry: entry.is_written, some))
        return some[: first_names([entry.name for entry in some])]

    def following(self, entries: Iterable[Entry], among: Sequence[Entry]) -> list[Entry]:
        """These and what was written to their instances after them, in order."""
        wanted: set[bytes] = set()
        digests = {entry.sample.digest for entry in entries}
        found = []
        for entry in among:
            if entry.sample.digest in digests or entry.sample.key in wanted:
                wanted.add(entry.sample.key)
                found.append(entry)
        return found

    def judge(
        self, entries: Sequence[Entry], answers: Iterable[tuple[str, Sequence[str], bool, Sequence[Verdict]]]
    ) -> int:
        """Take in what nodes say; how many entries have left, those that were given up included.

        What a node holds in memory counts while it says so; what it has on its disk counts from then on.

        Args:
            entries: what was asked about.
            answers: node, its partitions, whether it keeps them on disk, and a verdict on each entry.
        """
        held: dict[bytes, set[tuple[str, str]]] = {}
        said: dict[bytes, set[Verdict]] = {}
        for node, partitions, is_on_disk, verdicts in answers:
            where = {(node, partition) for partition in partitions}
            for entry, verdict in zip(entries, verdicts, strict=True):
                said.setdefault(entry.sample.digest, set()).add(verdict)
                if verdict.is_kept and is_on_disk:
                    entry.stored |= where
                elif verdict.is_kept:
                    held.setdefault(entry.sample.digest, set()).update(where)
        blocked: set[bytes] = set()
        gone: list[Entry] = []
        given_up: list[Entry] = []
        for entry in entries:
            has = entry.stored | held.get(entry.sample.digest, set())
            is_enough = self._is_enough(has)
            is_given_up = not is_enough and _is_given_up(said.get(entry.sample.digest, set()))
            if entry.sample.key in blocked or not (is_enough or is_given_up):
                blocked.add(entry.sample.key)
            elif self.holds(entry):
                (given_up if is_given_up else gone).append(entry)
        self._remove([*gone, *given_up])
        self.settled += len(gone)
        self.deleted += len(given_up)
        self._untold += len(given_up)
        room = MAX_UNTOLD - len(self._untold_names)
        self._untold_names += [entry.name for entry in given_up[:room]]
        return len(gone) + len(given_up)

    def tell_deleted(self) -> tuple[int, tuple[SampleName, ...]]:
        """How many samples were given up since the last call, and the names of the first of them."""
        told = self._untold, tuple(self._untold_names)
        self._untold, self._untold_names = 0, []
        return told

    def _is_enough(self, stored: set[tuple[str, str]]) -> bool:
        return all(
            sum(partition == where for _, where in stored) >= self._nodes for partition in self._partitions
        )

    def _remove(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if self._entries.pop(entry.sample.digest, None) is not None:
                self.bytes -= entry.size
        if self._journal is not None and entries:
            self._journal.stored([entry.sample.digest for entry in entries])
            if self._journal.is_worth_compacting:
                with contextlib.suppress(JournalError):  # the former file is as good, only longer
                    self._journal.compact([entry.sample for entry in self._entries.values()])

    def is_settled_until(self, number: int) -> bool:
        """Whether everything up to a number has left."""
        oldest = next(iter(self._entries.values()), None)
        return oldest is None or oldest.number > number


def _is_given_up(said: set[Verdict]) -> bool:
    """Whether nodes that were asked will never take a sample, and none may still do so."""
    return Verdict.DELETED in said and all(one is Verdict.DELETED or one.is_kept for one in said)
