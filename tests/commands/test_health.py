"""`ospltool health`: its lines, JSON, exit codes, mutes, and the fleet files that it takes."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from engine.runtime.monitor import NodeSnapshot, StoreStatus
from ospltool.cli.domains import DomainAccess
from ospltool.live.feed import ReceivedSnapshot, Update
from tests import fake
from tests.commands.shell import Shell
from tests.fake import ScriptedFeed

FLEET = """domain = 7
[[node]]
name = "n1"
[[node]]
name = "n2"
[[name-space]]
name = "A"
copies = 2
"""
pytestmark = pytest.mark.usefixtures("quick_health")
LATER_S = 0.3
FULL = StoreStatus("sqlite", "/x", problem="no space left on device")


Hear = Callable[..., None]


@pytest.fixture
def hear(monkeypatch: pytest.MonkeyPatch) -> Hear:
    """Lets the command hear nodes, by domain."""

    def let(*snapshots: NodeSnapshot, then: Update | None = None) -> None:
        def live_at(place: DomainAccess, partition: str | None) -> ScriptedFeed:
            now_ns = time.time_ns()
            mine = (one for one in snapshots if one.domain_id == place.domain_id)
            first = (now_ns, Update(tuple(ReceivedSnapshot(one, now_ns) for one in mine)))
            feed = ScriptedFeed([first], clock=time.time_ns)
            if then:
                threading.Timer(LATER_S, feed.add, (now_ns, then)).start()
            return feed

        monkeypatch.setattr("ospltool.cli.domains.live_at", live_at)

    return let


def node(number: int, *others: int, **changes: Any) -> NodeSnapshot:
    fellows = tuple(fake.fellow(n) for n in others)
    return fake.snapshot(number, fake.name_space("A", 1), fellows=fellows, **changes)


def test_nothing_wrong_is_one_line_and_0(shell: Shell, hear: Hear) -> None:
    hear(node(1))
    code, out, err = shell.run("health", "--domain", 7)
    assert (code, err) == (0, "")
    assert (
        out
        == "domain 7: OK · 1 of 1 node complete · redundancy left 0: the last copy (A: 1 copy, 1 on disk)\n"
    )


def test_an_error_is_told_with_why_effect_and_next_and_2(shell: Shell, hear: Hear) -> None:
    hear(node(1, store=FULL))
    code, out, _ = shell.run("health", "--domain", 7)
    assert code == 2
    first, heading, *rest = out.splitlines()
    assert first.startswith("domain 7: ERROR · 1 error · ")
    said = "  ERROR DUL-STORE-FULL n1: n1 store: no space left on device (since before 20"
    assert heading.startswith(said)
    assert [line.split(":")[0].strip() for line in rest] == ["why", "effect", "next"]
    assert rest[1] == "    effect: A: 1 copy, 0 on disk, the last copy, n1 is master"


def test_a_system_that_only_starts_is_1_and_not_ok(shell: Shell, hear: Hear) -> None:
    hear(node(1, state="FETCH_INITIAL", started_ns=fake.START_NS))
    code, out, _ = shell.run("health", "--domain", 7)
    assert (code, out.split(" · ")[0]) == (1, "domain 7: STARTING")


def test_a_warning_is_1_and_a_notice_0_and_nobody_3(shell: Shell, hear: Hear) -> None:
    hear(node(1, state="FETCH_INITIAL", time_ns=fake.START_NS + 1))
    assert shell.run("health", "--domain", 7)[0] == 1
    hear(node(1), then=Update(dropped=3, caption=""))
    assert shell.run("health", "--domain", 7)[0] == 0
    hear()
    code, out, _ = shell.run("health", "--domain", 7)
    first, why, advice = out.splitlines()
    assert (code, first) == (3, "domain 7: UNKNOWN · no node heard")
    assert why == "  why:    no node was heard since this watch began"
    assert advice.startswith("  next:   Run `ospltool status` on the host of a node. If none runs, start one")


def test_unknown_after_an_orderly_stop_says_why_and_what_to_do(shell: Shell, hear: Hear) -> None:
    for name in ("n1", "n2"):
        shell.write(name)
    fleet = "".join(f'[[node]]\nname = "{name}"\nfile = "{name}.xml"\n' for name in ("n1", "n2"))
    (shell.root / "fleet.toml").write_text(fleet)
    assert shell.run("start", "fleet.toml")[0] == 0
    assert shell.run("stop", "fleet.toml")[0] == 0
    hear()
    for given in (("fleet.toml",), ("--domain", 11)):
        code, out, _ = shell.run("health", *given)
        first, why, advice = out.splitlines()
        assert (code, first.split(" · ")[0]) == (3, "domain 11: UNKNOWN")
        assert re.fullmatch(r"  why:    n1 and n2 ended in order, the last at \d\d:\d\d:\d\d UTC", why)
        file = given[0] if len(given) == 1 else "FILE"
        assert advice == f"  next:   Start them again with `ospltool start {file}`."
    health = shell.data("health", "fleet.toml")[0]
    assert health["why"].startswith("n1 and n2 ended in order")
    code, out, err = shell.run("status", "fleet.toml")
    assert (code, out.count("is not running: stopped by SIGTERM\n")) == (1, 2)
    assert err == "ospltool: `ospltool start fleet.toml` starts them again\n"
    code, _, err = shell.run("status")
    assert err == "ospltool: `ospltool start FILE` starts them again\n"


def test_json_has_the_incidents_and_the_copies(shell: Shell, hear: Hear) -> None:
    hear(node(1, store=FULL))
    (system,) = shell.data("health", "--domain", 7)
    assert (system["domain"], system["verdict"], system["errors"]) == ("domain 7", "error", 1)
    (found,) = system["incidents"]
    assert (found["code"], found["who"], found["nodes"]) == ("DUL-STORE-FULL", "n1", ["n1"])
    assert found["page"] == "docs/health/DUL-STORE-FULL.md"
    assert found["began_before"]
    (copies,) = system["redundancy"]
    assert (copies["held_by"], copies["on_disk_of"], copies["left"]) == (["n1"], [], 0)


def test_a_fleet_says_who_is_expected(shell: Shell, hear: Hear) -> None:
    (shell.root / "fleet.toml").write_text(FLEET)
    hear(node(1))
    code, out, _ = shell.run("health", "fleet.toml")
    assert code == 2
    assert "ERROR DUL-NODE-ABSENT n2: n2 is expected and was not heard since this watch began (since " in out
    assert "1 of 2 nodes complete · redundancy left 0: the last copy (A: 1 of 2 copies, 1 on disk)" in out
    hear(node(1, 2), node(2, 1))
    assert shell.run("health", "fleet.toml")[0] == 0


def test_nodes_that_are_not_in_the_fleet_file_are_told(shell: Shell, hear: Hear) -> None:
    (shell.root / "fleet.toml").write_text(FLEET)
    hear(node(1, 2, 3), node(2, 1, 3), node(3, 1, 2))
    code, out, _ = shell.run("health", "fleet.toml")
    assert code == 0
    assert out.startswith("domain 7: OK · 2 of 2 nodes complete, 1 more not in the fleet file (n3) · ")


def test_a_configuration_expects_its_own_node_and_leaves_others_in_peace(shell: Shell, hear: Hear) -> None:
    path = shell.write("n2")
    hear(node(1, domain_id=11))
    code, out, _ = shell.run("health", path)
    assert code == 2
    assert out.startswith("domain 11: ERROR · 1 error · 1 of 2 nodes complete · ")
    assert "ERROR DUL-NODE-ABSENT n2: n2 is expected and was not heard since this watch began (since " in out
    hear(node(1, 2, domain_id=11), node(2, 1, domain_id=11))
    code, out, _ = shell.run("health", path)
    assert (code, out.split(" · ")[:2]) == (0, ["domain 11: OK", "2 of 2 nodes complete"])


def test_a_fleet_in_several_domains_is_told_domain_by_domain(shell: Shell, hear: Hear) -> None:
    (shell.root / "fleet.toml").write_text(
        FLEET.replace('"n2"\n', '"n2"\ndomain = 8\n').replace("2\n", "1\n")
    )
    hear(node(1), node(2, domain_id=8, store=FULL))
    code, out, _ = shell.run("health", "fleet.toml")
    assert code == 2
    assert [line.split(" · ")[0] for line in out.splitlines() if line.startswith("domain")] == [
        "domain 7: OK",
        "domain 8: ERROR",
    ]
    assert shell.run("health", "fleet.toml", "--domain", 7)[0] == 0
    code, _, err = shell.run("health", "fleet.toml", "--domain", 9)
    assert (code, err) == (2, "ospltool: fleet.toml has no node in domain 9\n")
    code, _, err = shell.run("top", "fleet.toml", "--json")
    assert (code, err) == (2, "ospltool: the fleet has the domains 7, 8; choose one with --domain\n")


def test_a_node_that_died_here_before_is_told_without_a_fleet_file(shell: Shell, hear: Hear) -> None:
    assert shell.run("start", shell.write("n2"))[0] == 0
    (status,) = shell.data("status")
    for pid in (status["supervisor_pid"], status["node_pid"]):
        os.kill(pid, signal.SIGKILL)
    shell.wait_until("has died", "n2")
    for heard, verdict in (
        ((), "domain 11: ERROR · 1 error"),
        ((node(1, domain_id=11),), "domain 11: ERROR"),
    ):
        hear(*heard)
        code, out, _ = shell.run("health", "--domain", 11)
        assert (code, out.split(" · redundancy")[0].startswith(verdict)) == (2, True)
        assert "ERROR DUL-NODE-GONE n2: n2 is gone, and was not heard since this watch began (since " in out
        why = r"why:    seen on its host at \d\d:\d\d:\d\d UTC: it had died, its supervisor was killed\n"
        assert re.search(why, out)


def test_a_run_directory_that_cannot_be_used_is_told(shell: Shell, hear: Hear) -> None:
    shell.runs.mkdir(mode=0o755)
    hear(node(1))
    code, out, err = shell.run("health", "--domain", 7)
    assert (code, out.startswith("domain 7: OK")) == (0, True)
    assert err.count(f"ospltool: {shell.runs}: others may enter it; chmod 700 it") == 1
    assert "not used" in err
    shell.runs.chmod(0o700)
    assert shell.run("health", "--domain", 7)[2] == ""


def test_a_wrong_fleet_is_refused_with_line_and_column(shell: Shell) -> None:
    (shell.root / "fleet.toml").write_text(FLEET.replace("copies = 2", " copies = 3"))
    code, _, err = shell.run("health", "fleet.toml")
    assert code == 2
    assert "fleet.toml:8:2: copies must be a number from 0 to 2" in err


def test_a_mute_counts_for_the_next_call_until_it_is_taken_away(shell: Shell, hear: Hear) -> None:
    hear(node(1, store=FULL))
    code, out, _ = shell.run("health", "mute", "--domain", 7, "dul-store-full:n1", "1h")
    assert (code, out.startswith("domain 7: DUL-STORE-FULL:n1 is muted until 20")) == (0, True)
    code, out, _ = shell.run("health", "--domain", 7)
    assert code == 0
    assert out.startswith("domain 7: OK · 1 muted · ")
    assert "  muted until " in out
    assert re.search(r"\n  mute DUL-STORE-FULL:n1 until 20.* UTC: hides DUL-STORE-FULL n1\n", out)
    (system,) = shell.data("health", "--domain", 7)
    (mute,), (incident,) = system["mutes"], system["incidents"]
    assert (mute["code"], mute["who"], mute["hides"]) == ("DUL-STORE-FULL", "n1", [incident["key"]])
    assert mute["until_ns"] == incident["muted_until_ns"]
    unmute = ("health", "unmute", "--domain", 7)
    said = "domain 7: DUL-STORE-FULL:n1 is not muted any more\n"
    assert shell.run(*unmute, "DUL-STORE-FULL:n1")[:2] == (0, said)
    assert shell.run(*unmute, "DUL-STORE-FULL")[:2] == (1, "domain 7: DUL-STORE-FULL was not muted\n")
    (ended,) = json.loads(shell.run(*unmute, "DUL-STORE-FULL", "--json")[1])["data"]
    assert ended == {"domain": "domain 7", "code": "DUL-STORE-FULL", "who": "", "ended": False}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("mute", "DUL-NODE-GON", "1h"), "no code 'DUL-NODE-GON'; did you mean "),
        (("mute", "DUL-NODE-GONE", "soon"), "'soon' is not a duration"),
        (("unmute", "x"), "no code 'x'"),
    ],
)
def test_what_cannot_be_muted_is_refused(shell: Shell, hear: Hear, arguments: Any, words: str) -> None:
    hear(node(1))
    code, _, err = shell.run("health", *arguments, "--domain", 7)
    assert code == 2
    assert words in err


@pytest.mark.parametrize(
    ("who", "words"),
    [
        (
            "n7",
            "ospltool: DUL-NODE-GONE:n7 matches nothing now: fleet.toml and domain 7 know no 'n7'\n",
        ),
        ("N2", "know no 'N2'; did you mean n2? Upper and lower case matter\n"),
        ("n1 and n7", "know no 'n1 and n7'"),
        ("n 2", "know no 'n 2'; did you mean n2?"),
        *((known, "") for known in ("n1", "n2", "the third one", "A", "n1 and n2", "domain")),
    ],
)
def test_a_mute_of_a_subject_that_nobody_knows_is_warned_of_once(
    shell: Shell, hear: Hear, who: str, words: str
) -> None:
    (shell.root / "fleet.toml").write_text(FLEET + '[[node]]\nname = "the third one"\n')
    hear(node(1))
    code, _, err = shell.run("health", "mute", f"DUL-NODE-GONE:{who}", "1h", "fleet.toml")
    assert code == 0
    told = [line for line in err.splitlines() if "matches nothing" in line]
    assert len(told) == bool(words)
    assert words in err
    if words:
        out = shell.run("health", "fleet.toml")[1]
        assert f"  mute DUL-NODE-GONE:{who} until " in out
        assert out.endswith(": hides nothing now\n")


def test_a_mute_of_a_subject_of_one_of_several_domains_is_no_mistake(shell: Shell, hear: Hear) -> None:
    (shell.root / "fleet.toml").write_text(
        FLEET.replace('"n2"\n', '"n2"\ndomain = 8\n').replace("2\n", "1\n")
    )
    hear(node(1), node(2, domain_id=8))
    assert "nothing" not in shell.run("health", "mute", "DUL-NODE-GONE:n2", "1h", "fleet.toml")[2]
    err = shell.run("health", "mute", "DUL-NODE-GONE:n7", "1h", "fleet.toml")[2]
    assert err.count("matches nothing now: fleet.toml, domain 7 and domain 8 know no 'n7'") == 1


def test_names_of_nodes_cannot_drive_a_terminal(shell: Shell, hear: Hear) -> None:
    hear(node(1, name="n\x1b[31m", store=FULL))
    assert "\x1b" not in shell.run("health", "--domain", 7)[1]


def test_watching_tells_that_an_incident_is_about_another_node_than_it_seemed(
    shell: Shell, hear: Hear, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that does not fit is refused by one node first, and by the others a moment later."""
    monkeypatch.setattr("ospltool.cli.domains.MOST_S", 0.01)
    now_ns = time.time_ns()

    def refusing(number: int, other: int, refused: int = 3) -> NodeSnapshot:
        others = (fake.fellow(other), fake.fellow(refused, communication="incompatible", problem="differs"))
        return fake.snapshot(number, fake.name_space("A", 1), fellows=others)

    hear(refusing(1, 2), node(2, 1, 3), then=Update((ReceivedSnapshot(refusing(2, 1), now_ns),)))
    timer = threading.Timer(3 * LATER_S, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    _, out, _ = shell.run("health", "--domain", 7, "--watch", "--json")
    timer.join()
    told = [json.loads(line)["data"][0]["incidents"] for line in out.splitlines()]
    assert [[one["who"] for one in each] for each in told] == [["n1 and n3"], ["n3"]]


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_the_last_line_of_watching_is_true_when_counts_have_changed(
    shell: Shell, hear: Hear, form: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ospltool.cli.health.SETTLED_S", 0.1)
    now_ns = time.time_ns()
    hear(node(1, 2), then=Update((ReceivedSnapshot(node(2, 1), now_ns),)))
    timer = threading.Timer(3 * LATER_S, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    _, out, _ = shell.run("health", "--domain", 7, "--watch", *form)
    timer.join()
    first, second = out.splitlines()
    if form:
        left = [json.loads(line)["data"][0]["redundancy"][0]["left"] for line in (first, second)]
        assert left == [0, 1]
    else:
        assert first.startswith("domain 7: OK · 1 of 1 node complete")
        assert " UTC domain 7: OK · 2 of 2 nodes complete · redundancy left 1 " in second


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_watching_tells_what_begins_and_ends_with_the_code_of_that_moment(
    shell: Shell, hear: Hear, form: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ospltool.cli.domains.MOST_S", 0.01)
    now_ns = time.time_ns()
    hear(node(1), then=Update((ReceivedSnapshot(node(1, store=FULL), now_ns),)))
    timer = threading.Timer(3 * LATER_S, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    code, out, _ = shell.run("health", "--domain", 7, "--watch", *form)
    timer.join()
    assert code == 2
    if form:
        first, second = (json.loads(line)["data"][0]["verdict"] for line in out.splitlines())
        assert (first, second) == ("ok", "error")
    else:
        assert out.startswith("domain 7: OK")
        assert " UTC began\n  ERROR DUL-STORE-FULL n1: " in out


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_watching_tells_that_a_mute_ended(
    shell: Shell, hear: Hear, form: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ospltool.cli.domains.MOST_S", 0.01)
    hear(node(1, store=FULL), then=Update((ReceivedSnapshot(node(1, store=FULL), time.time_ns()),)))
    timer = threading.Timer(3 * LATER_S, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    shell.run("health", "mute", "--domain", 7, "DUL-STORE-FULL:n1", "0.3s")
    _, out, _ = shell.run("health", "--domain", 7, "--watch", *form)
    timer.join()
    if form:
        last = json.loads(out.splitlines()[-1])["data"][0]
        assert [(one["who"], one["why"]) for one in last["ended_mutes"]] == [("n1", "its time is over")]
        assert last["mutes"] == []
    else:
        assert " UTC mute of DUL-STORE-FULL:n1 ended: its time is over\n" in out
        assert " UTC changed\n  ERROR DUL-STORE-FULL n1: " in out


def test_watching_tells_a_muted_incident_as_muted_in_one_line(
    shell: Shell, hear: Hear, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ospltool.cli.domains.MOST_S", 0.01)
    now_ns = time.time_ns()
    hear(node(1), then=Update((ReceivedSnapshot(node(1, store=FULL), now_ns),)))
    timer = threading.Timer(3 * LATER_S, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    shell.run("health", "mute", "--domain", 7, "DUL-STORE-FULL:n1", "1h")
    code, out, _ = shell.run("health", "--domain", 7, "--watch")
    timer.join()
    assert code == 0
    _, mute, began, muted, line = out.splitlines()
    assert mute.endswith(" UTC: hides nothing now")
    assert began.endswith(" UTC began")
    assert muted.startswith("  muted until 20")
    assert muted.endswith(" UTC: DUL-STORE-FULL n1: n1 store: no space left on device")
    assert " UTC domain 7: OK · 1 muted · " in line
