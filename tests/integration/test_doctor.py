from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.configurations import Settings, Space
from tests.integration.lab import Lab
from tests.integration.programs import ROOT

pytestmark = pytest.mark.dds


@contextlib.contextmanager
def application(lab: Lab, *ends: dict[str, Any]) -> Iterator[None]:
    """A process with these writers and readers."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.doctor.ends", json.dumps({"domain": lab.domain, "ends": ends})],
        cwd=ROOT,
        env=lab.environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield
    finally:
        process.stdin.close()
        process.wait(20)
        process.stdout.close()


def doctor(lab: Lab, *arguments: str) -> tuple[int, str, str]:
    """Exit code, data, narration."""
    done = subprocess.run(
        [sys.executable, "-m", "ospltool.cli.app", "doctor", "--domain", str(lab.domain), *arguments],
        cwd=ROOT,
        env=lab.environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def writer(topic: str, **traits: Any) -> dict[str, Any]:
    return {"topic": topic, "is_writer": True, **traits}


def reader(topic: str, **traits: Any) -> dict[str, Any]:
    return {"topic": topic, "is_writer": False, **traits}


@pytest.fixture
def bare(tmp_path: Any, lab: Lab) -> Lab:
    """A domain in which nobody is but those that the test starts."""
    assert lab.watch is not None
    lab.watch.close()
    lab.watch = None
    return lab


def test_real_endpoints_are_judged_and_both_sides_named(bare: Lab) -> None:
    ends = [
        writer("Refused"),
        reader("Refused", durability="Persistent"),
        writer("Lossy", reliable=False, durability="Volatile"),
        reader("Lossy", reliable=False, durability="Volatile", by_source=False),
    ]
    with application(bare, *ends):
        code, data, _ = doctor(bare, "--json", "--for", "2s")
        text_code, text, _ = doctor(bare, "--for", "2s", "--topic", "Refused")
        none_code, _, none = doctor(bare, "--for", "2s", "--topic", "Nope*")
    document = json.loads(data)
    assert (code, document["kind"], document["format_version"]) == (1, "doctor", 1)
    findings = document["data"]["findings"]
    found = {(*each["topics"], each["weight"], each["cause"]) for each in findings}
    assert found == {
        ("Refused", "error", "incompatible-durability"),
        ("Refused", "warning", "nobody-keeps"),
        ("Lossy", "warning", "reliability"),
        ("Lossy", "warning", "durability"),
    }
    (refusal,) = (each for each in findings if each["cause"] == "incompatible-durability")
    assert "offered TRANSIENT, requested PERSISTENT" in refusal["message"]
    assert len(refusal["writers"]) == len(refusal["readers"]) == 1
    assert document["data"]["writers"] == {"seen": 2, "not_eventually_consistent": 2}
    assert text_code == 1
    assert "topic Refused" in text
    assert "Lossy" not in text
    assert (none_code, none) == (1, "ospltool: no topic matches 'Nope*': 2 topics heard\n")


def test_a_sound_system_with_a_node_has_no_finding_and_only_what_it_keeps_is_kept(lab: Lab) -> None:
    lab.configure("n1", Settings(spaces=(Space(),)))
    lab.start("n1")
    lab.seen.wait_for("it is complete", lambda: lab.seen.are_complete("n1"))
    with application(lab, writer("Kept"), reader("Kept")):
        code, data, _ = doctor(lab, "--json", "--for", "2s")
    sound = json.loads(data)["data"]
    assert (code, sound["findings"], sound["nodes"]) == (0, [], ["n1"])
    assert (sound["writers"]["seen"], sound["readers"]["seen"]) == (1, 1)
    assert sound["protocol_endpoints"] > 0
    with application(lab, writer("Kept", partition="elsewhere")):
        code, data, _ = doctor(lab, "--json", "--for", "2s")
    assert code == 1
    assert [each["cause"] for each in json.loads(data)["data"]["findings"]] == ["nobody-keeps"]


def test_a_history_that_the_service_cuts_is_told_until_the_line_is_written(lab: Lab) -> None:
    """By the doctor, by health and by the group that consoles show; what is written then is kept."""
    step = {"count": 1, "first": 0, "time": 1_000, "value": 1}
    steps = [{**step, "time": step["time"] + number} for number in range(5)]
    lab.start_complete("n1", settings=Settings(spaces=(Space(),)))
    lab.write(*steps)
    with application(lab, writer("Reading", history=5), reader("Reading", history=5)):
        lab.seen.wait_for("the node shows it", lambda: [one.asked for one in lab.seen.groups("n1")] == [5])
        (group,) = lab.seen.groups("n1")
        assert (group.is_cut, group.samples, group.kept_depth) == (True, 1, 1)
        code, data, _ = doctor(lab, "--json", "--for", "2s")
        _, told = lab.ospltool("n1", "health", "--json")
    (finding,) = (one for one in json.loads(data)["data"]["findings"] if one["cause"] == "history-cut")
    assert (code, finding["weight"], finding["nodes"]) == (1, "warning", ["n1"])
    assert len(finding["writers"]) == len(finding["readers"]) == 1
    line = "Policy.DurabilityService(duration(infinite=True), Policy.History.KeepLast(5), -1, -1, -1)"
    assert finding["advice"].endswith(line)
    (domain,) = json.loads(told)["data"]
    (incident,) = domain["incidents"]
    assert (incident["code"], incident["severity"]) == ("DUL-HISTORY-CUT", "notice")
    assert incident["next"].endswith(line)

    lab.write(*({**each, "time": 2_000 + number} for number, each in enumerate(steps)), depth=5)
    (event,) = lab.trace("n1", "group.deepened")
    assert event["differences"] == "history KEEP_LAST 5 (it was KEEP_LAST 1)"
    assert event["differences"] in lab.information("n1")
    late = lab.reader(depth=5)
    late.wait(5)
    lab.stop("n1")
    lab.start_complete("n1")
    lab.reader(depth=5).wait(5)
    with application(lab, writer("Reading", history=5), reader("Reading", history=5)):
        code, data, _ = doctor(lab, "--json", "--for", "2s")
    (finding,) = (one for one in json.loads(data)["data"]["findings"] if one["cause"] == "history-cut")
    assert finding["weight"] == "info", "the late readers are KEEP_ALL, and want all"
    assert (len(finding["writers"]), len(finding["readers"])) == (0, 2)


def incidents(lab: Lab) -> list[tuple[str, str]]:
    """The codes and reasons of the open incidents."""
    (domain,) = json.loads(lab.ospltool("n1", "health", "--json")[1])["data"]
    return [(one["code"], one["why"]) for one in domain["incidents"]]


def test_readers_that_get_nothing_of_a_writer_that_is_gone_are_told_while_they_are_there(lab: Lab) -> None:
    lab.start_complete("n1", settings=Settings(spaces=(Space(),)))
    lab.write({"count": 3, "time": 1_000}, durability=2)
    refused = reader("Reading", durability="Persistent")
    wrong = [reader("Reading", exclusive=True), reader("Reading", partition="stok")]
    with application(lab, refused), application(lab, reader("Reading", deadline_s=1), *wrong):
        lab.wait_delivered(2)
        code, data, _ = doctor(lab, "--json", "--for", "2s")
        told = incidents(lab)
    findings = json.loads(data)["data"]["findings"]
    told_of = {(each["cause"], each["weight"], len(each["readers"])) for each in findings}
    assert (code, told_of - {("reader-deviates", "info", 2)}) == (
        1,
        {
            ("incompatible-durability", "error", 1),
            ("incompatible-qos", "error", 1),
            ("partition", "warning", 1),
        },
    ), "the reader with a DEADLINE is served"
    assert {code for code, _ in told} == {"DUL-READER-NOT-SERVED"}
    assert any("DURABILITY: offered TRANSIENT, requested PERSISTENT" in why for _, why in told)

    def are_gone() -> bool:
        shown = lab.seen.node("n1")
        return shown is not None and all(one.is_gone for one in shown.deliveries)

    lab.seen.wait_for("they are gone", are_gone)
    assert incidents(lab) == []

    with application(lab, writer("Reading")):
        late = lab.reader(deadline_ns=1_000_000_000, durability=2)
        late.wait(3)
        _, data, _ = doctor(lab, "--json", "--for", "2s")
    (finding,) = (one for one in json.loads(data)["data"]["findings"] if one["weight"] == "error")
    assert (len(finding["writers"]), len(finding["readers"])) == (1, 1)
    assert "DEADLINE: offered infinite" in finding["message"]
    assert finding["message"].endswith(
        "who joins late gets what nodes keep, and nothing that is written later"
    )


BUILT_IN = ("CMParticipant", "d_status", "CMDataReader", "Anything")


def test_topics_of_opensplice_itself_are_left_out_unless_asked_for(bare: Lab) -> None:
    ends = [
        writer(topic, reliable=False, partition="__BUILT-IN PARTITION__" if topic == "Anything" else "x")
        for topic in BUILT_IN
    ]
    with application(bare, *ends, writer("CMD", reliable=False)):
        _, data, _ = doctor(bare, "--json", "--for", "2s")
        _, text, _ = doctor(bare, "--for", "2s")
        _, everything, _ = doctor(bare, "--all", "--json", "--for", "2s")
    found, whole = json.loads(data)["data"], json.loads(everything)["data"]
    assert {topic for each in found["findings"] for topic in each["topics"]} == {"CMD"}
    assert (found["writers"]["seen"], found["built_in_endpoints"]) == (1, 4)
    assert "4 endpoints of OpenSplice's or ROS 2's own topics, shown with --all" in text
    assert {topic for each in whole["findings"] for topic in each["topics"]} == {*BUILT_IN, "CMD"}
    assert (whole["writers"]["seen"], whole["built_in_endpoints"]) == (5, 0)


def test_nobody_is_heard_in_an_empty_domain(bare: Lab) -> None:
    code, data, narration = doctor(bare, "--for", "1s")
    assert (code, data) == (3, "")
    assert "no participant heard" in narration
