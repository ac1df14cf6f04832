"""What the console knows of persistence services, and what it concludes from their views."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from engine.persistence.service.replica_view import PeerView, ReplicaView, WriterView
from ospltool.cli.app import main
from ospltool.cli.persistence import text
from ospltool.diagnostics.model import Severity
from ospltool.health import export
from ospltool.health.health import Health
from ospltool.live import persistence
from ospltool.live.feed import FeedNotice, HeardReplica, Inbox, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from ospltool.live.persistence import ReplicaState, StreamKey, WatchedReplica
from ospltool.live.recorder import Recorder
from ospltool.live.replay import ReplayFeed
from tests import fake
from tests.fake import SECOND_NS, START_NS
from tests.health.looking import incidents

S = SECOND_NS
UP = (PeerView("b", "up"),)
FROM_B = fake.provided(1, direct=False, provider="b", selected="b", path=("b", "a"))
NOBODY = fake.provided(1, direct=False, provider="", selected="", path=(), lag_ns=S)


def behind(lag_s: float) -> WriterView:
    """Taken from b, and so far behind."""
    return dataclasses.replace(FROM_B, lag_ns=int(lag_s * S))


def model_of(*steps: tuple[float, ReplicaView]) -> SystemModel:
    """What a console knows that heard these views, each so many seconds after the start."""
    model = SystemModel()
    for after_s, view in steps:
        now_ns = START_NS + int(after_s * S)
        model.apply(Update(replicas=(HeardReplica(view, now_ns),)), now_ns)
    return model


def only(model: SystemModel) -> WatchedReplica:
    (found,) = model.persistence.ordered()
    return found


def lose(model: SystemModel, name: str, after_s: float) -> None:
    notice = FeedNotice(NoticeKind.REPLICA_LOST, START_NS + int(after_s * S), "", fake.replica(name).id)
    model.apply(Update(notices=(notice,)), notice.time_ns)


STABILITY: list[tuple[dict[str, Any], str]] = [
    ({"stable": 0, "unsettled": 0}, "0 of 2"),
    ({"stable": 1, "unsettled": 1}, "1 of 2"),
    ({"stable": 1, "unsettled": 5}, "1 of 2"),
    ({"stable": 1, "unsettled": 0}, "forced at 6"),
    ({"stable": 2, "unsettled": 0}, "stable"),
    ({"stable": 1, "stable_of": 1, "unsettled": 0}, "stable"),
]


@pytest.mark.parametrize(("changes", "expected"), STABILITY, ids=[str(case[0]) for case in STABILITY])
def test_stability_is_said_in_the_same_words_by_the_command_and_the_console(
    changes: dict[str, Any], expected: str
) -> None:
    writer = fake.provided(1, **changes)
    assert persistence.stability(writer) == expected
    assert f" {expected} " in text([fake.replica("a", writer)]).splitlines()[-1]


def test_the_stability_of_several_writers_is_that_of_the_worst() -> None:
    stable, unstable = fake.provided(1), fake.provided(1, stable=1, unsettled=1)
    forced = fake.provided(1, stable=1, unsettled=0)
    assert persistence.worst_stability([]) == "-"
    assert persistence.worst_stability([stable, stable]) == "stable"
    assert persistence.worst_stability([stable, unstable]) == "1 unstable"
    assert persistence.worst_stability([unstable, forced]) == "1 forced"


@pytest.mark.parametrize(
    ("lag_ns", "expected"),
    [
        (0, "-"),
        (1, "1 ms"),
        (40_900_000, "40 ms"),
        (100_000_000, "0.1 s"),
        (12_340_000_000, "12.3 s"),
        (10**13, "10,000.0 s"),
    ],
    ids=["none", "least", "little", "a tenth", "some", "much"],
)
def test_a_lag_is_source_time_in_seconds_however_large(lag_ns: int, expected: str) -> None:
    assert persistence.lag(lag_ns) == expected


STATES: dict[str, tuple[ReplicaView, ReplicaState]] = {
    "alone": (fake.replica("a", fake.provided(1)), ReplicaState.ALONE),
    "keeps to itself": (fake.replica("a", synchronizes=False, peers=UP), ReplicaState.ALONE),
    "connecting": (fake.replica("a", peers=(PeerView("ff00", "beginning"),)), ReplicaState.CONNECTING),
    "in step": (fake.replica("a", FROM_B, peers=UP), ReplicaState.IN_STEP),
    "a little behind": (fake.replica("a", behind(9), peers=UP), ReplicaState.IN_STEP),
    "far behind": (fake.replica("a", behind(11), peers=UP), ReplicaState.LAGS),
    "nobody gives it yet": (fake.replica("a", NOBODY, peers=UP), ReplicaState.IN_STEP),
    "problem": (fake.replica("a", FROM_B, peers=UP, problems=("disk full",)), ReplicaState.PROBLEM),
}


@pytest.mark.parametrize("case", STATES)
def test_a_replica_is_as_it_shows_itself(case: str) -> None:
    view, expected = STATES[case]
    assert only(model_of((0, view))).state(START_NS + S) is expected


@pytest.mark.parametrize(
    ("heard_s", "now_s", "expected"),
    [
        ([0], 3.9, ReplicaState.ALONE),
        ([0], 4.1, ReplicaState.SILENT),
        ([0, 1, 2], 5.9, ReplicaState.ALONE),
        ([0, 1, 2], 6.1, ReplicaState.SILENT),
        ([0, 3], 11.9, ReplicaState.ALONE),
        ([0, 3], 12.1, ReplicaState.SILENT),
        ([0, 1000], 1029, ReplicaState.ALONE),
        ([0, 1000], 1031, ReplicaState.SILENT),
    ],
)
def test_a_replica_that_shows_nothing_for_three_turns_is_silent(
    heard_s: list[float], now_s: float, expected: ReplicaState
) -> None:
    view = fake.replica("a", fake.provided(1))
    model = model_of(*((after_s, view) for after_s in heard_s))
    assert only(model).state(START_NS + int(now_s * S)) is expected


@pytest.mark.parametrize(("ending", "expected"), [(False, ReplicaState.GONE), (True, ReplicaState.STOPPED)])
def test_a_replica_whose_participant_is_gone_was_killed_or_has_ended(
    ending: bool, expected: ReplicaState
) -> None:
    model = model_of((0, fake.replica("a", ending=ending)))
    lose(model, "a", 1)
    assert only(model).state(START_NS + S) is expected


def test_a_replica_that_was_heard_since_is_not_lost() -> None:
    model = model_of((5, fake.replica("a")))
    lose(model, "a", 4)
    assert only(model).gone_ns == 0
    lose(model, "a", 6)
    model.apply(Update(replicas=(HeardReplica(fake.replica("a"), START_NS + 7 * S),)), START_NS + 7 * S)
    assert only(model).gone_ns == 0


def test_one_that_comes_with_a_new_store_takes_the_place_of_the_lost_one_of_its_name() -> None:
    again = fake.replica("a", id="ff" * 16)
    model = model_of((0, fake.replica("a")), (1, again))
    assert len(model.persistence) == 2, "both are there"
    model = model_of((0, fake.replica("a")))
    lose(model, "a", 1)
    model.apply(Update(replicas=(HeardReplica(again, START_NS + 2 * S),)), START_NS + 2 * S)
    assert only(model).id == again.id


def stream(model: SystemModel, view: WriterView = FROM_B) -> Any:
    return only(model).streams[StreamKey.from_view(view)]


def test_a_change_of_provider_is_noted_when_it_happens_before_our_eyes() -> None:
    from_c = dataclasses.replace(FROM_B, provider="c")
    filled = dataclasses.replace(from_c, filling=("b",))
    told = [fake.replica("a", writer) for writer in (FROM_B, FROM_B, from_c, filled, filled)]
    expected = [0, 0, START_NS + 2 * S, START_NS + 3 * S, START_NS + 3 * S]
    for number, changed_ns in enumerate(expected, 1):
        assert stream(model_of(*enumerate(told[:number]))).changed_ns == changed_ns


GROWING: list[tuple[list[int], bool]] = [
    ([1, 2, 3, 4, 5, 6, 7], True),
    ([1, 2, 3, 4, 5, 6], False),
    ([1, 1, 1, 1, 1, 1, 1], False),
    ([1, 2, 2, 2, 2, 3], False),
    ([1, 2, 2, 2, 2, 2, 3], True),
    ([7, 6, 5, 4, 3, 2, 1], False),
    ([1, 2, 3, 4, 5, 6, 7, 6], False),
    ([1, 2, 3, 4, 5, 6, 7] + [7] * 10, True),
    ([1, 2, 3, 4, 5, 6, 7] + [7] * 11, False),
]


@pytest.mark.parametrize(("lags_s", "expected"), GROWING, ids=str)
def test_a_lag_grows_when_it_rose_for_a_period_and_never_fell(lags_s: list[int], expected: bool) -> None:
    views = [fake.replica("a", behind(lag_s)) for lag_s in lags_s]
    model = model_of(*enumerate(views))
    assert stream(model).grows is expected


def check_incidents(model: SystemModel, expected: list[tuple[Severity, str]], now_s: float = 1) -> None:
    found = incidents(model, START_NS + int(now_s * S))
    assert [(one.severity, one.what) for one in found] == expected


def test_a_healthy_replica_is_no_incident() -> None:
    check_incidents(model_of((0, fake.replica("a", FROM_B, peers=UP))), [])


def test_absent_replicas_are_incidents_whatever_they_said_before() -> None:
    far = behind(60)
    model = model_of(*((0, fake.replica(name, far, problems=("x",))) for name in "abc"))
    model.apply(Update(replicas=(HeardReplica(fake.replica("b", ending=True), START_NS),)), START_NS)
    lose(model, "a", 2)
    lose(model, "b", 3)
    expected = [
        (Severity.ERROR, "persistence service a is gone"),
        (Severity.WARNING, "persistence service c is silent"),
    ]
    check_incidents(model, expected, now_s=9)


def test_problems_and_lags_are_incidents() -> None:
    far = [dataclasses.replace(behind(lag_s), topic=topic) for topic, lag_s in (("T", 60), ("U", 70))]
    expected = [
        (Severity.ERROR, "persistence service a: no space left on device"),
        (Severity.WARNING, "persistence service a lags 70.0 s, in Orders.T and 1 more"),
    ]
    view = fake.replica("a", *far, peers=UP, problems=("no space left on device",))
    check_incidents(model_of((0, view)), expected)
    growing = [(s, fake.replica("a", behind(s))) for s in range(1, 8)]
    expected = [
        (Severity.WARNING, "persistence service a lags 7.0 s and falls further behind, in Orders.Trade")
    ]
    check_incidents(model_of(*growing), expected, now_s=8)


def test_a_provider_that_is_missing_is_an_incident_after_the_bound_of_the_choice() -> None:
    expected = [(Severity.WARNING, "persistence service a has no provider of Orders.Trade")]
    turns = [(s, fake.replica("a", NOBODY, peers=UP)) for s in range(0, 40, 5)]
    check_incidents(model_of(*turns), [], now_s=36)
    turns += [(s, view) for s, (_, view) in zip((36, 37), turns, strict=False)]
    model = model_of(*turns)
    check_incidents(model, expected, now_s=38)
    assert incidents(model, START_NS + 38 * S)[0].since_ns == START_NS
    assert only(model).state(START_NS + 38 * S) is ReplicaState.NO_PROVIDER
    given = dataclasses.replace(NOBODY, filling=("b",))
    check_incidents(model_of(*turns, (38, fake.replica("a", given, peers=UP))), [], now_s=39)


QUORUM: list[tuple[tuple[str, ...], tuple[str, ...], int, int, bool]] = [
    ((), (), 1, 0, False),
    ((), (), 1, 5, True),
    (("x",), (), 1, 5, False),
    (("x",), (), 2, 5, True),
    (("x",), ("x",), 2, 5, True),
    (("x",), ("y",), 2, 5, False),
]


@pytest.mark.parametrize(("at_a", "at_b", "quorum", "pending", "expected"), QUORUM, ids=str)
def test_a_quorum_counts_the_readers_of_all_replicas(
    at_a: tuple[str, ...], at_b: tuple[str, ...], quorum: int, pending: int, expected: bool
) -> None:
    first = fake.subscription("log", members=at_a, quorum=quorum, pending=pending)
    second = dataclasses.replace(first, members=at_b)
    model = model_of(
        (0, fake.replica("a", subscriptions=(first,))), (0, fake.replica("b", subscriptions=(second,)))
    )
    assert model.persistence.lacks_quorum("redundant", first) is expected
    assert model.persistence.present("another", first) == set()


def test_more_replicas_than_the_bound_are_counted_and_told() -> None:
    model = SystemModel()
    heard = tuple(HeardReplica(fake.replica(f"i{n}"), START_NS) for n in range(1_001))
    model.apply(Update(replicas=heard), START_NS)
    assert len(model.persistence) == 1_000
    check_incidents(model, [(Severity.NOTICE, "1 message not shown: no room, or unreadable")])
    inbox = Inbox(max_nodes=2)
    for one in heard[:4]:
        inbox.put(one)
    assert inbox.drain() == Update(replicas=heard[:2], dropped=2)
    assert not inbox.drain()


def test_the_json_has_the_view_and_what_follows_from_it() -> None:
    log = fake.subscription("log", members=(), pending=7)
    view = fake.replica("a", behind(11), peers=UP, subscriptions=(log,))
    (data,) = export.system(Health(model_of((0, view))), START_NS + S)["persistence_services"]
    assert (data["name"], data["state"], data["heard_ns"], data["gone_ns"]) == ("a", "lags", START_NS, 0)
    (writer,) = data["writers"]
    assert (writer["provider"], writer["stability"], writer["is_behind"]) == ("b", "stable", True)
    assert (writer["lag_grows"], writer["lacks_provider"], writer["changed_ns"]) == (False, False, 0)
    assert (data["subscriptions"][0]["present"], data["subscriptions"][0]["lacks_quorum"]) == ([], True)
    json.dumps(data)


# Recordings.


def recorded(path: Path, seconds: int = 130) -> None:
    """A node and two replicas, of which b is killed after 70 s and heard again after 100 s."""
    recorder = Recorder(path, source="domain 7", made_by="test")
    for second in range(seconds):
        now_ns = START_NS + second * S
        node = ReceivedSnapshot(fake.snapshot(1, fake.name_space("A", 1, count=second)), now_ns)
        names = "ab" if second < 70 or second >= 100 else "a"
        shown = tuple(HeardReplica(fake.replica(n, FROM_B, values=second), now_ns) for n in names)
        lost = (
            (FeedNotice(NoticeKind.REPLICA_LOST, now_ns, "", fake.replica("b").id),) if second == 70 else ()
        )
        recorder.write(Update((node,), notices=lost, replicas=shown), now_ns)
    recorder.close()


@pytest.mark.parametrize(
    ("second", "values", "state"),
    [
        (3, 3, ReplicaState.ALONE),
        (65, 65, ReplicaState.ALONE),
        (72, 69, ReplicaState.GONE),
        (95, 69, ReplicaState.GONE),
        (129, 129, ReplicaState.ALONE),
    ],
)
def test_a_recording_shows_replicas_at_every_moment(
    tmp_path: Path, second: int, values: int, state: ReplicaState
) -> None:
    recorded(tmp_path / "r.jsonl")
    feed = ReplayFeed(tmp_path / "r.jsonl", paused=True)
    feed.seek(START_NS + second * S)
    model = SystemModel()
    model.apply(feed.poll(), feed.now_ns())
    feed.close()
    assert model.dropped == 0
    b = model.persistence.ordered()[1]
    assert b.view == fake.replica("b", FROM_B, values=values)
    assert b.state(feed.now_ns()) is state


def test_what_a_replica_shows_at_its_end_is_recorded_however_soon_it_comes(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "r.jsonl", source="domain 7", made_by="test")
    shown = fake.replica("a")
    for after_ms, view in ((0, shown), (100, shown), (200, dataclasses.replace(shown, ending=True))):
        now_ns = START_NS + after_ms * 1_000_000
        recorder.write(Update(replicas=(HeardReplica(view, now_ns),)), now_ns)
    lost = FeedNotice(NoticeKind.REPLICA_LOST, START_NS + S, "", shown.id)
    recorder.write(Update(notices=(lost,)), START_NS + S)
    recorder.close()
    assert recorder.tally.thinned == 1
    feed = ReplayFeed(tmp_path / "r.jsonl", paused=True)
    feed.seek(START_NS + S)
    model = SystemModel()
    model.apply(feed.poll(), feed.now_ns())
    feed.close()
    assert only(model).state(START_NS + S) is ReplicaState.STOPPED


def test_a_recording_says_its_replicas_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.jsonl"
    recorded(path)
    command = ["top", "--replay", str(path), "--json", "--screen", "persistence", "--at=+80"]
    assert main(command) == 0
    data = json.loads(capsys.readouterr().out)["data"]
    assert {one["name"]: one["state"] for one in data["persistence_services"]} == {"a": "alone", "b": "gone"}
    assert data["health"]["incidents"][0]["what"] == "persistence service b is gone"
    assert "nodes" not in data


def test_a_recording_of_persistence_services_alone_is_not_empty(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "r.jsonl", source="domain 7", made_by="test")
    recorder.write(Update(replicas=(HeardReplica(fake.replica("a"), START_NS),)), START_NS)
    recorder.close()
    assert main(["top", "--replay", str(tmp_path / "r.jsonl"), "--json"]) == 0


def test_where_there_is_none_the_json_is_empty_and_a_message_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorder = Recorder(tmp_path / "r.jsonl", source="domain 7", made_by="test")
    recorder.write(Update((ReceivedSnapshot(fake.snapshot(1), START_NS),)), START_NS)
    recorder.close()
    said = {
        ("--replay", str(tmp_path / "r.jsonl")): "no persistence service was heard up to this moment",
        ("--simulate", "none", "--minutes", "0.1"): "simulated systems have no persistence services",
    }
    for source, message in said.items():
        assert main(["top", *source, "--json", "--screen", "persistence"]) == 0
        out, err = capsys.readouterr()
        assert json.loads(out)["data"]["persistence_services"] == []
        assert message in err
