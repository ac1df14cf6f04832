"""Damages files in every way that a disk, a network or an attacker may; a seed makes each input again.

A *target* reads the bytes of one kind of file. It must answer or refuse with the error that its readers know:
whatever else comes out is a fault. The suite tries some hundred inputs of each; `make fuzz` tries more.
"""

from __future__ import annotations

import dataclasses
import random
import time
import traceback
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
    *(b"-1", b"0", b"9" * 19, b"9" * 5000, b"1e999", b"NaN", b"\xc2\x9b31m", b"\x1b[31m", "²".encode()),
    *(b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\x00\x00\x00\x80", b"\xfe\xff\xff\x7f"),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """A parser of foreign bytes.

    Attributes:
        name: what it is called.
        corpus: files to begin with.
        read: reads bytes to the end; it raises only for a fault.
    """

    name: str
    corpus: Sequence[bytes]
    read: Callable[[bytes], object]


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


def attempt(target: Target, seed: int) -> Fault | None:
    """Reads the input of a seed, and reports a fault."""
    data = damaged(target.corpus[seed % len(target.corpus)], seed)
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
