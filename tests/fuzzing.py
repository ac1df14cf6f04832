"""Damages bytes in every way that a disk, a network or an attacker may; a seed makes each input again.

A *target* reads the bytes of one kind of file or message. It must answer or refuse with the error that its
readers know: whatever else comes out is a fault. The suite tries some inputs of each; `make fuzz` tries more.
"""

from __future__ import annotations

import dataclasses
import json
import random
import time
import traceback
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SLOW_S: Final = 5.0
"""Processor time after which an answer is too late."""

_PIECES: Final = (
    *(
        b"\0",
        b"\xff",
        b"\n",
        b"\r\n",
        b"\t",
        b" ",
        b"'",
        b'"',
        b"<",
        b">",
        b"&",
        b"{",
        b"}",
        b"(nil)",
        b") -> ",
    ),
    b"[" * 100_000,
    *(b"-1", b"0", b"9" * 19, b"9" * 5000, b"1e999", b"NaN", b"\xc2\x9b31m", b"\x1b[31m", "²".encode()),
    *(b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\x00\x00\x00\x80", b"\xfe\xff\xff\x7f"),
)


_ODD: Final[tuple[Any, ...]] = (
    *(None, True, False, "", "x", "\ud800", "\x1b[31m", "²", "9" * 30, [], {}, [[]], [1], {"a": 1}),
    *(0, -1, 1, 255, 1 << 31, 1 << 63, 1 << 64, -(1 << 63), 1 << 128, 10**400, 0.5, -0.0, 1e308),
    *(float("inf"), float("-inf"), float("nan")),
)
"""Values that take the place of a value in JSON."""

_ODD_NUMBERS: Final = (
    *(0, -1, 1, 255, 1 << 31, 1 << 63, (1 << 63) - 1, -(1 << 63), (1 << 127), -(1 << 127)),
    *(10**18, 4_102_444_800 * 10**9, 253_402_300_800 * 10**9),
)
_ODD_TEXTS: Final = (
    *("", "x", "\x1b[31m", "\u202e", "\0", "a\nb", "²", "9" * 30, "1/", "/", "x" * 5_000, "-1", "--help"),
    *("127.0.0.1", "::1", "host.invalid", "../../x", "COMPLETE", "TERMINATED", "part", "[31]", "%s{0}"),
)

CHEAP: Final = 1_000_000
"""Inputs to try of a reader that takes less than about 100 us for one."""
COSTLY: Final = 100_000
"""Inputs to try of any other reader."""


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """A parser of foreign bytes.

    Attributes:
        name: what it is called.
        corpus: files to begin with.
        read: reads bytes to the end; it raises only for a fault.
        goal: how many inputs are enough.
        damage: makes the input of a seed.
    """

    name: str
    corpus: Sequence[bytes]
    read: Callable[[bytes], object]
    goal: int = COSTLY
    damage: Callable[[bytes, int], bytes] = dataclasses.field(default=lambda data, seed: damaged(data, seed))


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """An input that ended in something else than an answer."""

    target: str
    seed: int
    what: str


def damaged(data: bytes, seed: int) -> bytes:
    """`data`, damaged as the seed says: flipped bits, cuts, lost, repeated and foreign bytes."""
    chance = random.Random(seed)
    found = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        if not found:
            break
        at = chance.randrange(len(found))
        width = chance.choice((1, 2, 4, 8, 64, 512))
        match chance.randrange(8):
            case 0 | 1 | 2:
                found[at] ^= 1 << chance.randrange(8)
            case 3:
                del found[at:]
            case 4:
                del found[at : at + width]
            case 5:
                found[at:at] = found[at : at + width]
            case 6:
                found[at : at + width] = bytes(len(found[at : at + width]))
            case _:
                found[at:at] = chance.choice(_PIECES)
    return bytes(found)


def damaged_json(data: bytes, seed: int) -> bytes:
    """JSON with one value in the place of another for two seeds of three, else `damaged`.

    It stays JSON, so that the checks behind the reader of JSON are reached.
    """
    if seed % 3 == 0:
        return damaged(data, seed)
    chance = random.Random(seed)
    document = json.loads(data)
    for _ in range(chance.choice((1, 1, 2))):
        document = _altered(document, chance)
    return json.dumps(document).encode()


def damaged_values(data: bytes, seed: int) -> bytes:
    """JSON with odd values of the same type in the place of some, for three seeds of four.

    Else it is as `damaged_json`. A reader that checks types takes it in, so that all behind it is reached.
    """
    if seed % 4 == 0:
        return damaged_json(data, seed // 4)
    chance = random.Random(seed)
    document = json.loads(data)
    places = list(_places(document))
    for _ in range(chance.choice((1, 1, 2, 3, 8))):
        holder, key = chance.choice(places)
        value = holder[key]
        if isinstance(value, bool):
            holder[key] = not value
        elif isinstance(value, int | float):
            holder[key] = type(value)(chance.choice(_ODD_NUMBERS))
        elif isinstance(value, str):
            holder[key] = chance.choice(_ODD_TEXTS)
    return json.dumps(document).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each place of a value that is no list and no object: what holds it, and where."""
    for key, each in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(each, dict | list):
            yield from _places(each)
        else:
            yield value, key


def _altered(value: Any, chance: random.Random) -> Any:
    """A copy of a value in which one place is replaced, missing, or there twice."""
    if not value or not isinstance(value, list | dict) or chance.random() < 0.1:
        return chance.choice(_ODD)
    if isinstance(value, dict):
        name = chance.choice(list(value))
        match chance.randrange(12):
            case 0:
                return {key: each for key, each in value.items() if key != name}
            case 1:
                return {**value, "": chance.choice(_ODD)}
            case 2:
                odd = chance.choice(("", "x", "\ud800", "²", "\x1b")) * max(1, len(name))
                return {odd if key == name else key: each for key, each in value.items()}
            case _:
                return {**value, name: _altered(value[name], chance)}
    at = chance.randrange(len(value))
    match chance.randrange(12):
        case 0:
            return value[:at] + value[at + 1 :]
        case 1:
            return value[:at] + value[at : at + 1] + value[at:]
        case _:
            return [*value[:at], _altered(value[at], chance), *value[at + 1 :]]


def damaged_lines(data: bytes, seed: int) -> bytes:
    """As `damaged_json`, for a file with one value in each line: one line is damaged."""
    if seed % 3 == 0:
        return damaged(data, seed)
    lines = data.splitlines(keepends=True)
    at = seed // 3 % len(lines)
    return b"".join((*lines[:at], damaged_json(lines[at], seed) + b"\n", *lines[at + 1 :]))


def attempt(target: Target, seed: int) -> Fault | None:
    """Reads the input of a seed, and reports a fault."""
    data = target.damage(target.corpus[seed % len(target.corpus)], seed)
    begun = time.process_time()
    try:
        target.read(data)
    except Exception:  # whatever it is, it is a fault
        return Fault(target.name, seed, traceback.format_exc())
    took = time.process_time() - begun
    return Fault(target.name, seed, f"{took:.1f} s of processor time") if took > SLOW_S else None


def faults(target: Target, seeds: range) -> list[Fault]:
    """The faults of some seeds, each kind once."""
    found: dict[str, Fault] = {}
    for seed in seeds:
        fault = attempt(target, seed)
        if fault is not None:
            found.setdefault("\n".join(fault.what.splitlines()[-3:]), fault)
    return list(found.values())
