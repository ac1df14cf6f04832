"""The type of what the writers write. The checker knows its layout by itself.

Annotations are real here: cyclonedds reads them, so there is no `from __future__ import annotations`.
"""

# The base class comes without types.
# mypy: disable-error-code="misc,call-arg"

from dataclasses import dataclass

from cyclonedds.idl import IdlStruct
from cyclonedds.idl.annotations import final, key
from cyclonedds.idl.types import int32


@dataclass
@final
class Entry(IdlStruct, typename="chaos.Entry"):
    """One entry; `value` is the number of the write, unique within its topic and writer."""

    station: int32
    key("station")
    value: int32
    text: str


def text_of(topic: str, station: int, value: int, size: int) -> str:
    """The text that belongs to an entry: a change of any of it shows."""
    begin = f"{topic} {station} {value} "
    return begin + "x" * (size - len(begin))
