"""The JSON output of every command: `{"format_version": 1, "kind": …, "data": …}`.

Times are integers (`_ns`), ids and integers beyond 53 bits are strings, enumerations their values, bytes
hexadecimal digits, sets sorted lists.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import json
import math
import pathlib
from collections.abc import Mapping
from typing import Any, Final

FORMAT_VERSION: Final = 1
_LARGEST_EXACT: Final = (1 << 53) - 1  # beyond it JavaScript and jq round
_LARGE: Final = 1_000_000
"""Characters from which a document is indented by msgspec: `json` takes three times as long, and 20 times the
memory of the text."""


def document(kind: str, data: object) -> str:
    """Make one JSON document on several lines, for a command with one result."""
    value = _envelope(kind, data)
    compact = json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    if len(compact) >= _LARGE:
        import msgspec  # only where it pays

        # Half of a surrogate pair is refused.
        with contextlib.suppress(msgspec.DecodeError, RecursionError):
            return msgspec.json.format(compact, indent=2) + "\n"
    return json.dumps(value, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def line(kind: str, data: object) -> str:
    """Make one JSON document on one line, for a command with a stream of results."""
    return json.dumps(_envelope(kind, data), separators=(",", ":"), ensure_ascii=True, allow_nan=False) + "\n"


def _envelope(kind: str, data: object) -> dict[str, object]:
    return {"format_version": FORMAT_VERSION, "kind": kind, "data": plain(data)}


def plain(value: object, name: str = "") -> object:
    """Convert a value to what JSON can hold; `name` is the name of its field.

    Raises:
        TypeError: the value has no JSON form.
    """
    if isinstance(value, enum.Enum):
        return plain(value.value, name)
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value if name.endswith("_ns") or abs(value) <= _LARGEST_EXACT else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return _plain_compound(value, name)


def _names(kind: Any) -> tuple[str, ...]:
    """Return the fields of a class of msgspec, of dataclasses or of named tuples."""
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return getattr(kind, "__struct_fields__", ()) or getattr(kind, "_fields", ())


def _plain_compound(value: object, name: str) -> object:
    names = _names(type(value))
    if names:
        return {name: plain(getattr(value, name), name) for name in names}
    if isinstance(value, Mapping):
        return {str(key): plain(item, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, name) for item in value]
    if isinstance(value, set | frozenset):
        # A set has no order, and two runs must print the same. By text, because its members may be of
        # several types.
        return sorted((plain(item, name) for item in value), key=str)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, pathlib.PurePath):
        return str(value)
    raise TypeError(f"{name or 'the value'} has no JSON form: {type(value).__name__}")
