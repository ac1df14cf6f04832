"""What a delivery offers to the readers of a process, which of them match, and writing to these."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from engine.dataset.groups import KEEP_ALL, meets
from engine.dataset.living import DeliveryStep, WholeSet
from engine.dataset.sample import DATA, UNREGISTER, make_sample
from engine.dds.errors import DdsError, DdsTimeout
from engine.dds.qos import EndpointQos, incompatibilities
from engine.dds.typeinfo import TypeRef
from engine.dds.writer import key_payload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from engine.dataset.groups import GroupQos, TypeDescription
    from engine.dataset.sample import Sample
    from engine.dds.discovery import EndpointSeen
    from engine.dds.writer import RawWriter

LEAST_STRENGTH: Final = -(1 << 31)
"""First OWNERSHIP_STRENGTH of delivering writers, so that every original writer outranks them."""
# Chosen: the cost of a call is spread over enough samples, and an abandonment is noticed after 64 of them.
_AT_ONCE: Final = 64
"""Samples that are looked at, and written with one call, at a time."""


def offer(qos: GroupQos, partition: str, asked: Sequence[EndpointQos]) -> EndpointQos:
    """Return the QoS of the writer that delivers a group to readers that ask for this.

    It offers the policies of the group's QoS unchanged. Deadline, liveliness and presentation, which are not
    in it, promise something about the original writer's future; they mean nothing for history, so the
    delivering writer offers the values that the target's readers request.
    """
    default = EndpointQos()
    return EndpointQos(
        reliable=True,
        blocking_ns=1_000_000_000,
        durability=qos.durability,
        history_depth=KEEP_ALL,
        by_source_timestamp=qos.by_source_timestamp,
        exclusive=qos.exclusive,
        strength=LEAST_STRENGTH,
        autodispose=False,
        batching=True,
        partitions=(partition,) if partition else (),
        representations=qos.representations,
        deadline_ns=min((one.deadline_ns for one in asked), default=default.deadline_ns),
        liveliness=max((one.liveliness for one in asked), default=default.liveliness),
        liveliness_lease_ns=min(
            (one.liveliness_lease_ns for one in asked), default=default.liveliness_lease_ns
        ),
        presentation=max((one.presentation for one in asked), default=default.presentation),
        coherent=any(one.coherent for one in asked),
        ordered=any(one.ordered for one in asked),
    )


def sort_out(
    offered: EndpointQos, description: TypeDescription, readers: list[EndpointSeen]
) -> tuple[set[bytes], dict[bytes, str], tuple[str, ...]]:
    """Return the readers that will match, those that may, and for each of the others a text with the reason.

    Where one side announces no type information, as a delivery does of a type without key, the names of the
    types decide. A reader of another version
    of the type may match, which its process finds out (XTypes 1.3, 7.2.4); its text is for when it does not.
    """
    type_ = TypeRef.of_description(description) if description.keyed else None
    willing: set[bytes] = set()
    versions: dict[bytes, str] = {}
    refused: list[str] = []
    for reader in readers:
        policies = incompatibilities(offered, reader.endpoint_qos)
        is_named = reader.type is None or not description.keyed
        has_name = reader.type_name == description.name
        other = f"TYPE_CONSISTENCY: another type, '{reader.type_name}'"
        if policies or not (has_name or (not is_named and reader.type == type_)):
            policies += () if has_name else (other,)
            refused.append(f"reader {reader.guid.hex()}: {', '.join(policies)}")
        elif is_named or reader.type == type_:
            willing.add(reader.guid)
        else:
            versions[reader.guid] = f"reader {reader.guid.hex()}: {other}"
    return willing, versions, tuple(refused)


def match_versions(writers: Iterable[RawWriter], versions: dict[bytes, str], timeout_s: float) -> set[bytes]:
    """Wait for readers of another version of the type; return those that do not match.

    `versions` are the readers by their GUIDs.
    """
    deadline, missing = time.monotonic() + timeout_s, set[bytes]()
    for writer in writers if versions else ():
        writer.wait_for_readers({*versions}, max(0.0, deadline - time.monotonic()))
        missing |= versions.keys() - writer.matched_guids()
    return missing


def partition_matches(patterns: tuple[str, ...], partition: str) -> bool:
    """Tell whether a reader's partitions include the group's; none and an empty name mean the default one."""
    return any(meets(pattern, partition) for pattern in patterns or ("",))


def match(writers: Iterable[RawWriter], willing: set[bytes], timeout_s: float) -> str:
    """Wait until the readers match all writers; return the problem, or nothing.

    `willing` are the GUIDs of the readers to wait for.
    """
    deadline = time.monotonic() + timeout_s
    for writer in writers:
        if not writer.wait_for_readers(willing, deadline - time.monotonic()):
            return _unmatched(writer, willing)
    return ""


def _unmatched(writer: RawWriter, expected: set[bytes]) -> str:
    missing = ", ".join(sorted(guid.hex() for guid in expected - writer.matched_guids()))
    count, policy = writer.incompatible_policy()
    reason = f"; Cyclone DDS refused {count} for policy {policy}" if count else ""
    return f"no match in time with reader {missing}{reason}"


class AwaitedAcks:
    """The acknowledgements of all readers of some writers.

    Args:
        writers: the writers.
        period_s: time after which a missing acknowledgement counts as a rejection.
        deadline: monotonic time of giving up.
        on_rejected: called with the number of rejections, after each.

    Attributes:
        resent: number of rejections.
    """

    def __init__(
        self,
        writers: Sequence[RawWriter],
        period_s: float,
        deadline: float,
        on_rejected: Callable[[int], None] | None,
    ) -> None:
        self._writers = writers
        self._period_s = period_s
        self._deadline = deadline
        self._on_rejected = on_rejected
        self.resent = 0

    def wait(self) -> bool:
        """Wait until everything is acknowledged; return False if the deadline is earlier."""
        while not self._are_there():
            if time.monotonic() >= self._deadline:
                return False
            self.resent += 1
            if self._on_rejected is not None:
                self._on_rejected(self.resent)
        return True

    def _are_there(self) -> bool:
        left_s = self._deadline - time.monotonic()
        return all(writer.wait_for_acks(min(self._period_s, left_s)) for writer in self._writers)


def _freeing(steps: Iterable[DeliveryStep]) -> Iterator[DeliveryStep]:
    """Unregister each instance after its samples, so that a reader that has taken them can forget it."""
    for key, history in itertools.groupby(steps, lambda step: step.sample.key):
        last = None
        for last in history:
            yield last
        if last is not None and not last.sample.status & UNREGISTER:
            time_ns, writer = last.sample.source_time_ns, last.sample.writer
            yield DeliveryStep(
                make_sample(time_ns, writer, UNREGISTER, key, key_payload(key)), last.is_written
            )


def write_all(
    writers: tuple[RawWriter, ...],
    steps: Iterable[DeliveryStep],
    deadline: float,
    is_gone: Callable[[], bool],
    *,
    frees: bool,
) -> tuple[int, int, str]:
    """Write and send in order until the end or the deadline.

    It returns the number of samples, how many of these are of instances without a living writer, and the
    problem.

    Args:
        writers: the writer for instances without a living writer, then the one for the others.
        steps: the samples.
        deadline: monotonic time.
        is_gone: tells whether the target is gone; then the rest is not written.
        frees: whether to unregister each instance after its samples.
    """
    counts = [0, 0]
    for burst in _bursts(steps, frees=frees):
        done, problem = 0, ""
        while done < len(burst.times_ns) and not problem:
            sent = sum(counts) + done
            if is_gone():
                problem = f"the target is gone after {sent} samples"
                break
            try:
                done += burst.write(writers[burst.is_written], done)
            except DdsTimeout:
                if time.monotonic() >= deadline:
                    problem = f"the target was behind for too long after {sent} samples"
            except DdsError as error:
                problem = f"{error} (sample {sent + 1}, source time {burst.times_ns[done]} ns)"
        counts[burst.is_written] += done if problem else burst.samples
        if problem:
            return sum(counts), counts[False], problem
    for writer in writers:
        writer.flush()
    return sum(counts), counts[False], ""


class _Burst(NamedTuple):
    """Plain writes for one writer."""

    payloads: Sequence[bytes]
    times_ns: Sequence[int]
    is_written: bool

    @property
    def samples(self) -> int:
        return len(self.payloads)

    def write(self, writer: RawWriter, done: int) -> int:
        """Write the next ones, as many as possible; return how many."""
        return writer.write_many(self.payloads[done:], self.times_ns[done:])


class _Single(NamedTuple):
    """A sample that is no plain write."""

    sample: Sample
    is_written: bool
    samples: int
    """0 if it only frees an instance."""

    @property
    def times_ns(self) -> Sequence[int]:
        return (self.sample.source_time_ns,)

    def write(self, writer: RawWriter, _: int) -> int:
        sample = self.sample
        writer.put(sample.status, sample.key, sample.payload, sample.source_time_ns)
        return 1


def _bursts(steps: Iterable[DeliveryStep], *, frees: bool) -> Iterator[_Burst | _Single]:
    """Yield what is written with one call each."""
    if isinstance(steps, WholeSet) and not frees:
        runs, steps = steps.in_runs()
        for payloads, times_ns, is_written in runs:
            for begin in range(0, len(payloads), _AT_ONCE):
                part = slice(begin, begin + _AT_ONCE)
                yield _Burst(payloads[part], times_ns[part], is_written)
    yield from _gathered(_freeing(steps) if frees else steps, frees=frees)


def _gathered(steps: Iterable[DeliveryStep], *, frees: bool) -> Iterator[_Burst | _Single]:
    left = iter(steps)
    while some := list(itertools.islice(left, _AT_ONCE)):
        for (is_written, is_plain), run in itertools.groupby(some, _manner):
            samples = [step.sample for step in run]
            if is_plain:
                payloads = [sample.payload for sample in samples]
                yield _Burst(payloads, [sample.source_time_ns for sample in samples], is_written)
            else:
                for sample in samples:
                    is_freeing = frees and sample.status == UNREGISTER
                    yield _Single(sample, is_written, 0 if is_freeing else 1)


def _manner(step: DeliveryStep) -> tuple[bool, bool]:
    """Tell which writer a step is for, and whether it is a plain write."""
    return step.is_written, step.sample.status == DATA
