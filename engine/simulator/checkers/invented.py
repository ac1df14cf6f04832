"""I0: sets contain only samples that applications wrote, unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.simulator.checkers.base import Checker, samples_of

if TYPE_CHECKING:
    from engine.dataset.captured import CapturedSample
    from engine.dataset.groups import GroupDescription
    from engine.simulator.system import SimulatedSystem


class Invented(Checker):
    """Compares every sample of every set with the written ones."""

    invariant = "I0"
    meaning = "every sample is one that an application wrote, unchanged"

    def __init__(self, cluster: SimulatedSystem) -> None:
        super().__init__(cluster)
        self._written: set[tuple[object, ...]] = set()

    def written(self, description: GroupDescription, record: CapturedSample) -> None:
        """Remember a sample that an application wrote."""
        self._written.add((description.group, *record))

    def looked(self) -> None:
        """Check all sets."""
        for node in self.cluster.up():
            assert node.runtime is not None
            for name, data in node.runtime.spaces.items():
                for group, sample in samples_of(data.working):
                    time_ns, writer, _, _, status, key, payload = sample
                    if (group, time_ns, writer, status, key, payload) not in self._written:
                        self.fail(f"{node.name} has in {name} {group} what nobody wrote: {sample}")
