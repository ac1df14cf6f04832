"""Digests of many samples at once are those of each by itself."""

from __future__ import annotations

import hashlib
import random

import pytest

from engine.dataset.blocks import Block, pack_samples
from engine.dataset.captured import with_digests
from engine.dataset.sample import DATA, DIGEST_BYTES, HEADER, Sample, captured_sample, digest_of

WRITERS = (b"w" * 16, b"v" * 16)
LENGTHS = {
    "small": [0, 1, 86, 87, 88, 214, 215, 216, 1023],
    "together": [1024, 1100, 1111, 1112, 1113, 4000, 16_000, 32_767],
    "large": [32_768, 64_000, 100_000],
    "mixed": [5, 2000, 40_000, 2000, 2001, 2000, 7, 300],
}


def by_hashlib(one: Sample) -> bytes:
    """The digest as the standard library computes it, of one piece."""
    header = HEADER.pack(one.source_time_ns, one.sequence, one.status, len(one.key), len(one.payload))
    return hashlib.blake2b(header + one.writer + one.key + one.payload, digest_size=DIGEST_BYTES).digest()


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("are_equal", [True, False], ids=["equal", "different"])
def test_each_has_the_digest_of_its_content(lengths: list[int], are_equal: bool) -> None:
    chance = random.Random(1)
    for count in range(1, 10):
        size, key_size = chance.choice(lengths), chance.choice((0, 4, 90, 200))
        records = [
            captured_sample(
                chance.randrange(1 << 60),
                chance.choice(WRITERS),
                DATA,
                chance.randbytes(key_size if are_equal else chance.choice((0, 4, 90, 200))),
                chance.randbytes(size if are_equal else chance.choice(lengths)),
            )
            for _ in range(count)
        ]
        made = with_digests(records)
        wanted = [by_hashlib(one) for one in made]
        assert [one.digest for one in made] == wanted
        assert [one._replace(digest=b"") for one in made] == records
        assert [digest_of(*one[:3], *one[4:]) for one in made] == wanted
        block = pack_samples(made)
        assert Block(block.data).digests == b"".join(wanted)
