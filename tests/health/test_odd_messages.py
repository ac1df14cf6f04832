"""A message that can be read does no harm, whatever it says."""

from __future__ import annotations

import pytest

from tests.fuzzing import Target, faults
from tests.health.fuzz_watch import targets, watch


def test_events_with_odd_values_are_taken_in() -> None:
    for message in dict.fromkeys(targets()[0].corpus):
        watch(message)


@pytest.mark.parametrize("target", targets(), ids=lambda one: one.name)
def test_odd_values_end_no_watch(target: Target) -> None:
    assert [fault.what for fault in faults(target, range(1, 12))] == []
