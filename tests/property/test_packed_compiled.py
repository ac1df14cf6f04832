"""The compiled library enters instances where Python finds them, and refuses the blocks that it refuses."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable

import pytest

from engine import native
from engine.dataset import packed
from engine.dataset.blocks import pack_samples
from engine.dataset.packed import Packed
from engine.dataset.sample import DATA, make_sample

needs_library = pytest.mark.skipif(packed.compiled() is None, reason=f"no library: {native.absence()}")
HASHES: dict[str, Callable[[bytes], int]] = {
    "of Python": hash,
    "that often collides": lambda key: sum(key) % 11,
    "that is mostly the tag of a free slot": lambda key: (sum(key) % 3) << 32,
}
"""`packed` calls one, and the library a callback of the same."""
_Callback = ctypes.CFUNCTYPE(ctypes.c_ssize_t, ctypes.POINTER(ctypes.c_ubyte), ctypes.c_ssize_t)


@needs_library
@pytest.mark.parametrize("name", HASHES)
def test_both_ways_give_the_same_answers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = HASHES[name]
    callback = _Callback(lambda at, size: chosen(bytes(at[:size])))
    address = ctypes.cast(callback, ctypes.c_void_p).value
    monkeypatch.setattr(packed, "_hash", chosen)
    monkeypatch.setattr(packed, "_hash_of_bytes", lambda: address)
    library, chance = packed.compiled(), random.Random(20)
    both = {library: Packed(), None: Packed()}
    outcomes = {True: 0, False: 0}
    everything = [bytes([number % 7]) * (number % 5) + number.to_bytes(2) for number in range(2_000)]
    for turn in range(60):
        keys = [chance.choice(everything) for _ in range(chance.choice((1, 1, 5, 30)))]
        if chance.random() < 0.7:
            keys = list(dict.fromkeys(keys))
        block = pack_samples([make_sample(turn, bytes(16), DATA, key, b"x") for key in keys])
        gone = chance.sample(everything, 30)
        told = []
        for way, content in both.items():
            monkeypatch.setattr(packed, "compiled", lambda way=way: way)
            came = content.add(block)
            out = [content.remove(slot) for key in gone if (slot := content.find(key)) >= 0]
            left = {key: content.newest(key) for key in everything}
            told.append((came, out, left, content.count, sorted(content.keys())))
        assert told[0] == told[1]
        outcomes[told[0][0]] += 1
    assert min(outcomes.values()) > 5


@needs_library
def test_more_equal_tags_than_the_library_names(monkeypatch: pytest.MonkeyPatch) -> None:
    callback = _Callback(lambda at, size: 5)
    address = ctypes.cast(callback, ctypes.c_void_p).value
    monkeypatch.setattr(packed, "_hash", lambda key: 5)
    monkeypatch.setattr(packed, "_hash_of_bytes", lambda: address)
    monkeypatch.setattr(packed, "_SUSPECTS", 10)
    content = Packed()
    for begin in (0, 20):
        keys = [number.to_bytes(2) for number in range(begin, begin + 20)]
        assert content.add(pack_samples([make_sample(1, bytes(16), DATA, key, b"x") for key in keys]))
    again = [make_sample(1, bytes(16), DATA, number.to_bytes(2), b"x") for number in range(39, 60)]
    assert not content.add(pack_samples(again))
    assert sorted(content.keys()) == [number.to_bytes(2) for number in range(40)]


def test_the_hash_of_this_python_is_found() -> None:
    """Without it packing is four times slower, and nobody is told."""
    assert packed._hash_of_bytes() is not None
