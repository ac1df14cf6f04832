"""Effects on many name-spaces are told together, and each in one place."""

from __future__ import annotations

import pytest

from engine.runtime.monitor import NodeEvent
from ospltool.health.codes import codes
from ospltool.health.health import Health
from ospltool.live.expectation import NOTHING
from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from tests import fake
from tests.fake import SECOND_NS as S
from tests.fake import START_NS, node_id
from tests.health.test_incidents import Ward
from tests.simulation.scenarios import node


def lost(
    *lost_at: tuple[int, int],
    names: int = 1,
    changed: int = 0,
    events: tuple[NodeEvent, ...] = (),
    purged_s: int = 20,
) -> Health:
    """Four nodes with name-spaces, of which (node, second) leave; of one name-space they had more samples.

    From `purged_s` on the others have fewer, as applications have disposed of them.
    """
    model = SystemModel()
    health = Health(model)
    spaces = [f"space-{number:02d}" for number in range(1, names + 1)]
    for second in range(20):
        now_ns = START_NS + second * S
        gone = {number for number, at in lost_at if second >= at}
        heard = [
            fake.snapshot(
                number,
                *(
                    fake.name_space(
                        name,
                        1,
                        count=(1003 if index < changed and number > 1 else 1000) - 400 * (second >= purged_s),
                    )
                    for index, name in enumerate(spaces)
                ),
                time_ns=now_ns,
                fellows=tuple(fake.fellow(n, now_ns) for n in (1, 2, 3, 4) if n != number and n not in gone),
            )
            for number in (1, 2, 3, 4)
            if number not in gone
        ]
        notices = tuple(
            FeedNotice(NoticeKind.NODE_LOST, now_ns, "", node_id(number))
            for number, at in lost_at
            if second == at
        )
        told = tuple(one for one in events if one.time_ns == now_ns)
        model.apply(
            Update(tuple(ReceivedSnapshot(one, now_ns) for one in heard), told, notices=notices), now_ns
        )
        health.update(now_ns)
    return health


def effects(health: Health) -> dict[str, str]:
    return {one.who: one.effect for one in (*health.open, *health.muted)}


REST = "3 copies, 3 on disk, n1 is master"


@pytest.mark.parametrize(
    ("names", "effect"),
    [
        (1, f"space-01: {REST}, nothing lost"),
        (3, f"space-01, space-02 and space-03: {REST}, nothing lost"),
        (12, f"12 name-spaces: {REST}, nothing lost"),
    ],
)
def test_what_is_equal_for_name_spaces_is_told_once(names: int, effect: str) -> None:
    (found,) = lost((4, 5), names=names).open
    assert found.effect == effect


def test_what_differs_is_told_of_its_name_space() -> None:
    told = effects(lost((2, 5), (3, 5), (4, 5), names=12, changed=1))
    last = "1 copy, 1 on disk, the last copy, n1 is master"
    assert told["n2"] == (f"space-01: {last}, it had 3 samples more; 11 name-spaces: {last}, nothing lost")
    rest = "copies and masters as in DUL-NODE-GONE n2"
    assert told["n4"] == f"space-01: it had 3 samples more; 11 name-spaces: nothing lost; {rest}"


@pytest.mark.parametrize(("changed", "told"), [(0, "nothing lost"), (1, "it had 3 samples more")])
def test_what_is_purged_after_a_loss_was_not_lost_with_the_node(changed: int, told: str) -> None:
    found = effects(lost((2, 5), (3, 5), (4, 5), changed=changed, purged_s=12))["n2"]
    assert found.endswith(told)


def test_the_first_of_a_list_of_losses_tells_the_copies_that_are_left() -> None:
    health = lost((4, 5), (3, 9))
    assert [(one.who, one.effect) for one in health.open] == [
        ("n4", "space-01: 2 copies, 2 on disk, n1 is master, nothing lost"),
        ("n3", "space-01: nothing lost; copies and masters as in DUL-NODE-GONE n4"),
    ]


def test_an_incident_that_changes_no_copies_does_not_tell_those_that_another_one_changed() -> None:
    """A node that is stuck runs and holds its copy, whatever became of another one."""
    text = 'Progress changed: "store"(77):d:5->5'
    stuck = fake.event(1, 1, START_NS + 10 * S, text, event="watch.progress-lost", level="WARNING")
    told = effects(lost((4, 5), events=(stuck,)))
    assert told["n4"] == "space-01: 3 copies, 3 on disk, n1 is master, nothing lost"
    assert told["n1"] == codes()["DUL-NODE-STUCK"].effect


def test_what_a_muted_incident_does_not_tell_is_told_by_another_one() -> None:
    health = lost((3, 5), (4, 9))
    health.mute("DUL-NODE-GONE", "n4", 60 * S)
    for _ in health.examine(START_NS + 20 * S):
        pass
    assert effects(health)["n3"].startswith("space-01: 2 copies, 2 on disk, n1 is master")


def test_masters_that_drift_apart_are_told_once_of_all_name_spaces() -> None:
    """Each of the two sides has two nodes, so there are two incidents of nodes that do not hear others."""
    spaces = tuple(f"ns{number}" for number in range(1, 6))
    ward = Ward(*(node(f"n{number}", spaces=spaces) for number in (1, 2, 3, 4)))
    ward.start()
    ward.scenario.cut("n1 n2", "n3 n4")
    ward.run(8)
    found = [one.effect for one in ward.health.open if one.code.id == "DUL-PARTIAL-MESH"]
    assert len(found) == 2
    assert sum(effect.startswith("5 name-spaces: ") for effect in found) == 1, found
    assert sum(effect.count(" are masters") for effect in found) == 1, found


def test_what_only_a_refusing_disk_lacks_is_counted_however_old_its_samples_are() -> None:
    """Each instance is on the disk in an older state, so the disk has as many samples as the memory."""
    ward = Ward(node("n1"), expected=NOTHING)
    ward.start()
    ward.scenario.write("n1", *range(1, 9))
    ward.run(5)
    ward.scenario.node("n1").medium.failing = True
    told = []
    for numbers in ((1,), (2, 3), (2, 4, 5, 6, 7, 8)):
        ward.scenario.write("n1", *numbers)
        ward.run(5)
        told += [one.effect for one in ward.health.open if one.code.cause == "store"]
    assert [effect.partition("master, ")[2] for effect in told] == [
        "1 sample in memory only on n1",
        "3 samples in memory only on n1",
        "8 samples in memory only on n1",
    ]
