"""A difference of sets that alignment mends in its ordinary time is no incident; one that stays is."""

from __future__ import annotations

import pytest

from engine.runtime.monitor import AlignmentView
from ospltool.health.health import Health
from ospltool.live.feed import ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from tests import fake
from tests.fake import SECOND_NS as S
from tests.fake import START_NS, node_id

LOOKS_S = 0.25


def told(
    mended_s: float, *, shown_s: float = 0.0, aligned_s: tuple[float, float] = (0, 0), elected_s: float = 0.0
) -> tuple[float, float]:
    """When a difference that begins at 0 s is told, and since when it is said to be; (-1, -1) for never.

    n3 was killed while its writer wrote, and n2 lacks what n1 has until `mended_s`. n2 shows itself by
    `shown_s` later than n1, is aligned from and until `aligned_s`, and follows n1 since `elected_s`.
    """
    model = SystemModel()
    health = Health(model)
    for step in range(round(14 / LOOKS_S)):
        at_s = step * LOOKS_S
        now_ns = START_NS + round(at_s * S)
        since_ns = START_NS + round(elected_s * S)
        whole = fake.name_space("Orders", 1, digest="whole")
        alignment = AlignmentView("from", node_id(1), 0, 9, 0, now_ns)
        mine = fake.name_space(
            "Orders",
            1 if at_s >= elected_s else 3,
            digest="whole" if at_s >= mended_s else "less",
            alignments=(alignment,) if aligned_s[0] <= at_s < aligned_s[1] else (),
            master_since_ns=since_ns if at_s >= elected_s else START_NS - 600 * S,
        )
        heard = []
        for number, view, part_s in ((1, whole, 0.0), (2, mine, shown_s)):
            if (at_s - part_s) % 1 == 0:
                fellows = (fake.fellow(3 - number, now_ns),)
                shown = fake.snapshot(number, view, time_ns=now_ns, fellows=fellows, update_period_ns=S)
                heard.append(ReceivedSnapshot(shown, now_ns))
        model.apply(Update(tuple(heard)), now_ns)
        health.update(now_ns)
        for one in health.open:
            if one.code.id == "DUL-SET-DIFFERS":
                return at_s, (one.since_ns - START_NS) / S
    return -1, -1


@pytest.mark.parametrize("shown_s", [0.0, 0.25, 0.5, 0.75])
@pytest.mark.parametrize("mended_s", [2.0, 3.0, 3.5])
def test_a_difference_that_alignment_mends_in_its_time_is_no_incident(
    mended_s: float, shown_s: float
) -> None:
    assert told(mended_s, shown_s=shown_s) == (-1, -1)


@pytest.mark.parametrize("shown_s", [0.0, 0.25, 0.5, 0.75])
def test_a_difference_that_stays_is_told_with_its_beginning(shown_s: float) -> None:
    told_s, since_s = told(99, shown_s=shown_s)
    assert 3.5 <= told_s <= 5
    assert since_s <= 1


def test_a_difference_that_is_being_mended_is_no_incident() -> None:
    assert told(8, aligned_s=(3, 9)) == (-1, -1)


def test_the_time_of_alignment_begins_with_the_master_that_is_compared_with() -> None:
    """Before its election nobody was there to compare with."""
    assert told(6, elected_s=3) == (-1, -1)
    assert 6.5 <= told(99, elected_s=3)[0] <= 8
