"""The start of many nodes: as many messages of each node, and as long, as with few."""

from __future__ import annotations

from benchmarks.crowd import start_up


def test_in_a_crowd_each_node_says_no_more_and_needs_no_longer_than_among_few() -> None:
    few, many = start_up(10), start_up(40)
    assert many.messages / 40 < 1.3 * few.messages / 10
    assert many.virtual_s < 1.3 * few.virtual_s
