"""Writing the samples of a delivery, step by step, to matched readers that may be slow."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

from engine.dataset.living import DeliveryStep
from engine.dataset.sample import UNREGISTER, make_sample
from engine.dds.errors import DdsError, DdsTimeout
from engine.dds.writer import key_payload

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from engine.dds.writer import RawWriter


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


def wait_for_acks(writers: Iterable[RawWriter], period_s: float, deadline: float) -> bool:
    """Wait up to `period_s`, at most until the deadline, for all acknowledgements of all readers."""
    return all(writer.wait_for_acks(min(period_s, deadline - time.monotonic())) for writer in writers)


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
    writers: tuple[RawWriter, ...], steps: Iterable[DeliveryStep], deadline: float, *, frees: bool
) -> tuple[int, str]:
    """Write in order until the end or the deadline; return the number of samples, and the problem.

    Args:
        writers: the writer for instances without a living writer, then the one for the others.
        steps: the samples.
        deadline: monotonic time.
        frees: whether to unregister each instance after its samples.
    """
    sent = 0
    goes, stays, *_ = writers
    for sample, is_written in _freeing(steps) if frees else steps:
        writer = stays if is_written else goes
        while True:
            try:
                writer.put(sample.status, sample.key, sample.payload, sample.source_time_ns)
            except DdsTimeout:
                if time.monotonic() >= deadline:
                    return sent, f"the target was behind for too long after {sent} samples"
            except DdsError as error:
                return sent, f"{error} (sample {sent + 1}, source time {sample.source_time_ns} ns)"
            else:
                sent += not frees or sample.status != UNREGISTER
                break
    return sent, ""
