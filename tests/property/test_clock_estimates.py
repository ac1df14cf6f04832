"""The estimate of a fellow's clock: heartbeats that come late never make clocks seem to differ more."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.core.fellows import ESTIMATES, Fellow

SKEWS = st.integers(-(10**12), 10**12)
DELAYS = st.integers(0, 10**12)


def estimated(skew_ns: int, delays_ns: list[int]) -> int:
    """What is estimated of a clock after heartbeats with these delays."""
    fellow = Fellow("n2", 1)
    for now, delay_ns in enumerate(delays_ns):
        fellow.note_skew(skew_ns - delay_ns, float(now))
    return fellow.least_skew_ns


@given(SKEWS, st.lists(DELAYS, min_size=1, max_size=12), st.data())
def test_one_heartbeat_of_five_that_did_not_wait_tells_the_clock(
    skew_ns: int, delays_ns: list[int], data: st.DataObject
) -> None:
    place = data.draw(st.integers(max(0, len(delays_ns) - ESTIMATES), len(delays_ns) - 1))
    delays_ns[place] = 0
    is_known = skew_ns >= 0 or len(delays_ns) >= ESTIMATES
    assert estimated(skew_ns, delays_ns) == (skew_ns if is_known else 0)


@given(SKEWS, st.lists(st.tuples(DELAYS, DELAYS), min_size=1, max_size=12))
def test_a_longer_delay_never_makes_a_clock_seem_faster(skew_ns: int, pairs: list[tuple[int, int]]) -> None:
    shorter = estimated(skew_ns, [min(pair) for pair in pairs])
    longer = estimated(skew_ns, [max(pair) for pair in pairs])
    assert longer <= max(0, shorter)
    assert longer <= max(0, skew_ns)


@given(st.lists(DELAYS, min_size=1, max_size=ESTIMATES - 1))
def test_heartbeats_that_waited_for_a_process_that_stood_still_are_no_slow_clock(
    delays_ns: list[int],
) -> None:
    assert estimated(0, [0] * ESTIMATES + delays_ns) == 0
    assert estimated(0, delays_ns) in (0, max(0, -min(delays_ns)))
