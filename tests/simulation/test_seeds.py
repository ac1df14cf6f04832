"""A bounded set of simulated systems; thousands run with `python -m engine.simulator --seeds 1..2000`."""

from __future__ import annotations

import pytest

from engine.simulator.campaign import replay_command, run_seed

SEEDS = range(1, 13)


@pytest.mark.parametrize("seed", SEEDS)
def test_invariants_hold_under_the_faults_of_a_seed(seed: int) -> None:
    outcome = run_seed(seed)
    assert outcome.violation == "", replay_command(seed, "any")


def test_a_seed_replays_to_the_same_log() -> None:
    assert run_seed(3).digest == run_seed(3).digest
