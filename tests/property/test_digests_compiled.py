"""The compiled library and Python compute the same digests of blocks, and refuse the same ones."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import native
from engine.dataset import blocks
from engine.dataset.blocks import Block, BlockFault, pack_samples
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, Sample, make_sample

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
needs_library = pytest.mark.skipif(blocks.compiled() is None, reason=f"no library: {native.absence()}")


@needs_library
@given(st.lists(SAMPLES, min_size=8, max_size=30))
def test_the_digests_of_a_block_are_those_of_its_samples(samples: list[Sample]) -> None:
    packed = pack_samples(samples)
    assert packed.computed_digests() == b"".join(sample.digest for sample in samples)


@needs_library
@pytest.mark.parametrize("size", [0, 1, *range(80, 96), *range(208, 220), 1_000, 4_000])
def test_texts_of_every_length_around_a_chunk(size: int) -> None:
    samples = [make_sample(number, b"w" * 16, DATA, b"k" * 4, bytes([number]) * size) for number in range(9)]
    assert pack_samples(samples).computed_digests() == b"".join(sample.digest for sample in samples)


@needs_library
def test_changed_bytes_give_the_digests_that_python_gives(monkeypatch: pytest.MonkeyPatch) -> None:
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
        compiled = _digests(bytes(changed))
        with monkeypatch.context() as patch:
            patch.setattr(blocks, "compiled", lambda **_: None)
            assert _digests(bytes(changed)) == compiled
        outcomes["refused" if compiled is None else "digests"] += 1
    assert min(outcomes.values()) > 20


def _digests(data: bytes) -> bytes | None:
    try:
        return Block(data).digests
    except (BlockFault, IndexError, struct.error):
        return None
