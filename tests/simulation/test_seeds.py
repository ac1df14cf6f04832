"""A bounded set of simulated systems; thousands run with `make sim`."""

from __future__ import annotations

import pathlib
import tomllib

import pytest

from engine.simulator.campaign import CLASSIC, Campaign, SeedOutcome
from engine.simulator.cluster import CHECKERS
from tests.property.samples import pack_early

SEEDS = range(1, 41)
FOUND = tomllib.loads((pathlib.Path(__file__).parent / "regressions.toml").read_text(encoding="utf-8"))[
    "found"
]


def check_clean(outcome: SeedOutcome) -> None:
    assert outcome.violation == "", outcome.replay


@pytest.mark.parametrize("seed", SEEDS)
def test_invariants_hold_under_the_faults_of_a_seed(seed: int) -> None:
    check_clean(Campaign().run(seed))


@pytest.mark.parametrize("seed", range(60, 70))
def test_invariants_hold_where_sets_are_packed(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pack_early(monkeypatch)
    check_clean(Campaign().run(seed))


@pytest.mark.parametrize("found", FOUND, ids=[str(found["seed"]) for found in FOUND])
def test_what_was_found_once_stays_mended(found: dict[str, str | int]) -> None:
    assert found["rule"] in {"quiet", "busy", "fault", *(checker.invariant for checker in CHECKERS)}
    check_clean(Campaign(str(found.get("faults", CLASSIC))).run(int(found["seed"])))


def test_a_seed_replays_to_the_same_log() -> None:
    outcomes = [Campaign().run(3), Campaign().run(3), *Campaign().run_all(range(3, 5), jobs=2)]
    assert len({outcome.digest for outcome in outcomes[:3]}) == 1
    assert outcomes[3].digest != outcomes[0].digest
