"""What comes from outside: JSON that is read by the annotations of a class, and how much of it is remembered.

msgspec is strict about types and ignores fields that it does not know, so that a message of a newer version
can be read. But it takes whole numbers of any size, and dividing by one that no float can hold would fail
later on, so `json_reader` bounds them. And two threads that have it look at a class for the first time at
once make it crash, so each module makes its readers when it is imported.
"""

from __future__ import annotations

import collections
import json
import re
import struct
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

import msgspec

LARGEST: Final = 1 << 128
"""Digests have 128 bits, and no number has more."""
Seconds = Annotated[float, msgspec.Meta(ge=-LARGEST, le=LARGEST)]
"""A time that comes some day: an expiry of 1e300 s would keep a fellow alive for ever."""
_DIGITS: Final = bytes.maketrans(b"123456789", b"000000000")
# 2**128 has 39 digits.
_LONG: Final = b"0" * 40
"""Digits in a row that only a number of more than 128 bits has, or a text."""


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Newest(collections.OrderedDict[_Key, _Value]):
    """The entries that were set last, the newest at the end: one beyond `most` takes the place of the oldest.

    Anybody may add entries, so without a bound they would take all memory.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: _Key, value: _Value) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._most:
            self.popitem(last=False)

    def copy(self) -> Newest[_Key, _Value]:
        """Return a copy, which forgets for itself."""
        made: Newest[_Key, _Value] = Newest(self._most)
        made.update(self)
        return made


class JsonFault(ValueError):
    """JSON that does not fit its type."""


_OF_PYTHON: Final = (
    *("dictionary update", "too many values", "not enough values", "could not convert", "invalid literal"),
    *("embedded null", "zip() argument"),
)
"""How texts of `ValueError` begin that Python writes, for programmers."""
_NAMES: Final = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "bytes": "bytes in base64",
    "null": "nothing",
}
"""What the types of JSON are called for people."""


def words_of(error: Exception) -> str:
    """Return why something that came from outside could not be read, in words for people.

    Python's own texts say which operation failed, and not what is wrong with the value.
    """
    match error:
        case msgspec.ValidationError():
            return re.sub("`(.*?)`", _named, str(error))
        case msgspec.DecodeError():
            return f"not JSON: {str(error).removeprefix('JSON is malformed: ')}"
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


def _named(found: re.Match[str]) -> str:
    return " or ".join(_NAMES.get(name, name) for name in found[1].split(" | "))


def json_reader(wanted: Any) -> Callable[[bytes | str | msgspec.Raw], Any]:
    """Return what reads a value of type `wanted` from JSON of an untrusted source.

    That raises `JsonFault`: not JSON, a missing field, or a value that does not fit its annotation.
    """
    decoder = msgspec.json.Decoder(wanted)

    def read(text: bytes | str | msgspec.Raw) -> Any:
        try:
            data = text.encode() if isinstance(text, str) else bytes(text)
            if _LONG in data.translate(_DIGITS):
                json.loads(data, parse_int=_bounded)
            return decoder.decode(data)
        except Exception as error:  # of any class: anybody may have written it
            raise JsonFault(words_of(error)) from error

    return read


def _bounded(digits: str) -> int:
    number = int(digits)
    if abs(number) > LARGEST:
        raise JsonFault(f"a number of {number.bit_length()} bits")
    return number
