"""Two nodes that run under one name, as after copying a configuration to another host."""

from __future__ import annotations

from ospltool.health.health import Health
from ospltool.live.expectation import Expectation
from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from tests import fake
from tests.fake import SECOND_NS as S
from tests.fake import START_NS, node_id

NAMES = {1: "n1", 2: "n2", 3: "n2"}


class Twins:
    """Nodes 2 and 3 have one name."""

    def __init__(self) -> None:
        self.model = SystemModel()
        self.health = Health(self.model, Expectation(("n1", "n2")))
        self.second = 0

    def run(self, seconds: int, *nodes: int, lost: int = 0, in_order: bool = False) -> None:
        for step in range(seconds):
            self.second += 1
            now_ns = START_NS + self.second * S
            everybody = [fake.fellow(one, now_ns, name=NAMES[one]) for one in nodes]
            heard = [
                ReceivedSnapshot(
                    fake.snapshot(
                        one,
                        fake.name_space("Orders", 1),
                        name=NAMES[one],
                        time_ns=now_ns,
                        started_ns=START_NS - (100 - one) * S,
                        fellows=tuple(each for each in everybody if each.id != node_id(one)),
                    ),
                    now_ns,
                )
                for one in nodes
            ]
            gone = FeedNotice(NoticeKind.NODE_LOST, now_ns, "", node_id(lost), in_order=in_order)
            self.model.apply(Update(tuple(heard), notices=(gone,) if lost and not step else ()), now_ns)
            self.health.update(now_ns)

    @property
    def open(self) -> list[tuple[str, str]]:
        return [(one.code.id, one.who) for one in self.health.open]


def test_two_nodes_of_one_name_are_told_until_one_of_them_stops() -> None:
    twins = Twins()
    twins.run(9, 1, 2)
    twins.run(6, 1, 2, 3)
    assert twins.open == [("DUL-NAME-SHARED", "n2")]
    assert twins.health.open[0].what == "two nodes of the name n2 run: on 10.0.0.2 and on 10.0.0.3"
    twins.run(6, 1, 2, lost=3, in_order=True)
    assert twins.open == []
    assert [one.code.id for one in twins.health.closed] == ["DUL-NAME-SHARED"]


def test_the_loss_of_one_of_two_nodes_of_one_name_is_told() -> None:
    for lost, left in ((2, 3), (3, 2)):
        twins = Twins()
        twins.run(9, 1, 2)
        twins.run(6, 1, 2, 3)
        twins.run(6, 1, left, lost=lost)
        assert twins.open == [("DUL-NODE-GONE", "n2")]


def test_a_node_that_lost_its_store_and_comes_back_has_its_name_alone() -> None:
    twins = Twins()
    twins.run(9, 1, 2)
    twins.run(1, 1)
    twins.run(1, 1, 3)
    twins.run(9, 1, 3, lost=2)
    assert twins.open == []
    assert {one.code.id for one in twins.health.closed} <= {"DUL-NODE-SILENT"}
