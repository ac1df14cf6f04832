"""Compressed values of OpenSplice's store, those that are sound and those that are not."""

from __future__ import annotations

import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="stores of OpenSplice need the extra `sql`")

from ospltool.stores.opensplice_stores import MAX_VALUE_BYTES, decompress
from ospltool.stores.types import Undecodable
from tests.stores.making import Compression

LZF, SNAPPY, ZLIB = Compression.LZF.value, Compression.SNAPPY.value, Compression.ZLIB.value

FAR = b"".join(bytes([n] * 32) for n in range(9)) + b"x\0\0\0"
"""Ends with a repetition of what is further back than 8 bits can say."""


def framed(size: int, body: bytes) -> bytes:
    return b"\1" + size.to_bytes(4) + body


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        (LZF, framed(3, b"\x02abc"), b"abc"),
        (LZF, framed(7, b"\x02abc\x40\x02"), b"abcabca"),
        (LZF, framed(13, b"\x00a\xe0\x03\x00"), b"a" * 13),
        (LZF, framed(292, b"".join(bytes([31, *[n] * 32]) for n in range(9)) + b"\x00x\x21\x1f"), FAR),
        (SNAPPY, b"\x03\x08abc", b"abc"),
        (SNAPPY, b"\x07\x08abc\x01\x03", b"abcabca"),
        (SNAPPY, b"\x09\x08abc\x16\x03\x00", b"abcabcabc"),
        (SNAPPY, b"\x09\x08abc\x17\x03\x00\x00\x00", b"abcabcabc"),
        (SNAPPY, b"\x40\xf0\x3f" + bytes(range(64)), bytes(range(64))),
        (SNAPPY, b"\x41\xf4\x40\x00" + bytes(range(65)), bytes(range(65))),
        (ZLIB, framed(5, zlib.compress(b"abcde")), b"abcde"),
        (0, b"abc", b"abc"),
    ],
)
def test_each_way_of_repeating_is_understood(kind: int, data: bytes, value: bytes) -> None:
    assert decompress(kind, data) == value


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (LZF, b""),
        (LZF, framed(9, b"\x02abc")),
        (LZF, framed(9, b"\x02ab")),
        (LZF, framed(9, b"\x20\x05")),
        (LZF, framed(9, b"\x02abc\xe0")),
        (SNAPPY, b""),
        (SNAPPY, b"\xff\xff\xff\xff\xff\xff"),
        (SNAPPY, b"\x05\x08abc"),
        (SNAPPY, b"\x05\x01\x09"),
        (SNAPPY, b"\x05\xf4\xff"),
        (ZLIB, framed(5, b"not zlib")),
        (ZLIB, framed(4, zlib.compress(b"abcde"))),
        (ZLIB, framed(6, zlib.compress(b"abcde"))),
        (ZLIB, framed(MAX_VALUE_BYTES + 1, zlib.compress(b"a"))),
        (ZLIB, framed(5, zlib.compress(bytes(1 << 24)))),
        (4, b"custom"),
        (99, b""),
    ],
)
def test_what_is_damaged_is_said_to_be(kind: int, data: bytes) -> None:
    with pytest.raises(Undecodable):
        decompress(kind, data)


@given(st.binary(max_size=300), st.sampled_from(Compression))
def test_what_was_compressed_comes_back(value: bytes, compression: Compression) -> None:
    assert decompress(compression.value, compression.apply(value * 2)) == value * 2


@pytest.mark.parametrize("kind", [LZF, SNAPPY, ZLIB])
def test_noise_is_refused_or_read_and_never_worse(kind: int) -> None:
    chance = random.Random(kind)
    for _ in range(300):
        noise = b"\1\0\0\0" + chance.randbytes(chance.randrange(60))
        try:
            decompress(kind, noise)
        except Undecodable:
            continue
