"""The digests of blocks are those of their samples, and what is no block is refused."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.dataset.blocks import Block, BlockFault, pack_samples
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, Sample, digest_of, make_sample

TEXT = st.binary(max_size=300)
"""Around one, two and three chunks of 128 bytes, of which a digest is made."""
SAMPLES = st.builds(
    make_sample,
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.sampled_from([bytes(16), b"w" * 16, bytes(range(16))]),
    st.sampled_from([DATA, DISPOSE, UNREGISTER, DATA | DISPOSE | UNREGISTER]),
    TEXT,
    TEXT,
    st.integers(0, (1 << 64) - 1),
)


@given(st.lists(SAMPLES, min_size=1, max_size=30))
def test_the_digests_of_a_block_are_those_of_its_samples(samples: list[Sample]) -> None:
    packed = pack_samples(samples)
    assert packed.computed_digests() == b"".join(sample.digest for sample in samples)


@pytest.mark.parametrize("size", [0, 1, *range(80, 96), *range(208, 220), 1_000, 4_000])
def test_texts_of_every_length_around_a_chunk(size: int) -> None:
    samples = [make_sample(number, b"w" * 16, DATA, b"k" * 4, bytes([number]) * size) for number in range(9)]
    assert pack_samples(samples).computed_digests() == b"".join(sample.digest for sample in samples)


def test_changed_bytes_give_the_digests_of_what_they_say_now() -> None:
    chance = random.Random(20)
    writers = [bytes([number]) * 16 for number in range(3)]
    made = [
        make_sample(number, chance.choice(writers), DATA, b"k", chance.randbytes(number), number % 3)
        for number in range(40)
    ]
    data = pack_samples(made).data
    outcomes = {"digests": 0, "refused": 0}
    for _ in range(2_000):
        changed = bytearray(data)
        changed[chance.randrange(len(data))] = chance.randrange(256)
        found = _digests(bytes(changed), lambda data: Block(data).digests)
        assert found == _digests(bytes(changed), _one_by_one)
        outcomes["refused" if found is None else "digests"] += 1
    assert min(outcomes.values()) > 20


def _digests(data: bytes, digests_of: Callable[[bytes], bytes]) -> bytes | None:
    try:
        return digests_of(data)
    except (BlockFault, IndexError, struct.error):
        return None


def _one_by_one(data: bytes) -> bytes:
    block = Block(data, b"")
    statuses = block.statuses()
    if not all(0 < status <= DATA | DISPOSE | UNREGISTER for status in statuses):
        raise BlockFault("a status")
    columns = block.times_ns(), block.sequences(), statuses, block.keys(), block.payloads()
    return b"".join(
        digest_of(time_ns, block.writer(place), sequence, status, key, payload)
        for place, (time_ns, sequence, status, key, payload) in enumerate(zip(*columns, strict=True))
    )
