"""Selection of the samples of one instance that are kept.

The kept samples are a function of the *set* of samples that ever arrived, not of their order of arrival, so
that capture, alignment, merge and restart reach the same result. With history depth n (0 keeps all):

- of the writes, the n newest;
- no dispose or unregister older than the oldest write at full depth, because no reader sees it any more;
- of the disposes, the n newest; of the unregisters, the newest of each writer.

Keeping is therefore a join: commutative, associative and idempotent.
"""

from __future__ import annotations

import bisect

from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, Sample


def retained(samples: list[Sample], depth: int) -> list[Sample]:
    """Return the samples to keep of `samples`, which are in order and without repetitions."""
    writes = [sample for sample in samples if sample.status & DATA]
    if depth and len(writes) >= depth:
        oldest = writes[-depth]
        samples = samples[bisect.bisect_left(samples, oldest) :]
    disposes_left = depth or len(samples)
    seen_writers: set[bytes] = set()
    kept: list[Sample] = []
    for sample in reversed(samples):
        keep = bool(sample.status & DATA)
        if sample.status & DISPOSE and not keep and disposes_left:
            disposes_left -= 1
            keep = True
        if sample.status & UNREGISTER and sample.writer not in seen_writers:
            seen_writers.add(sample.writer)
            keep = True
        if keep:
            kept.append(sample)
    kept.reverse()
    return kept
