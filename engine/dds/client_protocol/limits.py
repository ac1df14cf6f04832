"""Limits of a request for history; they select the newest samples (deployment guide, 5.4.7)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from engine.dds.client_protocol.messages import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.dataset.sample import Sample

_FIRST_NS: Final = -(1 << 63)
_LAST_NS: Final = (1 << 63) - 1


@dataclasses.dataclass(frozen=True, slots=True)
class HistoryLimits:
    """Bounds of source times, both included, and maximum counts; -1 for no limit."""

    start_ns: int = _FIRST_NS
    end_ns: int = _LAST_NS
    max_samples: int = UNLIMITED
    max_instances: int = UNLIMITED
    max_samples_per_instance: int = UNLIMITED

    def select(self, samples: Iterable[Sample]) -> list[Sample]:
        """Return the selected samples, instance by instance, each oldest first.

        It applies the time range, then selects the newest samples of each instance, then the instances with
        the newest samples, then the newest samples of all. The order of `Sample` decides among equal times.
        """
        instances: dict[bytes, list[Sample]] = {}
        for sample in samples:
            if self.start_ns <= sample.source_time_ns <= self.end_ns:
                instances.setdefault(sample.key, []).append(sample)
        for history in instances.values():
            history.sort()
            if self.max_samples_per_instance != UNLIMITED:
                del history[: max(0, len(history) - self.max_samples_per_instance)]
        chosen = [history for history in instances.values() if history]
        if self.max_instances != UNLIMITED:
            newest = sorted(chosen, key=lambda history: history[-1], reverse=True)[: self.max_instances]
            kept = {history[-1].key for history in newest}
            chosen = [history for history in chosen if history[-1].key in kept]
        selected = [sample for history in chosen for sample in history]
        if self.max_samples != UNLIMITED and len(selected) > self.max_samples:
            newest_of_all = {id(s) for s in sorted(selected, reverse=True)[: self.max_samples]}
            selected = [sample for sample in selected if id(sample) in newest_of_all]
        return selected
