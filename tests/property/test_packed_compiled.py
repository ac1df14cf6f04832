"""The table of packed instances answers as a dictionary does, whatever the hashes of the keys."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from engine.dataset import sample_rows
from engine.dataset.blocks import pack_samples
from engine.dataset.sample import DATA, Sample, make_sample
from engine.dataset.sample_rows import Packed
from tests.property.samples import hash_keys_with

HASHES: dict[str, Callable[[bytes], int]] = {
    "of Python": hash,
    "that often collides": lambda key: sum(key) % 11,
    "that is mostly the tag of a free slot": lambda key: (sum(key) % 3) << 32,
}


@pytest.mark.parametrize("name", HASHES)
def test_it_answers_as_a_dictionary(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hash_keys_with(monkeypatch, HASHES[name])
    chance, content, model = random.Random(20), Packed(), dict[bytes, Sample]()
    outcomes = {True: 0, False: 0}
    everything = [bytes([number % 7]) * (number % 5) + number.to_bytes(2) for number in range(2_000)]
    for turn in range(60):
        keys = [chance.choice(everything) for _ in range(chance.choice((1, 1, 5, 30)))]
        if chance.random() < 0.7:
            keys = list(dict.fromkeys(keys))
        samples = [make_sample(turn, bytes(16), DATA, key, b"x") for key in keys]
        is_new = len(set(keys)) == len(keys) and not model.keys() & set(keys)
        assert content.add(pack_samples(samples)) == is_new
        if is_new:
            model |= zip(keys, samples, strict=True)
        for key in chance.sample(everything, 30):
            slot = content.find(key)
            assert (slot >= 0) == (key in model)
            if slot >= 0:
                del model[key]
                for left in content.remove(slot):
                    assert left == model.pop(left.key)
        assert content.count == len(model)
        assert sorted(content.keys()) == sorted(model)
        for key in chance.sample(everything, 200):
            one = model.get(key)
            assert content.newest(key) == (one and (one.source_time_ns, one.writer))
        outcomes[is_new] += 1
    assert min(outcomes.values()) > 5


def test_more_equal_tags_than_the_library_names(monkeypatch: pytest.MonkeyPatch) -> None:
    hash_keys_with(monkeypatch, lambda key: 5)
    monkeypatch.setattr(sample_rows, "_SUSPECTS", 10)
    content = Packed()
    for begin in (0, 20):
        keys = [number.to_bytes(2) for number in range(begin, begin + 20)]
        assert content.add(pack_samples([make_sample(1, bytes(16), DATA, key, b"x") for key in keys]))
    again = [make_sample(1, bytes(16), DATA, number.to_bytes(2), b"x") for number in range(39, 60)]
    assert not content.add(pack_samples(again))
    assert sorted(content.keys()) == [number.to_bytes(2) for number in range(40)]
