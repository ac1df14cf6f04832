"""Decodes serialized samples for the application."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from engine.dataset.instance import EntryKind, Origin
from engine.dataset.sample import DATA, DISPOSE, NO_WRITER, UNREGISTER, make_sample
from ospltool.client.samples import ReceivedSample

if TYPE_CHECKING:
    from engine.dataset.groups import TypeDescription
    from engine.dataset.sample import Sample
    from ospltool.client.cache import CacheEntry
    from ospltool.client.content import ContentFilter

Data = TypeVar("Data")

_STATUS_OF: Final = {EntryKind.DISPOSED: DISPOSE, EntryKind.NO_WRITERS: UNREGISTER, EntryKind.SAMPLE: DATA}


class SampleDecoder(Generic[Data]):
    """A decoder of the samples of one reader.

    Args:
        type_: the application's type, a class of `cyclonedds.idl`.
        description: description of that type.
    """

    def __init__(self, type_: type[Data], description: TypeDescription) -> None:
        self._type = type_
        self._description = description

    def received(self, look: CacheEntry) -> ReceivedSample[Data]:
        """Return an entry for the application; `problem` explains an entry of another type."""
        entry = look.entry
        sample, data, problem = entry.sample, None, ""
        if sample is not None and entry.kind is EntryKind.SAMPLE:
            try:
                data = self._decode(sample.payload)
            except Exception as error:  # cyclonedds may raise anything for bytes of another type
                problem = f"not a sample of '{self._description.name}': {error!r}"
        status = _STATUS_OF[entry.kind] if sample is None else sample.status
        return ReceivedSample(
            data=data,
            key=look.key,
            source_time_ns=entry.time_ns,
            writer=NO_WRITER if sample is None else sample.writer,
            is_dispose=bool(status & DISPOSE),
            is_unregister=bool(status & UNREGISTER),
            is_derived=entry.origin is Origin.DERIVED,
            is_again=entry.origin is Origin.AGAIN,
            instance_state=look.state,
            view_state=look.view,
            is_read=entry.is_read,
            disposed_generation_count=entry.disposed_generations,
            no_writers_generation_count=entry.no_writers_generations,
            sample_rank=look.sample_rank,
            generation_rank=look.generation_rank,
            absolute_generation_rank=look.absolute_generation_rank,
            is_historical=entry.origin in (Origin.STORED, Origin.AGAIN),
            cdr=b"" if sample is None else sample.payload,
            problem=problem,
        )

    def is_accepted(self, sample: Sample, condition: ContentFilter | None) -> bool:
        """Return whether a sample meets the application's condition."""
        if condition is None or not sample.status & DATA:
            return True
        try:
            return condition.accepts(self._decode(sample.payload))
        except Exception:  # cyclonedds may raise anything; `received` reports the sample
            return True

    def with_key(self, sample: Sample) -> Sample:
        """Return a sample of another product, which comes without its key, with the key from its data."""
        if not self._description.keyed or not sample.payload[4:]:
            return sample
        decoded: Any = self._decode(sample.payload)
        key = decoded.serialize_key(use_version_2=True)[4:]
        return make_sample(
            sample.source_time_ns, sample.writer, sample.status, key, sample.payload, sample.sequence
        )

    def _decode(self, payload: bytes) -> Data:
        decoded: Data = self._type.deserialize(payload)  # type: ignore[attr-defined]  # every IDL class has it
        return decoded
