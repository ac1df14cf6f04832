"""The child of the kill test: writes a known sequence of states and says after each that it is on disk."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from engine.dataset.sample import Sample
from engine.node.disk import open_store
from engine.store.interface import GroupChange, Store
from tests.unit.store.making import description, samples

SPACE = "space"
STEPS_PER_SET = 8
SET_SAMPLES = 400
STEP_SAMPLES = 30


def base_of(step: int) -> int:
    """The number of the first sample of the set that a step belongs to."""
    return step // STEPS_PER_SET * 100_000


def content_after(step: int) -> set[Sample]:
    """What the complete set holds once a step is done; step 0 fills the first set."""
    base, appended = base_of(step), step % STEPS_PER_SET
    gone = appended * STEP_SAMPLES
    return set(samples(base + gone, base + SET_SAMPLES + gone))


def do(store: Store, step: int) -> None:
    """Fill a set anew, or append to it: as many samples come as go."""
    base, appended = base_of(step), step % STEPS_PER_SET
    if appended == 0:
        writer = store.begin_set(SPACE)
        for start in range(base, base + SET_SAMPLES, 100):
            writer.add(description(), samples(start, start + 100))
        store.commit_complete(writer, mark=str(step))
        return
    first = base + (appended - 1) * STEP_SAMPLES
    come = samples(first + SET_SAMPLES, first + SET_SAMPLES + STEP_SAMPLES)
    go = samples(first, first + STEP_SAMPLES)
    store.append(SPACE, [GroupChange(description(), new, [old]) for new, old in zip(come, go, strict=True)])


def main() -> None:
    """Go on from the step given, for ever."""
    store = open_store(Path(sys.argv[1]), "child")
    step = int(sys.argv[2])
    while True:
        do(store, step)
        os.write(1, f"{step}\n".encode())
        step += 1


if __name__ == "__main__":
    main()
