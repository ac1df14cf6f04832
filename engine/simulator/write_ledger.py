"""The samples that applications wrote, the times of their capture, and whether a set may lack them."""

from __future__ import annotations

from collections.abc import Iterable

from engine.core.name_spaces import Group
from engine.dataset.dataset import DataSet
from engine.dataset.sample import DISPOSE, UNREGISTER, Sample, with_digest

Key = tuple[Group, bytes, int, bytes]
"""Group, writer, source time and instance of a sample; the ends of a writer share one time."""


def _key(group: Group, sample: Sample) -> Key:
    return group, sample.writer, sample.source_time_ns, sample.key


class WrittenSample:
    """One written sample.

    Attributes:
        written_s: when it was written by the true time, whatever its stamp says.
        captured_s: when a node captured it first; None until then.
        name_space: of that node's.
    """

    __slots__ = ("_sample", "captured_s", "group", "name_space", "record", "written_s")

    def __init__(self, group: Group, record: Sample, written_s: float) -> None:
        self.group = group
        self.record = record
        self.written_s = written_s
        self.captured_s: float | None = None
        self.name_space = ""
        self._sample: Sample | None = None

    @property
    def sample(self) -> Sample:
        """The sample that nodes make of it."""
        if self._sample is None:
            self._sample = with_digest(self.record)
        return self._sample

    def __repr__(self) -> str:
        record = self.record
        return (
            f"{self.group} key {record.key.hex()} t={record.source_time_ns} status={record.status}, "
            f"written at {self.written_s:.3f} s"
        )


class WriteLedger:
    """All samples of a run.

    Attributes:
        strangers_met_s: when two nodes that had never met before did so last.
    """

    def __init__(self) -> None:
        self._entries: dict[Key, WrittenSample] = {}
        self._disposes: dict[tuple[Group, bytes], list[WrittenSample]] = {}
        self._purged_s: dict[tuple[Group, bytes], float] = {}
        self._pairs: set[frozenset[str]] = set()
        self.strangers_met_s = 0.0

    def wrote(self, group: Group, record: Sample, now: float) -> None:
        """Record a written sample."""
        self._entries[_key(group, record)] = WrittenSample(group, record, now)

    def captured(self, name_space: str, group: Group, record: Sample, now: float) -> None:
        """Record a captured sample."""
        entry = self._entries[_key(group, record)]
        if entry.captured_s is None:
            entry.captured_s = now
            entry.name_space = name_space
            if record.status & DISPOSE:
                self._disposes.setdefault((group, record.key), []).append(entry)

    def met(self, one: str, other: str, now: float) -> None:
        """Record that one node and the other talk to each other."""
        pair = frozenset((one, other))
        if pair not in self._pairs:
            self._pairs.add(pair)
            self.strangers_met_s = now

    def forget_meetings(self, node: str) -> None:
        """Forget whom a node has met: an older copy of its disk is in place."""
        self._pairs = {pair for pair in self._pairs if node not in pair}

    def entry(self, group: Group, sample: Sample) -> WrittenSample | None:
        """Return the entry of a sample; None for an invented one, which another rule finds."""
        return self._entries.get(_key(group, sample))

    def entries(self, data: DataSet) -> set[WrittenSample]:
        """Return the entries of all samples of a set."""
        known = self._entries
        found = {
            known.get(_key(group, sample))
            for group, group_set in data.groups.items()
            for sample in group_set.samples()
        }
        found.discard(None)
        return found  # type: ignore[return-value]  # mypy does not see that None was removed

    def lacking(self, data: DataSet, wanted: Iterable[WrittenSample]) -> list[WrittenSample]:
        """Return the wanted samples that a set lacks, although nothing replaced or deleted them."""
        missing = set(wanted) - self.entries(data)
        lost = [entry for entry in missing if not self._may_lack(data, entry)]
        # The oldest first: the message has the first ones, and they are the nearest to the cause.
        return sorted(lost, key=lambda entry: entry.written_s)

    def _may_lack(self, data: DataSet, entry: WrittenSample) -> bool:
        group_set = data.groups.get(entry.group)
        record = entry.record
        if group_set is not None and group_set.has_no_place(entry.sample):
            return True
        return self.is_purged(data, entry.group, record)

    def purged(self, group: Group, keys: Iterable[bytes], now: float) -> None:
        """Record that a master told its fellows to forget the instances with these keys."""
        self._purged_s.update(((group, key), now) for key in keys)

    def is_purged(self, data: DataSet, group: Group, sample: Sample) -> bool:
        """Tell whether the instance was disposed after a sample, and purged.

        A fellow may bring the dispose back, which revives nothing, without what it ended.
        """
        group_set = data.groups.get(group)
        present = group_set.instance(sample.key) if group_set else ()
        purged_s = self._purged_s.get((group, sample.key), -1.0)
        for dispose in self._disposes.get((group, sample.key), ()):
            stamp_ns = dispose.record.source_time_ns
            if sample.status == UNREGISTER:  # it revives nothing
                stamp_ns = max(stamp_ns, sample.source_time_ns)
            is_back = dispose.captured_s is not None and dispose.captured_s <= purged_s
            left = [each for each in present if not (is_back and self.entry(group, each) == dispose)]
            if sample.source_time_ns <= stamp_ns and all(
                each.source_time_ns > stamp_ns or self._came_later(group, each, dispose) for each in left
            ):
                return True
        return False

    def _came_later(self, group: Group, sample: Sample, dispose: WrittenSample) -> bool:
        """Tell whether no node could know a sample when the dispose was forgotten.

        A dispose that all nodes have may be purged. What is written afterwards makes a new instance, whatever
        its stamp; so does what was written before and arrives afterwards; and a node that had never met the
        others may bring older data.
        """
        entry = self.entry(group, sample)
        known_s = dispose.captured_s or 0.0
        return (
            entry is None
            or entry.written_s > dispose.written_s
            or (entry.captured_s or 0.0) > known_s
            or self.strangers_met_s > known_s
        )
