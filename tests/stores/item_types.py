"""The type of the samples in made-up stores, as an application of Cyclone DDS has it.

No postponed annotations here: the wheel cannot resolve them as text.
"""

# The base classes come without types.
# mypy: disable-error-code="misc,call-arg,valid-type"

from dataclasses import dataclass

from cyclonedds.idl import IdlStruct
from cyclonedds.idl import annotations as annotate
from cyclonedds.idl import types as idl


@annotate.final
@dataclass
class Item(IdlStruct, typename="depot.Item"):
    flag: idl.uint8
    id: idl.int32
    annotate.key("id")
    value: float
    text: str
