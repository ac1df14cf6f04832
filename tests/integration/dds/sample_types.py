"""Types of applications, one for each way in which a type can be odd, and samples of them.

No postponed annotations here: the wheel cannot resolve them as text.
"""

# The base classes come without types.
# mypy: disable-error-code="misc,call-arg,valid-type,name-defined"

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional

from cyclonedds.idl import IdlBitmask, IdlEnum, IdlStruct, IdlUnion
from cyclonedds.idl import annotations as annotate
from cyclonedds.idl import types as idl


class Colour(IdlEnum, typename="shop.Colour"):
    RED = 0
    GREEN = 1


@dataclass
class Flags(IdlBitmask, typename="shop.Flags"):
    fragile: bool = False
    heavy: bool = False


class Value(IdlUnion, discriminator=idl.int32, typename="shop.Value"):
    number: idl.case[1, idl.int32]
    text: idl.case[2, str]
    other: idl.default[idl.float64]


@dataclass
class Place(IdlStruct, typename="shop.Place"):
    row: idl.int32
    annotate.key("row")
    label: str


@dataclass
@annotate.final
class Plain(IdlStruct, typename="shop.Plain"):
    number: idl.int32
    annotate.key("number")
    amount: idl.float64


@dataclass
@annotate.appendable
class Growing(IdlStruct, typename="shop.Growing"):
    name: str
    annotate.key("name")
    place: Place
    places: idl.sequence[Place]
    steps: idl.array[idl.int16, 4]
    short: idl.bounded_str[20]


@dataclass
@annotate.mutable
class Loose(IdlStruct, typename="shop.Loose"):
    first: idl.uint64
    annotate.key("first")
    second: idl.uint8
    annotate.key("second")
    maybe: Optional[idl.int32]  # noqa: UP045 - the wheel knows this spelling only
    texts: idl.sequence[str]


@dataclass
class Keyless(IdlStruct, typename="shop.Keyless"):
    text: str


@dataclass
class Inside(IdlStruct, typename="shop.Inside"):
    place: Place
    annotate.key("place")
    data: idl.sequence[idl.float64]


@dataclass
@annotate.final
class Perhaps(IdlStruct, typename="shop.Perhaps"):
    number: idl.int32
    annotate.key("number")
    place: Optional[Place]  # noqa: UP045 - cyclonedds knows no other spelling
    colour: Colour


@dataclass
class Flagged(IdlStruct, typename="shop.Flagged"):
    number: idl.int32
    annotate.key("number")
    flags: Flags


@dataclass
@annotate.final
class Narrow(IdlStruct, typename="shop.Narrow"):
    """Its key is aligned differently in XCDR1 and XCDR2."""

    small: idl.int32
    annotate.key("small")
    big: idl.int64
    annotate.key("big")


@dataclass
@annotate.appendable
class ByColour(IdlStruct, typename="shop.ByColour"):
    colour: Colour
    annotate.key("colour")
    value: Value


@dataclass
class Choice(IdlStruct, typename="shop.Choice"):
    text: str
    annotate.key("text")
    value: Value


@dataclass
class Grid(IdlStruct, typename="shop.Grid"):
    number: idl.uint16
    annotate.key("number")
    rows: idl.sequence[idl.sequence[idl.int32]]


@dataclass
@annotate.appendable
class Bytes(IdlStruct, typename="shop.Bytes"):
    number: idl.int64
    annotate.key("number")
    data: idl.sequence[idl.uint8]


@dataclass
@annotate.mutable
class LooseInside(IdlStruct, typename="shop.LooseInside"):
    place: Place
    annotate.key("place")
    colour: Colour


def _value(number: int) -> Value:
    return (Value(number=number), Value(text="x" * number), Value(other=0.5))[number % 3]


SAMPLES: dict[type, Callable[[int], Any]] = {
    Plain: lambda n: Plain(n, 1.5),
    Growing: lambda n: Growing(f"n{n}", Place(n, "in"), [Place(2, "x")] * n, [1, 2, 3, n], "bounded"),
    Loose: lambda n: Loose(n, 3, None if n % 2 else 7, ["a", "bc"]),
    Keyless: lambda n: Keyless("text" * n),
    Inside: lambda n: Inside(Place(n, "zz"), [1.0, 2.0]),
    Perhaps: lambda n: Perhaps(n, None if n % 2 else Place(4, "q"), Colour.GREEN),
    Flagged: lambda n: Flagged(n, Flags(heavy=bool(n % 2))),
    Narrow: lambda n: Narrow(n, -n),
    ByColour: lambda n: ByColour((Colour.RED, Colour.GREEN)[n % 2], _value(n)),
    Choice: lambda n: Choice("key" * (n + 5), _value(n)),
    Grid: lambda n: Grid(n, [[n, 2], []]),
    Bytes: lambda n: Bytes(n, list(range(n))),
    LooseInside: lambda n: LooseInside(Place(n, "m"), Colour.RED),
}

# Another type under the name of a topic that exists.


@dataclass
class OtherPlain(IdlStruct, typename="shop.Plain"):
    number: idl.int32
    annotate.key("number")
    remark: str


TYPES: dict[str, type] = {one.__name__: one for one in (*SAMPLES, OtherPlain)}
SAMPLES[OtherPlain] = lambda n: OtherPlain(n, "remark")


def sample_of(number: int, content: bytes) -> bytes:
    """A sample of `Bytes` in XCDR2, appendable: with its length before it."""
    inner = number.to_bytes(8, "little") + len(content).to_bytes(4, "little") + content
    padding = -len(inner) % 4
    header = b"\0\x09\0" + bytes([padding])
    return header + len(inner).to_bytes(4, "little") + inner + bytes(padding)
