"""The types of the applications: those of the capture tests, and one with a value to change.

No postponed annotations here: the wheel cannot resolve them as text.
"""

# The base classes come without types.
# mypy: disable-error-code="misc,call-arg,valid-type"

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cyclonedds.idl import IdlStruct
from cyclonedds.idl import annotations as annotate
from cyclonedds.idl import types as idl

from tests.integration.dds import sample_types


@dataclass
class Reading(IdlStruct, typename="depot.Reading"):
    number: idl.int32
    annotate.key("number")
    value: idl.int64
    text: str


@dataclass
class Keyless(IdlStruct, typename="bare.Keyless"):
    """The keyless type of `tests.integration.untyped`, for applications that announce it."""

    number: idl.uint32


@dataclass
class Keyed(IdlStruct, typename="bare.Keyed"):
    """The keyed type of `tests.integration.untyped`, for applications that announce it."""

    number: idl.uint32
    annotate.key("number")


@dataclass
class ByUnion(IdlStruct, typename="depot.ByUnion"):
    """Its endpoints are of the kind with a key, but Cyclone DDS finds none: it has one instance."""

    choice: sample_types.Value
    annotate.key("choice")
    number: idl.int32


TYPES: dict[str, type] = {
    **sample_types.TYPES,
    **{one.__name__: one for one in (Reading, Keyless, Keyed, ByUnion)},
}
SAMPLES: dict[type, Callable[[int], Any]] = {
    ByUnion: lambda n: ByUnion(sample_types.Value(number=n), n),
    Keyless: Keyless,
    Keyed: Keyed,
    **sample_types.SAMPLES,
    Reading: lambda n: Reading(n, 0, f"reading {n}"),
}
