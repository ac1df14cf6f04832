"""`ospltool health RECORDING`: what is told of a system as it was recorded."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from ospltool.live.expectation import Expectation
from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.recorder import Recorder, RecordingLimits
from tests import fake
from tests.commands.shell import Shell
from tests.commands.test_health import node

pytestmark = pytest.mark.usefixtures("quick_health")


def recorded(path: Path, lost_s: int, back_s: int, seconds: int = 40) -> None:
    """Record two nodes, of which n2 is not heard for a while."""
    recorder = Recorder(path, source="domain 3", made_by="test", expected=Expectation(("n1", "n2")))
    for second in range(seconds):
        now_ns = fake.START_NS + second * fake.SECOND_NS
        numbers = (1,) if lost_s <= second < back_s else (1, 2)
        shown = (msgspec.structs.replace(node(n, 3 - n), time_ns=now_ns) for n in numbers)
        lost = FeedNotice(NoticeKind.NODE_LOST, now_ns, "", fake.node_id(2))
        notices = (lost,) if second == lost_s + 1 else ()
        recorder.write(Update(tuple(ReceivedSnapshot(one, now_ns) for one in shown), notices=notices), now_ns)
    recorder.close()


def test_a_recording_tells_its_state_at_the_end_and_all_that_happened(shell: Shell) -> None:
    recorded(shell.root / "night.jsonl", 10, 20)
    code, out, _ = shell.run("health", "night.jsonl")
    assert code == 0
    assert out.startswith("recording night.jsonl until 2026-11-21 01:03:59 UTC: OK · 2 of 2 nodes complete")
    code, out, _ = shell.run("health", "night.jsonl", "--json")
    assert (code, [one["who"] for one in json.loads(out)["data"][0]["closed"]]) == (0, ["n2"])
    code, out, _ = shell.run("health", "night.jsonl", "--watch")
    told = [line for line in out.splitlines() if line.endswith(("began", "changed", "ended"))]
    assert [line.split()[-1] for line in told if "changed" not in line] == ["began", "ended"]
    began, ended = (line.split()[1] for line in (told[0], told[-1]))
    assert "01:03:30" < began < "01:03:33" < "01:03:40" < ended < "01:03:44"
    assert "DUL-NODE-GONE n2: n2 is gone" in out
    _, out, _ = shell.run("health", "night.jsonl", "--watch", "--json")
    documents = [json.loads(line)["data"][0] for line in out.splitlines()]
    assert ["n2"] in [[one["who"] for one in each["incidents"]] for each in documents]
    assert [one["who"] for one in documents[-1]["closed"]] == ["n2"]


def test_the_code_of_a_recording_is_that_of_its_end(shell: Shell) -> None:
    recorded(shell.root / "night.jsonl", 10, 99)
    code, out, _ = shell.run("health", "night.jsonl")
    assert code == 2
    assert "ERROR DUL-NODE-GONE n2: n2 is gone (since 2026-11-21 01:03:29 UTC, 30 s)" in out
    assert shell.run("health", "night.jsonl", "--watch")[0] == 2


def ended(path: Path, *, in_order: bool) -> None:
    """Record two nodes that end at once, and nothing after that until the recorder ended."""
    recorder = Recorder(path, source="domain 3", made_by="test")
    for second in range(12):
        now_ns = fake.START_NS + second * fake.SECOND_NS
        shown = (msgspec.structs.replace(node(n, 3 - n), time_ns=now_ns) for n in (1, 2))
        recorder.write(Update(tuple(ReceivedSnapshot(one, now_ns) for one in shown)), now_ns)
    lost_ns = now_ns + 2 * fake.SECOND_NS
    lost = [FeedNotice(NoticeKind.NODE_LOST, lost_ns, "", fake.node_id(n), in_order) for n in (1, 2)]
    all_lost = [] if in_order else [FeedNotice(NoticeKind.DOMAIN_LOST, lost_ns, "")]
    recorder.write(Update(notices=(*lost, *all_lost)), lost_ns)
    recorder.close()


def test_the_last_line_of_a_recording_is_told(shell: Shell) -> None:
    ended(shell.root / "night.jsonl", in_order=False)
    for more in ((), ("--watch",)):
        code, out, _ = shell.run("health", "night.jsonl", *more)
        assert (code, "ERROR DUL-DOMAIN-LOST domain" in out) == (2, True)


def test_a_recording_of_nodes_that_ended_in_order_is_unknown_at_its_end(shell: Shell) -> None:
    ended(shell.root / "night.jsonl", in_order=True)
    for more in ((), ("--watch",)):
        code, out, _ = shell.run("health", "night.jsonl", *more)
        assert (code, "UNKNOWN · no node heard" in out) == (3, True), out


@pytest.mark.parametrize(("seconds", "is_told"), [(1, False), (4, True)])
def test_a_word_that_passes_is_not_told(shell: Shell, seconds: int, *, is_told: bool) -> None:
    """While nodes start one after the other, the verdict is STARTING for a moment each time."""
    path = shell.root / "night.jsonl"
    recorder = Recorder(path, source="domain 3", made_by="test", limits=RecordingLimits(every_ns=0))
    for tick in range(80):
        now_ns = fake.START_NS + tick * fake.SECOND_NS // 4
        state = "FETCH_INITIAL" if 40 <= tick < 40 + 4 * seconds else "COMPLETE"
        one = node(1, state=state, time_ns=now_ns, started_ns=fake.START_NS)
        recorder.write(Update((ReceivedSnapshot(one, now_ns),)), now_ns)
    recorder.close()
    code, out, _ = shell.run("health", "night.jsonl", "--watch")
    assert code == 0
    assert ("STARTING" in out) is is_told


def test_a_recording_cannot_be_muted_and_is_of_its_domain(shell: Shell) -> None:
    recorded(shell.root / "night.jsonl", 10, 20, 3)
    code, _, err = shell.run("health", "night.jsonl", "--domain", "3")
    assert (code, "a recording takes no --domain" in err) == (2, True)
    code, _, err = shell.run("health", "mute", "DUL-NODE-GONE", "1h", "night.jsonl")
    assert (code, "is a recording, not a configuration" in err) == (2, True)


def test_a_recording_is_refused_with_the_commands_that_read_it(shell: Shell) -> None:
    recorded(shell.root / "night.jsonl", 10, 20, 3)
    code, _, err = shell.run("metrics", "night.jsonl")
    assert code == 2
    assert "ospltool: night.jsonl is a recording" in err
    assert "`ospltool health night.jsonl` tells its incidents" in err
    assert "`ospltool top --replay night.jsonl` shows it" in err
