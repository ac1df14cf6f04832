"""Groups and samples for the tests of stores."""

from __future__ import annotations

from engine.core.name_spaces import Group
from engine.dataset.groups import DurabilityKind, GroupDescription, GroupQos, TypeDescription
from engine.dataset.sample import DATA, Sample, make_sample

BASE_NS = 1_700_000_000_000_000_000


def description(number: int = 0, depth: int = 1, type_name: str = "Type") -> GroupDescription:
    """A group with a type and a QoS."""
    type_ = TypeDescription(type_name, f"information {type_name}".encode(), b"mapping" * 20, keyed=True)
    qos = GroupQos(DurabilityKind.PERSISTENT, history_depth=depth)
    return GroupDescription(Group(f"part{number}", "Topic", type_.type_id), type_, qos)


def sample(number: int, *, payload_bytes: int = 8, status: int = DATA) -> Sample:
    """A sample that is the same for the same number."""
    payload = number.to_bytes(8) + bytes(max(0, payload_bytes - 8))
    return make_sample(
        BASE_NS + number * 1000, bytes(16), status, (number % 7).to_bytes(4), payload, sequence=number
    )


def samples(start: int, end: int, payload_bytes: int = 8) -> list[Sample]:
    """The samples of a range of numbers."""
    return [sample(number, payload_bytes=payload_bytes) for number in range(start, end)]
