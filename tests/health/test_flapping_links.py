"""What is told of a node whose link is cut again and again: late heartbeats, and losses of their own."""

from __future__ import annotations

from ospltool.health.news import IncidentNews
from ospltool.live.feed import FeedNotice, NoticeKind, Update
from tests import fake
from tests.fake import SECOND_NS as S
from tests.fake import START_NS, node_id
from tests.health.test_alarms import THREE, Watch

LATE = "Heartbeat of fellow n3 came after 1.5 seconds (its period is 0.5, it is lost after 2.0)."


def flapping() -> tuple[Watch, list[tuple[str, str, int]]]:
    """n3 is late once, and then lost three times for three seconds; returns what is told of it."""
    watch, news = Watch(THREE), IncidentNews(5.0)
    told: list[tuple[str, str, int]] = []

    def run(seconds: int, *nodes: int) -> None:
        for _ in range(seconds):
            watch.run(1, *nodes)
            second = watch.second
            told.extend((how, one.code.id, second) for how, one in news.changes(watch.health, float(second)))

    run(20, 1, 2, 3)
    late = fake.event(1, 1, watch.now_ns, LATE, event="fellow.late", level="WARNING")
    watch.model.apply(Update(events=(late,)), watch.now_ns)
    run(2, 1, 2, 3)
    for _ in range(3):
        run(1, 1, 2)
        notices = (FeedNotice(NoticeKind.NODE_LOST, watch.now_ns, "", node_id(3)),)
        watch.model.apply(Update(notices=notices), watch.now_ns)
        run(2, 1, 2)
        run(4, 1, 2, 3)
    return watch, told


def test_a_late_heartbeat_is_no_beginning_of_a_loss_and_not_told_again_after_it() -> None:
    watch, told = flapping()
    of_late = [(how, code) for how, code, _ in told if code == "DUL-HEARTBEAT-LATE"]
    assert of_late == [("began", "DUL-HEARTBEAT-LATE"), ("joined", "DUL-HEARTBEAT-LATE")]
    losses = [one for one in watch.health.closed if one.code.id == "DUL-NODE-GONE"]
    assert [(one.since_ns - START_NS) // S for one in reversed(losses)] == [22, 29, 36]
    assert [one.times for one in reversed(losses)] == [1, 2, 3]
    began = [how for how, code, _ in told if code == "DUL-NODE-GONE" and how != "ended"]
    assert began == ["began"] * 3
    assert watch.open == []
