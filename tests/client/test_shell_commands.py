"""`ospltool cat` and `ospltool history` on one running node, and on its store."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ospltool.cli import app
from tests.client.places import ClientLab
from tests.integration.conftest import own_domain

pytestmark = pytest.mark.dds

Run = Callable[..., tuple[int, list[Any], str]]
EVIL = "\x1b[31m\x07\u009b2J"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientLab]:
    """One node that serves clients and keeps ten readings, values 0 to 9, and one dispose."""
    domain, tag = own_domain()
    made = ClientLab(tmp_path_factory.mktemp("shell"), (domain + 50) % 230, f"shell-{tag}")
    try:
        made.start_one()
        made.write(*({"first": n, "count": 1, "value": n, "time": 1_000 + n} for n in range(10)))
        made.write({"op": "dispose", "first": 9, "time": 2_000})
        made.seen.wait_for("it is stored", lambda: made.seen.stored("n1") >= 10)
        yield made
    finally:
        made.close()


@pytest.fixture
def run(lab: ClientLab, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs a command: exit code, JSON documents (or lines), standard error."""
    monkeypatch.setenv("CYCLONEDDS_URI", lab.uri)
    monkeypatch.delenv("OSPL_URI", raising=False)

    def call(*arguments: object) -> tuple[int, list[Any], str]:
        capfd.readouterr()
        code = app.main([str(each) for each in arguments])
        out, err = capfd.readouterr()
        assert "\x1b" not in out + err
        try:
            return code, [json.loads(out)["data"]], err
        except ValueError:
            lines = out.splitlines()
            return code, [json.loads(each)["data"] if each[:1] == "{" else each for each in lines], err

    return call


def values(samples: list[Any]) -> list[int]:
    return [each["fields"]["value"] for each in samples if each["status"] == "write"]


def test_cat_prints_the_history_that_a_late_reader_gets_and_ends(lab: ClientLab, run: Run) -> None:
    code, samples, err = run("cat", "Reading", "--domain", lab.domain, "--timeout", "60s")
    assert (code, err) == (0, "")
    assert sorted(values(samples)) == [*range(10)]
    disposed = [each for each in samples if "dispose" in each["status"]]
    assert [each["fields"]["number"] for each in disposed] == [9]
    assert samples[0]["partitions"] == ["stock"]
    assert samples[0]["type"] == "depot::Reading"
    assert {each["source_time_ns"] for each in samples} == {*range(1_000, 1_010), 2_000}
    assert {each["writer"] for each in samples} == {None}, "who wrote it is not on the wire"
    assert all(len(each["delivered_by"]) == 32 for each in samples)
    code, stored, said = run("cat", "Reading", "--store", lab.home("n1") / "store")
    assert (code, said.count("in use by node n1")) == (0, 1)
    assert "samples that it has not stored yet are missing here" in said
    assert all(len(each["writer"]) == 32 and "delivered_by" not in each for each in stored)


def test_cat_shows_what_a_condition_accepts_from_nodes_and_from_the_store(lab: ClientLab, run: Run) -> None:
    where = "value < 5 AND text LIKE 'reading%'"
    live = run("cat", "Reading", "--domain", lab.domain, "--where", where, "--timeout", "60s")
    stored = run("cat", "Reading", lab.home("n1") / "ospl.xml", "--stored", "--where", where)
    assert live[0] == stored[0] == 0
    assert sorted(values(live[1])) == values(stored[1]) == [*range(5)]
    assert stored[1][0]["node"] == "n1"
    code, samples, _ = run("cat", "Reading", "--store", lab.home("n1") / "store", "--where", "number = 9")
    assert (code, [each["status"] for each in samples]) == (0, ["write", "dispose"])


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("value < 5 AND x = 1", "topic 'Reading': --where, column 15: the type has no field 'x'"),
        ("text < 5", "topic 'Reading': --where, column 8: a number cannot be compared with a text"),
        ("value < ", "--where, column 9: a value is missing"),
        ("", "--where, column 1: a value is missing"),
        (f"value {EVIL}", "--where, column 7: this is not understood"),
    ],
)
def test_a_condition_that_does_not_fit_is_refused_with_its_column(
    lab: ClientLab, run: Run, where: str, said: str, stored: bool
) -> None:
    place = ("--store", lab.home("n1") / "store") if stored else ("--domain", lab.domain)
    code, samples, err = run("cat", "Reading", *place, "--where", where)
    assert (code, samples) == (2, [])
    assert said in err


def test_cat_of_what_is_not_there_says_so(lab: ClientLab, run: Run) -> None:
    code, samples, err = run("cat", f"No{EVIL}", "--domain", lab.domain, "--timeout", "1500ms")
    assert (code, samples) == (1, [])
    assert re.search(
        r"n1 keeps nothing of it in any partition; within \d\.\d s, no writer or reader of the", err
    )
    code, _, err = run("cat", "No", "--store", lab.home("n1") / "store")
    assert (code, "no group in the complete sets of " in err) == (1, True)
    assert run("cat", "Reading", "--store", lab.directory / "none")[0] == 2
    assert (
        run("cat", "Reading", "--domain", lab.domain, "--partition", "else*", "--timeout", "1500ms")[1] == []
    )


def test_cat_of_a_kept_topic_without_samples_says_so(lab: ClientLab, run: Run) -> None:
    lab.program("writer", steps=[{"count": 0, "topic": "Empty"}])
    lab.seen.wait_for("it is kept", lambda: "Empty" in [one.topic for one in lab.seen.groups("n1")])
    code, samples, err = run("cat", "Empty", "--domain", lab.domain, "--timeout", "60s")
    assert (code, samples) == (1, [])
    assert err == "ospltool: topic 'Empty': no samples: the nodes' groups of it hold none\n"
    code, samples, err = run("cat", "Empty", "--domain", lab.domain, "--live", "--timeout", "1s")
    assert (code, samples, err) == (0, [], ""), "with --live, it waits for what is written"


def test_cat_of_a_partition_that_nobody_keeps_or_where_no_node_is_says_so(lab: ClientLab, run: Run) -> None:
    code, samples, err = run(
        "cat", "Reading", "--domain", lab.domain, "--partition", "nope", "--timeout", "9s"
    )
    assert (code, samples) == (1, [])
    assert "n1 keeps nothing of it in nope; within " in err
    assert float(err.rpartition("within ")[2].partition(" s")[0]) < 8.0, "what is established is told at once"
    other = (lab.domain + 1) % 230
    assert run("cat", "Reading", "--domain", other, "--live", "--timeout", "1s")[:2] == (3, [])


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        ({"durability": 1}, "1 TRANSIENT_LOCAL writer"),
        ({"keyed": True, "mute": True}, "1 TRANSIENT writer"),
    ],
)
def test_cat_of_what_it_cannot_read_calls_nothing_absent_that_is_there(
    lab: ClientLab, run: Run, options: dict[str, Any], seen: str
) -> None:
    topic = f"Bare{len(options)}"
    lab.program("untyped", topic=topic, count=1, **options).answer("guid")
    code, samples, err = run("cat", topic, "--domain", lab.domain, "--timeout", "9s")
    assert (code, samples) == (1, [])
    assert "n1 keeps nothing of it in any partition; within " in err
    assert f" s, {seen} of the topic was seen" in err
    assert all(re.search("look up the type|no type information", line) for line in err.splitlines()[:-1])


def test_cat_follows_what_is_written_until_it_has_enough(lab: ClientLab, run: Run) -> None:
    # The writer waits for two readers: the node's tap and ours.
    writer = lab.program("writer", steps=[{"count": 3, "time": 9_000}], topic="Followed", readers=2)
    arguments = ("cat", "Followed", "--domain", lab.domain, "--live", "--count", "3", "--timeout", "60s")
    code, samples, err = run(*arguments)
    writer.answer("done")
    assert (code, [each["fields"]["number"] for each in samples], err) == (0, [0, 1, 2], "")


def test_cat_follows_what_nobody_keeps(lab: ClientLab, run: Run) -> None:
    writer = lab.program("writer", steps=[{"count": 2, "time": 9_000}], topic="Unkept", durability=0)
    arguments = ("cat", "Unkept", "--domain", lab.domain, "--live", "--count", "2", "--timeout", "60s")
    code, samples, err = run(*arguments)
    writer.answer("done")
    assert (code, [each["fields"]["number"] for each in samples], err) == (0, [0, 1], "")


class Terminal(io.StringIO):
    """A standard input that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_history_is_waited_for_shown_and_deleted(
    lab: ClientLab, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = ("--domain", lab.domain, "--timeout", "30s", "--json")
    for verb in (("wait", "Reading", "--partition", "stocks"), ("delete", "Reading", "else*")):
        code, _, err = run("history", *verb, "--domain", lab.domain, "--timeout", "3s")
        assert code == 1
        assert "no service that answered keeps a group of topic 'Reading' in partition" in err
    assert run("history", "delete", "Nothing", "stock", *place)[0] == 1
    code, (answer,), err = run("history", "wait", "Reading", "--partition", "st*", *place)
    assert (code, answer["complete"], err) == (0, True, "")
    code, (answer,), _ = run("history", "state", "Rea*", *place)
    assert code == 0, answer
    assert [
        (one["node"], one["partition"], one["topic"], one["completeness"]) for one in answer["groups"]
    ] == [("n1", "stock", "Reading", "complete")]
    code, text, _ = run("history", "state", "--domain", lab.domain)
    assert code == 0
    assert any("Reading" in line and "complete" in line for line in text)
    for options, words in {
        ("Nothing",): "a group of topic 'Nothing'",
        ("--partition", "no*"): "any group",
    }.items():
        code, _, err = run("history", "state", *options, *place)
        assert (code, f"no service that answered keeps {words}" in err) == (1, True)
    os.kill(lab.pid("n1"), signal.SIGSTOP)
    try:
        code, _, err = run("history", "state", "--domain", lab.domain, "--timeout", "2s")
    finally:
        os.kill(lab.pid("n1"), signal.SIGCONT)
    assert code == 1
    assert "no service has answered in time" in err
    code, _, err = run("history", "wait", "Nothing", "--domain", lab.domain, "--timeout", "1s")
    assert (code, "no writer, reader or node with it was heard in time" in err) == (1, True)

    code, (answer,), _ = run("history", "delete", "Read*", "stock", "--dry-run", *place)
    assert [(one["partition"], one["topic"], one["node"], one["samples"]) for one in answer["groups"]] == [
        ("stock", "Reading", "n1", 11)
    ]
    assert (code, answer["deleted"]) == (0, False)
    code, out, err = run("history", "delete", "Read*", "stock", *place)
    assert (code, out) == (2, [])
    assert "stock.Reading: samples: 11 on n1\n" in err
    assert "nothing is deleted: there is no terminal to ask on; --yes deletes" in err
    for answer_, ended, kept in (("n", 1, 11), ("", 1, 11)):
        monkeypatch.setattr(sys, "stdin", Terminal(f"{answer_}\n"))
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        code, out, err = run("history", "delete", "Read*", "stock", *place)
        monkeypatch.undo()
        monkeypatch.setenv("CYCLONEDDS_URI", lab.uri)
        assert (code, out) == (ended, [])
        assert "Delete the historical data of 1 group up to 20" in err
        code, (answer,), _ = run("history", "state", "Rea*", *place)
        assert answer["groups"][0]["samples"] == kept
    code, (answer,), _ = run("history", "delete", "Read*", "stock", "--until", "1004", "--yes", *place)
    assert (code, answer["deleted"]) == (0, True)
    assert (answer["confirmed"], answer["unconfirmed"]) == (["n1"], [])
    code, said, _ = run("history", "delete", "Read*", "stock", "--until", "1", "-y", "--domain", lab.domain)
    where = "stock.Read*: deleted up to 1970-01-01 00:00:00 UTC on n1"
    assert (code, said) == (0, [f"{where}; samples: 6 before, 6 now"])
    code, samples, _ = run("cat", "Reading", "--domain", lab.domain, "--timeout", "60s")
    assert (code, sorted(values(samples))) == (0, [*range(5, 10)])
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    code, (answer,), _ = run("history", "delete", "Reading", "stock", *place)
    monkeypatch.undo()
    monkeypatch.setenv("CYCLONEDDS_URI", lab.uri)
    assert (code, answer["deleted"]) == (0, True)
    code, samples, err = run("cat", "Reading", "--domain", lab.domain, "--timeout", "20s")
    assert (code, samples) == (1, [])
    assert err == "ospltool: topic 'Reading': no samples: the nodes' groups of it hold none\n"


def test_without_services_and_nodes_the_exit_code_is_3(lab: ClientLab, run: Run) -> None:
    other = (lab.domain + 1) % 230
    for arguments in (("state",), ("wait", "T"), ("delete", "T", "P", "--yes")):
        code, _, err = run("history", *arguments, "--domain", other, "--timeout", "500ms")
        assert (code, "ClientDurability" in err) == (3, True)
    assert run("cat", "T", "--domain", other, "--timeout", "500ms")[0] == 3
    assert "OSPL_URI" not in os.environ
