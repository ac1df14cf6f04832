"""The content of a store: counted, listed, shown and verified; and the numbers of groups."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from engine.dataset.sample import DATA, DISPOSE, Sample
from engine.store.interface import DamageLog
from ospltool.output import progress
from ospltool.output.installation import extra_command
from ospltool.output.text import plural
from ospltool.stores.model import GroupFacts, GroupName, SetFacts, StoreReader, StoreUnreadable
from ospltool.stores.types import Undecodable, Value, key_paths

# A hundred megabytes of keys.
MAX_COUNTED_KEYS: Final = 1_000_000
"""Instances of one group that are counted one by one; where there are more, the number is a lower bound."""
_NEVER: Final = 1 << 63


@functools.lru_cache(maxsize=65_536)
def group_code(name: GroupName) -> int:
    """Return the number of a group, which is equal in all stores for partition, topic and type name."""
    text = json.dumps(list(name)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), signed=True)


@dataclasses.dataclass(frozen=True, slots=True)
class GroupCount:
    """The content of a group in one set, in numbers."""

    set_number: int
    """Number of the set."""
    code: int
    """Number of the group, see `group_code`."""
    samples: int = 0
    """Samples that can be read."""
    instances: int = 0
    """Distinct keys among the samples."""
    damaged: int = 0
    """Records that cannot be read."""
    oldest_ns: int = 0
    """Oldest source timestamp; 0 without samples."""
    newest_ns: int = 0
    """Newest source timestamp; 0 without samples."""
    payload_bytes: int = 0
    """Size of all payloads."""
    disposed: int = 0
    """Samples that dispose their instance."""


class SampleTally:
    """Counts the samples of a group."""

    def __init__(self) -> None:
        self.samples = self.payload_bytes = self.disposed = self.newest_ns = 0
        self.oldest_ns = _NEVER
        self._keys: set[int] = set()

    def passing(self, samples: Iterable[Sample]) -> Iterator[Sample]:
        """Pass the samples on, and count them."""
        for sample in samples:
            self.samples += 1
            self.payload_bytes += len(sample.payload) if sample.status & DATA else 0
            self.disposed += bool(sample.status & DISPOSE)
            self.newest_ns = max(self.newest_ns, sample.source_time_ns)
            self.oldest_ns = min(self.oldest_ns, sample.source_time_ns)
            if len(self._keys) < MAX_COUNTED_KEYS:
                self._keys.add(hash(sample.key))
            yield sample

    def result(self, set_number: int, code: int, damaged: int) -> GroupCount:
        """Return the count so far as that of the group `code` of a set, with its number of damaged records.

        `set_number` is the number of the set.
        """
        return GroupCount(
            set_number,
            code,
            self.samples,
            len(self._keys),
            damaged,
            self.oldest_ns if self.samples else 0,
            self.newest_ns,
            self.payload_bytes,
            self.disposed,
        )


# A line each; `verify` lists all.
SHOWN_DAMAGE: Final = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Counted:
    """A set with the counts of its groups, and its damage."""

    facts: SetFacts
    groups: tuple[tuple[GroupFacts, GroupCount], ...]
    damage: DamageLog

    @property
    def samples(self) -> int:
        """Samples that can be read."""
        return sum(count.samples for _, count in self.groups)

    @property
    def shown_damage(self) -> tuple[int, int, tuple[str, ...]] | None:
        """Number of the set, number of unreadable records, and the first of them; None without damage."""
        if not self.damage.count:
            return None
        return self.facts.number, self.damage.count, tuple(map(str, self.damage.first[:SHOWN_DAMAGE]))


def count_sets(reader: StoreReader, numbers: Sequence[int] = ()) -> Iterator[Counted]:
    """Read sets (all of them by default) from end to end and count.

    Raises:
        StoreUnreadable: there is no such set.
    """
    chosen = [reader.facts.set_of(number) for number in numbers] if numbers else reader.facts.sets
    for one in chosen:
        damage = DamageLog()
        groups = []
        for group, samples in reader.read(one.number, damage):
            before = damage.count
            tally = SampleTally()
            for _ in tally.passing(progress.counted(samples)):
                pass
            code = group_code(group.name)
            groups.append((group, tally.result(one.number, code, damage.count - before)))
        yield Counted(one, tuple(groups), damage)


def verify_problems(reader: StoreReader, counted: Counted) -> list[str]:
    """Return the problems of a counted set, besides its damage."""
    problems = []
    if counted.facts.complete is False and not counted.facts.part:
        problems.append("the set is not complete: its node was still aligning it when it ended")
    for group, count in counted.groups:
        if group.stored is not None and group.stored != count.samples + count.damaged:
            problems.append(
                f"group {group.name}: {plural(group.stored, 'sample was', 'samples were')} stored, "
                f"{count.samples} can be read"
            )
    known = {group.name for group, _ in counted.groups}
    problems += [
        f"group {group.name} was not read" for group in counted.facts.groups if group.name not in known
    ]
    return problems


@dataclasses.dataclass(frozen=True, slots=True)
class SampleSelection:
    """A selection of samples.

    Attributes:
        sets: numbers of sets; empty for the current ones.
        group: a `partition.topic` expression with `*` and `?`; empty for all.
        key: prefix of a key, hexadecimal.
        digest: prefix of a digest, hexadecimal.
    """

    sets: tuple[int, ...] = ()
    group: str = ""
    key: str = ""
    digest: str = ""


def matching(
    reader: StoreReader, choice: SampleSelection, damage: DamageLog
) -> Iterator[tuple[SetFacts, GroupFacts, Iterator[Sample]]]:
    """Yield the selected groups, each with its selected samples.

    Raises:
        StoreUnreadable: there is no such set.
    """
    facts = reader.facts
    chosen = [facts.set_of(number) for number in choice.sets] if choice.sets else facts.current()
    for one in chosen:
        for group, every in reader.read(one.number, damage):
            samples = progress.counted(every)
            if choice.group and not fnmatch.fnmatchcase(str(group.name), choice.group):
                for _ in samples:
                    pass  # the reader yields the next group only then
                continue
            yield one, group, (sample for sample in samples if _is_meant(sample, choice))


def _is_meant(sample: Sample, choice: SampleSelection) -> bool:
    return sample.key.hex().startswith(choice.key) and sample.digest.hex().startswith(choice.digest)


@dataclasses.dataclass(frozen=True, slots=True)
class DescribedInstance:
    """An instance: its samples in order, and the fields of its key where the type is known."""

    set_number: int
    group: GroupFacts
    key: bytes
    samples: tuple[Sample, ...]
    key_fields: dict[str, Value] | None


def instances(
    reader: StoreReader, choice: SampleSelection, limit: int, damage: DamageLog
) -> tuple[list[DescribedInstance], int]:
    """Return the first `limit` selected instances, and the number of all.

    The samples of a group stay in memory until its instances are known; only the returned ones are kept.

    Raises:
        StoreUnreadable: there is no such set.
    """
    found: list[DescribedInstance] = []
    total = 0
    for one, group, samples in matching(reader, choice, damage):
        by_key: dict[bytes, list[Sample]] = {}
        for sample in samples:
            held = by_key.get(sample.key)
            if held is not None:
                held.append(sample)
            elif len(found) + len(by_key) < limit:
                by_key[sample.key] = [sample]
            else:
                by_key[sample.key] = _NOT_KEPT
        total += len(by_key)
        for key, held in by_key.items():
            if held is not _NOT_KEPT:
                fields = fields_of(reader, group, held[0])[0]
                found.append(
                    DescribedInstance(one.number, group, key, tuple(sorted(held)), key_fields(group, fields))
                )
    return found, total


class _Uncounted(list["Sample"]):
    def append(self, _: Sample) -> None:
        """Drop a sample: nothing is kept of an instance beyond the limit."""


_NOT_KEPT = _Uncounted()


def key_fields(group: GroupFacts, fields: dict[str, Value] | None) -> dict[str, Value] | None:
    """Return the key fields of a sample; None if they are unknown or there are none."""
    names = _key_names(group)
    if fields is None or not names:
        return None
    return {name: fields[name] for name in names if name in fields}


def _key_names(group: GroupFacts) -> tuple[str, ...]:
    if group.description is None:
        return tuple(dict.fromkeys(path[0] for path in key_paths(group.key_list)))
    try:
        from engine.dds.decoding import key_names  # it loads Cyclone DDS

        return key_names(group.description.type)
    # The names are for people; the samples are shown without them.
    except (Undecodable, ModuleNotFoundError):
        return ()


def fields_of(reader: StoreReader, group: GroupFacts, sample: Sample) -> tuple[dict[str, Value] | None, str]:
    """Return the fields of a sample, or why there are none."""
    try:
        fields = reader.decode(group, sample)
    # Shown in the place of the fields: one bad sample must not end a listing.
    except Undecodable as error:
        return None, str(error)
    except ModuleNotFoundError as error:
        return None, f"its fields need {error.name}: `{extra_command('dds')}`"
    return fields, "" if fields is not None else "its type is not known"


@dataclasses.dataclass(frozen=True, slots=True)
class DescribedSample:
    """A sample with its set, group and fields."""

    set_facts: SetFacts
    group: GroupFacts
    sample: Sample
    fields: dict[str, Value] | None
    problem: str


def show(
    reader: StoreReader, choice: SampleSelection, limit: int, damage: DamageLog
) -> list[DescribedSample]:
    """Return the first `limit` selected samples.

    Raises:
        StoreUnreadable: there is no such set, or no sample is selected.
    """
    found: list[DescribedSample] = []
    for one, group, samples in matching(reader, choice, damage):
        wanted = itertools.islice(samples, limit - len(found))
        found += [DescribedSample(one, group, sample, *fields_of(reader, group, sample)) for sample in wanted]
        for _ in samples:
            pass  # the reader yields the next group only then
    if not found:
        raise StoreUnreadable(f"{reader.facts.path}: no sample is meant")
    return found


def hex_dump(data: bytes) -> Iterator[str]:
    """Return lines of 16 bytes: offset, hexadecimal, and printable ASCII."""
    for start in range(0, len(data), 16):
        piece = data[start : start + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in piece)
        yield f"{start:08x}  {piece[:8].hex(' '):<23}  {piece[8:].hex(' '):<23}  {text}"
