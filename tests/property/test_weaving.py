"""Samples of many blocks are the same many at once and one by one."""

from __future__ import annotations

import array
import random

from engine.dataset.blocks import MAX_SAMPLES, PLACE_BITS, Block, pack_samples
from engine.dataset.sample import DATA, Sample, make_sample
from engine.dataset.sample_rows import BlockSources, GatheredRows, OverlayRows


def made(chance: random.Random, count: int) -> list[Sample]:
    """Plain writes; in some seeds of one writer, of equal lengths, or without sequence numbers."""
    writers = [bytes([number]) * 16 for number in range(chance.choice((1, 5)))]
    lengths, keys = chance.choice(((4,), (0, 1, 90))), chance.choice(((3,), (0, 2, 3)))
    highest = chance.choice((0, (1 << 64) - 1))
    return [
        make_sample(
            chance.randint(-(1 << 62), 1 << 62),
            chance.choice(writers),
            DATA,
            chance.randbytes(chance.choice(keys)),
            chance.randbytes(chance.choice(lengths)),
            chance.randint(0, highest),
        )
        for _ in range(count)
    ]


def woven(chance: random.Random) -> tuple[GatheredRows, list[Sample]]:
    """Some samples of blocks with unused numbers between them, in any order, and objects among them."""
    blocks: dict[int, Block] = {}
    found: list[tuple[int, Sample]] = []
    for number in chance.sample(range(30), chance.choice((1, 4))):
        samples = made(chance, chance.choice((1, 40)))
        blocks[number] = pack_samples(samples)
        found += [((number << PLACE_BITS) + place, sample) for place, sample in enumerate(samples)]
    objects = made(chance, chance.choice((0, 9)))
    found += [(~place, sample) for place, sample in enumerate(objects)]
    found = chance.sample(found, chance.randint(1, len(found)))
    rows = array.array("i", [row for row, _ in found])
    return GatheredRows(BlockSources(blocks), rows, OverlayRows(objects)), [sample for _, sample in found]


def test_woven_samples_are_those_that_were_packed() -> None:
    sizes = set()
    for seed in range(120):
        chance = random.Random(seed)
        subject, expected = woven(chance)
        assert subject.samples() == expected
        assert all(type(sample) is Sample for sample in subject.samples())
        assert [subject.sample(place) for place in range(subject.count)] == expected
        assert subject.digests == b"".join([sample.digest for sample in expected])
        assert list(subject.times_ns()) == [sample.source_time_ns for sample in expected]
        assert subject.payload_bytes == sum(len(sample.payload) for sample in expected)
        limit = chance.choice((0, 200, 1 << 40))
        blocks = list(subject.blocks(limit))
        apart = [sample for block in blocks for sample in block.samples()]
        kept = [sample for sample, row in zip(expected, subject.rows, strict=True) if row >= 0]
        assert apart[: len(kept)] == kept
        assert sorted(apart) == sorted(expected)
        sizes_of_texts = [
            sum(len(sample.key) + len(sample.payload) for sample in block.samples()) for block in blocks
        ]
        assert all(
            block.count == 1 or size <= limit for block, size in zip(blocks, sizes_of_texts, strict=True)
        )
        for block in blocks:
            again = Block(block.data)
            assert again.digests == block.digests
            assert again.span_ns() == block.span_ns()
            assert set(block.writers) == {sample.writer for sample in block.samples()}
        sizes.add(len(blocks))
    assert len(sizes) > 5


def test_no_block_has_too_many_samples() -> None:
    sample = made(random.Random(1), 1)[0]
    rows = array.array("i", [0]) * (MAX_SAMPLES + 1)
    blocks = list(BlockSources({0: pack_samples([sample])}).gathered(rows, 1 << 40))
    assert [block.count for block in blocks] == [MAX_SAMPLES, 1]
