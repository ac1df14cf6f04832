"""Some damaged inputs for each reader of foreign bytes; `make fuzz` tries more."""

from __future__ import annotations

import pathlib

import pytest

from tests.client import fuzz_client
from tests.fuzz import Tally, run
from tests.fuzzing import Target, faults
from tests.property import fuzz_messages
from tests.unit import fuzz_files

SEEDS = range(3_000_000, 3_000_040)


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> list[Target]:
    scratch = tmp_path_factory.mktemp("fuzzed")
    return [*fuzz_messages.targets(), *fuzz_client.targets(scratch), *fuzz_files.targets(scratch)]


def test_damaged_messages_and_files_are_refused_or_read(targets: list[Target]) -> None:
    found = [fault for target in targets for fault in faults(target, SEEDS)]
    assert not found, "\n".join(f"{each.target}, seed {each.seed}:\n{each.what}" for each in found)


def test_each_reader_takes_in_some_of_what_it_is_given(targets: list[Target]) -> None:
    """A corpus that every reader refuses at once would find nothing."""
    for target in targets:
        for whole in target.corpus:
            target.read(whole)
        assert len({target.damage(target.corpus[0], seed) for seed in SEEDS}) > len(SEEDS) // 3, target.name


def fail(data: bytes) -> None:
    raise KeyError("planted")


def test_a_fault_is_counted_with_its_seed_and_a_tally_goes_on_where_it_ended(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[bytes] = []
    good = Target("good", [b"12345678"], seen.append, goal=10)
    bad = Target("bad", [b"12345678"], fail, goal=3)
    path = tmp_path / "tally.json"
    assert run([good, bad], Tally(path, 5), 60.0, None) == 3
    assert "bad, seed 5:" in capsys.readouterr().out
    assert len(seen) == 10
    again = Tally(path, 99)
    assert (again.seed, again.of(good).inputs, again.of(bad).seeds) == (5, 10, [5, 6, 7])
    assert run([good, bad], again, 60.0, None) == 0
    assert len(seen) == 10
    assert run([Target("good", [b"12345678"], seen.append, goal=12)], again, 60.0, None) == 0
    assert len(seen) == 12
    assert list(again.lines([good]))[1].split()[:3] == ["good", "12", "10"]
