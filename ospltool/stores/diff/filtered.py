"""A store without the parts that a comparison ignores."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator

from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, Sample, make_sample
from engine.store.interface import DamageLog
from ospltool.stores.model import GroupFacts, StoreFacts, StoreReader
from ospltool.stores.types import Value

_NOBODY = bytes(16)


class ComparedPart(enum.Enum):
    """The part of the samples to compare."""

    ALL = "all"
    WITHOUT_UNREGISTERED = "unregistered"
    """Ignore samples that only unregister an instance: not every format keeps them."""
    DATA = "data"
    """Compare only time, key and content of writes and disposes, without writer and order."""


class Filtered:
    """A reader of a store that leaves samples out; see `ospltool.stores.model.StoreReader`."""

    def __init__(self, reader: StoreReader, left: ComparedPart) -> None:
        self._reader = reader
        self._left = left

    @property
    def facts(self) -> StoreFacts:
        """The facts of the store."""
        return self._reader.facts

    def read(self, number: int, damage: DamageLog) -> Iterator[tuple[GroupFacts, Iterator[Sample]]]:
        """Yield the samples of a set that are compared."""
        for group, samples in self._reader.read(number, damage):
            shown = dataclasses.replace(group, stored=None)
            yield shown, (one for sample in samples if (one := self._compared(sample)) is not None)

    def _compared(self, sample: Sample) -> Sample | None:
        if not sample.status & (DATA | DISPOSE):
            return None
        if self._left is not ComparedPart.DATA:
            return sample
        status = sample.status & ~UNREGISTER
        return make_sample(sample.source_time_ns, _NOBODY, status, sample.key, sample.payload)

    def decode(self, group: GroupFacts, sample: Sample) -> dict[str, Value] | None:
        """Return the fields of a sample."""
        return self._reader.decode(group, sample)

    def close(self) -> None:
        """Close the store."""
        self._reader.close()
