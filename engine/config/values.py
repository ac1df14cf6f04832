"""Typed values from the text of an element or attribute, by the rules of the OpenSplice validator.

Booleans are TRUE or FALSE in any case; integers are decimal, `0x` hexadecimal or, with a leading zero, octal;
nothing may follow a number; labels are compared without case.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

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


MEANINGS: Final[Mapping[str, str]] = {
    # Commands and tables, by what they are called elsewhere.
    **dict.fromkeys(("validate", "lint", "verify-config"), "check"),
    **dict.fromkeys(("run", "up", "launch", "boot"), "start"),
    **dict.fromkeys(("kill", "down", "halt", "shutdown", "quit"), "stop"),
    **dict.fromkeys(("reload", "bounce"), "restart"),
    **dict.fromkeys(("new", "create", "generate", "configure"), "init"),
    **dict.fromkeys(("ps", "processes", "instances"), "list"),
    **dict.fromkeys(("tail", "journal"), "logs"),
    **dict.fromkeys(("console", "ui", "tui", "gui", "dashboard", "monitor", "watch", "replay"), "top"),
    **dict.fromkeys(("problems", "errors", "alarms", "alerts", "ping"), "health"),
    **dict.fromkeys(("diagnose", "qos"), "doctor"),
    **dict.fromkeys(("get", "describe"), "show"),
    **dict.fromkeys(("print", "dump", "read", "echo"), "cat"),
    **dict.fromkeys(("query", "select"), "sql"),
    **dict.fromkeys(("prometheus", "exporter"), "metrics"),
    **dict.fromkeys(("why", "describe-code", "man"), "explain"),
    **dict.fromkeys(("leader", "leaders", "election"), "show masters"),
    **dict.fromkeys(("peers", "members", "neighbours", "followers", "cluster"), "show fellows"),
    **dict.fromkeys(("partitions",), "show groups"),
    **dict.fromkeys(("subscribers", "subscriptions", "late-joiners"), "show readers"),
    **dict.fromkeys(("publishers",), "show writers"),
    **dict.fromkeys(("namespaces",), "show name-spaces"),
    **dict.fromkeys(("sync", "progress"), "show alignment"),
    **dict.fromkeys(("compare",), "store diff"),
    **dict.fromkeys(("wait",), "history wait"),
    **dict.fromkeys(("delete", "purge"), "history delete"),
    # Elements and attributes, by what they are called in other products, and what people take them for.
    **dict.fromkeys(("directory", "path", "folder", "storepath", "storagedirectory"), "StoreDirectory"),
    **dict.fromkeys(("store", "storage", "persistence", "database"), "Persistent"),
    **dict.fromkeys(("loglevel", "level", "debuglevel"), "Verbosity"),
    **dict.fromkeys(("logfile", "file", "tracefile"), "OutputFile"),
    **dict.fromkeys(("log", "logging", "trace"), "Tracing"),
    **dict.fromkeys(("networkinterface", "interface", "interfaces", "nic"), "NetworkInterfaceAddress"),
    **dict.fromkeys(("domainid", "number"), "Id"),
    **dict.fromkeys(("timeout", "leaseduration", "expiry"), "ExpiryTime"),
    **dict.fromkeys(("priority", "weight", "masterweight"), "masterPriority"),
    **dict.fromkeys(("kind", "durabilitykind"), "durability"),
    **dict.fromkeys(("mergepolicy", "mergetype"), "Merge"),
    **dict.fromkeys(("topic", "expression"), "PartitionTopic"),
    **dict.fromkeys(("secret", "password"), "DomainSecret"),
}
"""What a word means that is no command, table or setting: the one of these that is known where it stands."""


def did_you_mean(wrong: str, known: tuple[str, ...] | list[str]) -> str:
    """Suggest the known word that is meant, by meaning or else by spelling; empty if there is none."""
    folded = {word.lower(): word for word in reversed(known)}
    given = wrong.strip().lower()
    exact = folded.get(given)
    if exact:
        return f"did you mean {exact}? Upper and lower case matter"
    meaning = MEANINGS.get(given, "").lower()
    last = {word.rpartition(" ")[2]: folded[word] for word in folded}  # of commands within groups
    meant = folded.get(meaning) or last.get(meaning.rpartition(" ")[2]) or last.get(given)
    if not meant:
        from difflib import get_close_matches  # only wrong words pay for this import

        close = get_close_matches(given[:128], list(folded), n=1, cutoff=0.6)
        if not close:
            return ""
        meant = folded[close[0]]
    return f"did you mean {meant!r}?" if " " in meant else f"did you mean {meant}?"
