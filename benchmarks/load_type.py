"""The type of the load: a key and bytes.

Annotations are real here: cyclonedds reads them, so there is no `from __future__ import annotations`.
"""

# The base class comes without types.
# mypy: disable-error-code="misc,call-arg"

from dataclasses import dataclass

from cyclonedds.idl import IdlStruct
from cyclonedds.idl.annotations import final, key
from cyclonedds.idl.types import int32, sequence, uint8


@dataclass
@final
class Load(IdlStruct, typename="bench.Load"):
    """One sample of the load."""

    number: int32
    key("number")
    data: sequence[uint8]
