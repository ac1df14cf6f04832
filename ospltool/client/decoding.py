"""From serialized samples to what the application gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, make_sample
from ospltool.client.samples import InstanceState, ReceivedSample

if TYPE_CHECKING:
    from engine.dataset.groups import TypeDescription
    from engine.dataset.sample import Sample
    from ospltool.client.cache import Waiting
    from ospltool.client.content import ContentFilter

Data = TypeVar("Data")


class Decoder(Generic[Data]):
    """Decodes the samples of one reader.

    Args:
        type_: the application's type, a class of `cyclonedds.idl`.
        description: of the same type.
    """

    def __init__(self, type_: type[Data], description: TypeDescription) -> None:
        self._type = type_
        self._description = description

    def received(self, item: Waiting, state: InstanceState) -> ReceivedSample[Data]:
        """What the application gets of a sample; `problem` says so if it is not of the reader's type."""
        sample, data, problem = item.sample, None, ""
        if sample.status & DATA:
            try:
                data = self._decode(sample.payload)
            except Exception as error:  # the wheel raises what it likes for bytes of another type
                problem = f"not a sample of '{self._description.name}': {error!r}"
        return ReceivedSample(
            data=data,
            key=sample.key,
            source_time_ns=sample.source_time_ns,
            writer=sample.writer,
            is_dispose=bool(sample.status & DISPOSE),
            is_unregister=bool(sample.status & UNREGISTER),
            instance_state=state,
            is_historical=item.is_historical,
            cdr=sample.payload,
            problem=problem,
        )

    def is_accepted(self, sample: Sample, condition: ContentFilter | None) -> bool:
        """Whether a sample is what the application asked for."""
        if condition is None or not sample.status & DATA:
            return True
        try:
            return condition.accepts(self._decode(sample.payload))
        except Exception:  # the wheel raises what it likes; `received` tells of the sample
            return True

    def with_key(self, sample: Sample) -> Sample:
        """A sample of another product comes without its key, but with all its data."""
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
