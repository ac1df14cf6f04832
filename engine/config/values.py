"""Typed values from the text of an element or attribute, by the rules of the OpenSplice validator.

Booleans are TRUE or FALSE in any case; integers are decimal, `0x` hexadecimal or, with a leading zero, octal;
nothing may follow a number; labels are compared without case.
"""

from __future__ import annotations

import math
import re

from engine.config.problems import ProblemKind, quoted
from engine.config.schema import Item, Type

_INTEGER = re.compile(r"\s*([+-]?)(0[xX][0-9a-fA-F]+|[0-9]+)")
_FLOAT = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_SUFFIX = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
# Python's own conversion is quadratic in the digits; no setting has more than 20.
_LONGEST_NUMBER = 64
MEMORY_UNITS = {
    "B": 1,
    "kB": 1 << 10,
    "KiB": 1 << 10,
    "MB": 1 << 20,
    "MiB": 1 << 20,
    "GB": 1 << 30,
    "GiB": 1 << 30,
}
"""In Cyclone DDS and DDSI2 all of them are of 1024."""


class ValueFault(ValueError):
    """A text is not a value of its item.

    The message says what is wrong with it, the hint what to write instead.
    """

    def __init__(self, kind: ProblemKind, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.hint = hint


def parse_boolean(text: str) -> bool:
    """Parse TRUE or FALSE.

    Raises:
        ValueFault: anything else.
    """
    match text.strip().upper():
        case "TRUE":
            return True
        case "FALSE":
            return False
    raise ValueFault(ProblemKind.BAD_VALUE, f"{quoted(text)} is not a boolean", "use true or false")


def parse_int(text: str) -> int:
    """Parse a whole number: decimal, 0x hexadecimal, or octal with a leading zero.

    Raises:
        ValueFault: anything else.
    """
    found = _INTEGER.fullmatch(text.rstrip()) if len(text) <= _LONGEST_NUMBER else None
    if not found:
        raise ValueFault(ProblemKind.BAD_VALUE, f"{quoted(text)} is not a whole number")
    sign, digits = found.groups()
    is_octal = len(digits) > 1 and digits.startswith("0") and digits[1] not in "xX"
    try:
        number = int(digits, 8) if is_octal else int(digits, 0)
    except ValueError as error:  # 8 or 9 in an octal number
        message = f"{quoted(text)} is not a whole number"
        raise ValueFault(ProblemKind.BAD_VALUE, message, "a leading zero means octal") from error
    return -number if sign == "-" else number


def parse_float(text: str) -> float:
    """Parse a finite decimal number.

    Raises:
        ValueFault: anything else.
    """
    if len(text) <= _LONGEST_NUMBER and _FLOAT.fullmatch(text.rstrip()):
        number = float(text)
        if math.isfinite(number):
            return number
    raise ValueFault(ProblemKind.BAD_VALUE, f"{quoted(text)} is not a number")


def parse_size(text: str) -> int:
    """Parse a number of bytes with an optional suffix K, M or G (of 1024).

    Raises:
        ValueFault: anything else.
    """
    body = text.strip()
    suffix = body[-1:].upper()
    factor = _SUFFIX.get(suffix)
    if suffix.isdigit() or suffix == ".":
        return int(parse_float(body))
    if factor is None or not body:
        raise ValueFault(
            ProblemKind.BAD_VALUE, f"{quoted(text)} is not a size", "use bytes, or a number and K, M or G"
        )
    return int(parse_float(body[:-1]) * factor)


def parse_memory(text: str) -> int:
    """Parse a size as in the settings of Cyclone DDS and DDSI2: a number with B, kB, KiB, MB, MiB, GB or GiB.

    Raises:
        ValueFault: anything else.
    """
    number, _, unit = text.strip().rpartition(" ") if " " in text.strip() else _split_unit(text.strip())
    if unit not in MEMORY_UNITS:
        hint = f"use a number with one of {', '.join(MEMORY_UNITS)}"
        raise ValueFault(ProblemKind.BAD_VALUE, f"{quoted(text)} is not a size", hint)
    return int(parse_float(number) * MEMORY_UNITS[unit])


def _split_unit(text: str) -> tuple[str, str, str]:
    number = text.rstrip("BKMGikb")
    return number, "", text[len(number) :]


def parse_value(item: Item, text: str) -> str | int | float | bool:
    """Parse the value of an item; enumerations get the schema's spelling.

    Raises:
        ValueFault: the text is not a value of the item's type, or out of its range.
    """
    match item.type:
        case Type.BOOLEAN:
            return parse_boolean(text)
        case Type.ENUM:
            return _label(item, text)
        case Type.INT:
            return _in_range(item, parse_int(text))
        case Type.FLOAT:
            return _in_range(item, parse_float(text))
        case Type.SIZE:
            return _in_range(item, parse_size(text))
        case Type.STRING | Type.ELEMENT:
            if item.max_length and len(text) > item.max_length:
                message = f"the value has {len(text)} characters; at most {item.max_length} are allowed"
                raise ValueFault(ProblemKind.TOO_LONG, message)
            return text


_defaults: dict[tuple[str, str], str | int | float | bool] = {}


def default_value(item: Item) -> str | int | float | bool:
    """Return the documented default."""
    key = (item.path, item.default)
    found = _defaults.get(key)
    if found is None:
        found = _defaults[key] = parse_value(item, item.default)
    return found


def _label(item: Item, text: str) -> str:
    wanted = text.strip().lower()
    for label in item.labels:
        if label.lower() == wanted:
            return label
    allowed = ", ".join(item.labels)
    hint = did_you_mean(text, item.labels)
    raise ValueFault(ProblemKind.BAD_VALUE, f"{quoted(text)} is none of {allowed}", hint)


def _in_range(item: Item, number: float) -> int | float:
    too_low = item.low and number < float(item.low)
    too_high = item.high and number > float(item.high)
    if too_low or too_high:
        raise ValueFault(ProblemKind.OUT_OF_RANGE, f"{number} is {range_text(item, too_low=bool(too_low))}")
    return number


def range_text(item: Item, *, too_low: bool) -> str:
    """Describe how a number misses the range of an item."""
    if item.low and item.high:
        return f"not between {item.low} and {item.high}"
    return f"less than {item.low}" if too_low else f"more than {item.high}"


def did_you_mean(wrong: str, known: tuple[str, ...] | list[str]) -> str:
    """Suggest the most similar known word; empty if none is similar."""
    folded = {word.lower(): word for word in reversed(known)}
    exact = folded.get(wrong.strip().lower())
    if exact:
        return f"did you mean {exact}? Upper and lower case matter"
    from difflib import get_close_matches  # only wrong words pay for this import

    close = get_close_matches(wrong.strip().lower()[:128], list(folded), n=1, cutoff=0.6)
    return f"did you mean {folded[close[0]]}?" if close else ""
