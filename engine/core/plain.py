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
import math
import types
import typing
from typing import Any, Final

LARGEST: Final = 1 << 128
"""Digests have 128 bits, and no number has more; one that no float can hold would fail in a division."""


class PlainFault(ValueError):
    """A plain value that does not fit its type."""


def to_plain(value: Any) -> Any:
    """Convert dataclasses, named tuples, enums, tuples, dicts, bytes and scalars to JSON values."""
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value):
        cls: type = type(value)
        return {name: to_plain(getattr(value, name)) for name in _hints(cls)}
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value


def from_plain(wanted: Any, value: Any) -> Any:
    """Return a value of type `wanted` from its plain form.

    Raises:
        PlainFault: a missing field, or a value that does not fit its annotation.
    """
    try:
        return _build(wanted, value)
    except PlainFault:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
        raise PlainFault(f"does not fit {getattr(wanted, '__name__', wanted)}: {error!r}") from error


def from_json(wanted: Any, text: bytes | str) -> Any:
    """Return a value of type `wanted` from JSON of an untrusted source.

    Raises:
        PlainFault: not JSON, or JSON that does not fit.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError, TypeError) as error:  # a damaged database has cells of any type
        raise PlainFault(f"not JSON: {error!r}") from error
    return from_plain(wanted, value)


@functools.cache
def _hints(wanted: type) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(wanted)]
    hints = typing.get_type_hints(wanted)
    return {name: hints[name] for name in names}


@functools.cache
def _tuple_hints(wanted: type) -> tuple[Any, ...]:
    hints = typing.get_type_hints(wanted)
    return tuple(hints[name] for name in wanted._fields)  # type: ignore[attr-defined]  # a named tuple


def _build(wanted: Any, value: Any) -> Any:
    if dataclasses.is_dataclass(wanted):
        cls = typing.cast("type", wanted)
        return cls(**{k: _build(hint, value[k]) for k, hint in _hints(cls).items() if k in value})
    origin = typing.get_origin(wanted)
    if origin in (types.UnionType, typing.Union):
        return _build_optional(typing.get_args(wanted), value)
    if origin is tuple:
        inner, *others = typing.get_args(wanted)
        if others != [...]:
            return tuple(_build_each((inner, *others), value, "a tuple"))
        return tuple([_build(inner, item) for item in _listed(value)])
    if origin is dict:
        inner = typing.get_args(wanted)[1]
        return {_build_simple(str, key): _build(inner, item) for key, item in value.items()}
    return _build_simple(wanted, value)


def _build_simple(wanted: type, value: Any) -> Any:
    if issubclass(wanted, enum.Enum):
        return wanted(value)
    if issubclass(wanted, tuple):
        return wanted(*_build_each(_tuple_hints(wanted), value, wanted.__name__))
    if wanted is bytes:
        return base64.b64decode(value, validate=True)
    if wanted is float and type(value) is int:
        return float(value)
    if wanted is float and type(value) is float and not math.isfinite(value):
        raise PlainFault(f"{value} is not a number")
    if type(value) is not wanted:
        raise PlainFault(f"{value!r} is not {wanted.__name__}")
    if type(value) is int and abs(value) > LARGEST:
        raise PlainFault(f"a number of {value.bit_length()} bits")
    if isinstance(value, str) and not value.isascii():
        value.encode()  # half a surrogate pair could not be written anywhere later on: a ValueError
    return value


def _build_each(hints: tuple[Any, ...], value: Any, what: str) -> list[Any]:
    items = _listed(value)
    if len(items) != len(hints):
        raise PlainFault(f"{what} has {len(hints)} parts, not {len(items)}")
    return [_build(hint, item) for hint, item in zip(hints, items, strict=True)]


def _build_optional(choices: tuple[Any, ...], value: Any) -> Any:
    if value is None and type(None) in choices:
        return None
    (inner,) = [choice for choice in choices if choice is not type(None)]
    return _build(inner, value)


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise PlainFault(f"{value!r} is not a list")
    return value
