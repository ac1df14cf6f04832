"""Convert frozen values to plain JSON values and back, checked against their annotations.

Protocol and monitor messages use it. Reading is strict about types and ignores unknown fields, so that a
message of a newer version can be read.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import functools
import json
import operator
import struct
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, Final

Builder = Callable[[Any], Any]
"""Makes a value of one type from its plain form, or raises."""

LARGEST: Final = 1 << 128
"""Digests have 128 bits, and no number has more; one that no float can hold would fail in a division."""


class PlainFault(ValueError):
    """A plain value that does not fit its type."""


_OF_PYTHON: Final = (
    *("dictionary update", "too many values", "not enough values", "could not convert", "invalid literal"),
    *("embedded null", "zip() argument"),
)
"""How texts of `ValueError` begin that Python writes, for programmers."""


def words_of(error: Exception) -> str:
    """Return why something that came from outside could not be read, in words for people.

    Python's own texts say which operation failed, and not what is wrong with the value.
    """
    match error:
        case json.JSONDecodeError():
            return f"not JSON at line {error.lineno}, column {error.colno}"
        case UnicodeDecodeError():
            return f"not UTF-8 at byte {error.start}"
        case UnicodeError():
            return "a text with half of a character"
        case RecursionError():
            return "values within values without end"
        case struct.error():
            return "bytes are missing"
        case KeyError():
            return f"{str(error.args[0])[:80]!r} is missing" if error.args else "something is missing"
        case TypeError() | AttributeError() | LookupError() | OverflowError() | ArithmeticError():
            return "a value of another kind"
    text = str(error) or "it cannot be read"
    if text.startswith("Exceeds the limit"):
        return "a number of too many digits"
    return "a value of another kind" if text.startswith(_OF_PYTHON) else text


_NAMES: Final[dict[Any, str]] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}
"""What the types of JSON are called for people."""


def to_plain(value: Any) -> Any:
    """Convert dataclasses, named tuples, enums, sequences, dicts, bytes and scalars to JSON values."""
    kind: type = type(value)
    return value if kind in _PLAIN else _writer(kind)(value)


_PLAIN: Final = frozenset({str, int, float, bool, type(None)})


@functools.cache
def _writer(kind: type) -> Builder:
    """Return what converts values of a type, which is looked at once."""
    if issubclass(kind, enum.Enum):
        return _VALUE_OF
    if dataclasses.is_dataclass(kind):
        names = tuple(hints(kind))
        return lambda value: {name: to_plain(getattr(value, name)) for name in names}
    if issubclass(kind, dict):
        return lambda value: {key: to_plain(item) for key, item in value.items()}
    if issubclass(kind, bytes):
        return lambda value: base64.b64encode(value).decode()
    if issubclass(kind, Sequence):
        return lambda value: [to_plain(item) for item in value]
    return lambda value: value


_VALUE_OF: Final = operator.attrgetter("value")


def from_plain(wanted: Any, value: Any) -> Any:
    """Return a value of type `wanted` from its plain form.

    Raises:
        PlainFault: a missing field, or a value that does not fit its annotation.
    """
    try:
        return builder(wanted)(value)
    except PlainFault:
        raise
    except Exception as error:  # of any class: anybody may have written it
        kind = "" if typing.get_origin(wanted) else f" {getattr(wanted, '__name__', wanted).lstrip('_')}"
        raise PlainFault(f"does not fit{kind}: {words_of(error)}") from error


def from_json(wanted: Any, text: bytes | str) -> Any:
    """Return a value of type `wanted` from JSON of an untrusted source.

    Raises:
        PlainFault: not JSON, or JSON that does not fit.
    """
    try:
        value = json.loads(text)
    except Exception as error:  # likewise; a damaged database has cells of any type
        raise PlainFault(words_of(error)) from error
    return from_plain(wanted, value)


@functools.cache
def hints(wanted: type) -> dict[str, Any]:
    """Return the annotation of each field of a dataclass."""
    names = [field.name for field in dataclasses.fields(wanted)]
    known = typing.get_type_hints(wanted)
    return {name: known[name] for name in names}


@functools.cache
def _tuple_hints(wanted: type) -> tuple[Any, ...]:
    hints = typing.get_type_hints(wanted)
    return tuple(hints[name] for name in wanted._fields)  # type: ignore[attr-defined]  # a named tuple


@functools.cache
def builder(wanted: Any) -> Builder:
    """Return what makes values of a type: a large message has thousands, and its types are looked at once."""
    if dataclasses.is_dataclass(wanted):
        return _dataclass_builder(typing.cast("type", wanted))
    origin = typing.get_origin(wanted)
    if origin in (types.UnionType, typing.Union):
        return _optional_builder(typing.get_args(wanted))
    if origin is tuple:
        inner, *others = typing.get_args(wanted)
        if others != [...]:
            return lambda value: tuple(_build_each((inner, *others), value, "a tuple"))
        item_of = builder(inner)
        return lambda value: tuple([item_of(item) for item in _listed(value)])
    if origin is dict:
        of_value = builder(typing.get_args(wanted)[1])
        return lambda value: {_build_str(key): of_value(item) for key, item in value.items()}
    return _simple_builder(wanted)


def _dataclass_builder(cls: type) -> Builder:
    @functools.cache
    def fields() -> tuple[
        tuple[str, Builder], ...
    ]:  # not before the first value: types may contain themselves
        return tuple((name, builder(hint)) for name, hint in hints(cls).items())

    return lambda value: cls(**{name: build(value[name]) for name, build in fields() if name in value})


def _optional_builder(choices: tuple[Any, ...]) -> Builder:
    def build(value: Any) -> Any:
        if value is None and type(None) in choices:
            return None
        (inner,) = [choice for choice in choices if choice is not type(None)]
        return builder(inner)(value)

    return build


def _simple_builder(wanted: type) -> Builder:
    if issubclass(wanted, enum.Enum):
        return functools.partial(_member, wanted)
    if issubclass(wanted, tuple):
        return lambda value: wanted(*_build_each(_tuple_hints(wanted), value, wanted.__name__))
    if wanted is bytes:
        return lambda value: base64.b64decode(value, validate=True)
    known: dict[type, Builder] = {str: _build_str, int: _build_int, float: _build_float}
    return known.get(wanted) or functools.partial(_checked, wanted)


def _member(wanted: type[enum.Enum], value: Any) -> enum.Enum:
    try:
        return wanted(value)
    except ValueError:
        raise PlainFault(f"{value!r} is none of {', '.join(str(one.value) for one in wanted)}") from None


def _checked(wanted: type, value: Any) -> Any:
    if type(value) is not wanted:
        raise PlainFault(f"{value!r} is not {_NAMES.get(wanted, wanted.__name__)}")
    return value


def _build_str(value: Any) -> str:
    if type(value) is not str:
        raise PlainFault(f"{value!r} is not {_NAMES[str]}")
    if not value.isascii():
        value.encode()  # half a surrogate pair could not be written anywhere later on: a ValueError
    return value


def _build_int(value: Any) -> int:
    if type(value) is not int:
        raise PlainFault(f"{value!r} is not {_NAMES[int]}")
    if not -LARGEST <= value <= LARGEST:
        raise PlainFault(f"a number of {value.bit_length()} bits")
    return value


def _build_float(value: Any) -> float:
    if type(value) not in (int, float):
        raise PlainFault(f"{value!r} is not {_NAMES[float]}")
    if not -LARGEST <= value <= LARGEST:  # NaN is not, either
        raise PlainFault(f"{value!r} is not a number that is used"[:80])
    return float(value)


def _build_each(hints: tuple[Any, ...], value: Any, what: str) -> list[Any]:
    items = _listed(value)
    if len(items) != len(hints):
        raise PlainFault(f"{what} has {len(hints)} parts, not {len(items)}")
    return [builder(hint)(item) for hint, item in zip(hints, items, strict=True)]


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise PlainFault(f"{value!r} is not a list")
    return value
