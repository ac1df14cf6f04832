"""What clients are told where only a part of the data can be reached (deployment guide 5.2.3.1, 5.4.7)."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cyclonedds.core import Policy, Qos

from ospltool.cli import app
from ospltool.client import DurabilityClient, DurableReader, OnlyParts
from tests.client.places import ClientLab
from tests.integration.application_types import Reading
from tests.integration.configurations import Settings
from tests.integration.conftest import own_domain

pytestmark = pytest.mark.dds

COUNT = 40
WANTED, OTHER = ("stock wanted",), ("stock other",)
VOLATILE = Qos(Policy.Durability.Volatile, Policy.Reliability.Reliable(0), Policy.History.KeepAll)
SHORT_S = 3.0


def settings(alignee: str) -> Settings:
    return Settings(spaces=tuple(dataclasses.replace(space, alignee=alignee) for space in Settings().spaces))


def has(lab: ClientLab, name: str, partition: tuple[str, ...]) -> int:
    """How many samples a node shows of a partition."""
    node = lab.seen.node(name)
    groups = node.groups if node is not None else ()
    return sum(group.samples for group in groups if (group.partition,) == partition)


def history(lab: ClientLab, partition: tuple[str, ...], timeout_s: float) -> int:
    """How many samples a reader gets that waits for the whole history."""
    with (
        DurabilityClient(lab.domain, uri=lab.uri) as client,
        DurableReader(client, "Reading", Reading, partition, VOLATILE) as reader,
    ):
        reader.wait_for_historical_data(timeout_s)
        return len(reader.take(10 * COUNT))


@pytest.fixture
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientLab]:
    """n1 keeps everything; n2 is Lazy, has the part that was asked for, and is alone now."""
    domain, tag = own_domain()
    made = ClientLab(tmp_path_factory.mktemp("parts"), (domain + 100) % 230, f"parts-{tag}")
    try:
        made.configure("n1", settings("Initial"))
        made.configure("n2", settings("Lazy"))
        made.start("n1", "n2")
        made.seen.wait_for("n1 is complete", lambda: made.seen.are_complete("n1"))
        for partition in (WANTED, OTHER):
            steps = [{"count": COUNT, "time": 1_000, "partitions": list(partition)}]
            made.program("writer", steps=steps).answer("done")
        made.seen.wait_for("n1 has both", lambda: has(made, "n1", WANTED) == has(made, "n1", OTHER) == COUNT)
        assert history(made, WANTED, 60.0) == COUNT
        made.seen.wait_for("n2 has its part", lambda: has(made, "n2", WANTED) == COUNT)
        made.kill("n1")
        made.seen.wait_for("n2 is its own master", lambda: is_own_master(made, "n2"))
        yield made
    finally:
        made.close()


def is_own_master(lab: ClientLab, name: str) -> bool:
    node = lab.seen.node(name)
    return node is not None and [space.master for space in node.name_spaces] == [node.id]


@pytest.fixture
def run(
    lab: ClientLab, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.setenv("CYCLONEDDS_URI", lab.uri)
    monkeypatch.setenv("OSPLTOOL_RUNDIR", str(lab.directory / "run"))
    monkeypatch.delenv("OSPL_URI", raising=False)

    def call(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        code = app.main([str(each) for each in arguments])
        out, err = capfd.readouterr()
        return code, out, err

    return call


def states(out: str) -> dict[tuple[str, str], str]:
    groups = json.loads(out)["data"]["groups"]
    return {(each["node"], each["partition"]): each["completeness"] for each in groups}


def test_a_part_is_the_whole_of_what_it_holds_and_of_nothing_else(
    lab: ClientLab, run: Callable[..., tuple[int, str, str]]
) -> None:
    assert history(lab, WANTED, 60.0) == COUNT
    with pytest.raises(OnlyParts, match="only parts of name-space 'stock' can be reached"):
        history(lab, OTHER, SHORT_S)

    code, out, _ = run("history", "state", "Reading", "--domain", lab.domain, "--json")
    assert code == 1
    assert states(out) == {("n2", *WANTED): "complete", ("n2", *OTHER): "incomplete"}
    code, _, err = run(
        "history", "wait", "Reading", "--domain", lab.domain, "--partition", *OTHER, "--timeout", "3s"
    )
    assert (code, "only parts" in err) == (1, True)
    code, _, _ = run(
        "history", "wait", "Reading", "--domain", lab.domain, "--partition", *WANTED, "--timeout", "60s"
    )
    assert code == 0

    # It may not delete either: who has the whole set would bring it back.
    code, _, err = run(
        "history", "delete", "Reading", *WANTED, "--domain", lab.domain, "--timeout", "6s", "--yes"
    )
    assert (code, "node n2 has parts of name-space 'stock'" in err) == (1, True)
    assert history(lab, WANTED, 60.0) == COUNT

    # What was wanted is remembered although there is no sample of it, and what is whole stays so.
    lab.kill("n2")
    lab.seen.forget("n2")
    lab.start("n2")
    lab.seen.wait_for("n2 is its own master", lambda: is_own_master(lab, "n2"))
    assert history(lab, WANTED, 60.0) == COUNT
    lab.start_again("n1")
    lab.seen.wait_for("n2 has what was wanted", lambda: has(lab, "n2", OTHER) == COUNT)
    assert history(lab, OTHER, 60.0) == COUNT


def test_commands_say_that_a_node_is_lazy(lab: ClientLab, run: Callable[..., tuple[int, str, str]]) -> None:
    (ignored,) = lab.trace("n2", "lifecycle.setting-ignored")
    assert ignored["setting"].endswith("Policy[@masterPriority]")
    assert ignored["reason"] == "a node with alignee Lazy is never master of others"
    assert "Policy[@masterPriority] has no effect" in lab.information("n2")

    cat = ("cat", "Reading", "--domain", lab.domain, "--partition", *OTHER, "--timeout", "5s")
    for options, expected in (((), 1), (("--live",), 0)):
        code, out, err = run(*cat, *options)
        assert (code, out) == (expected, "")
        assert "only parts of name-space 'stock' can be reached (n2)" in err

    def check_status(name: str, words: str) -> None:
        configuration = lab.configure(name, settings("Lazy"))
        assert run("start", configuration)[0] == 0
        try:
            lab.seen.wait_for(f"{name}: {words}", lambda: words in run("status", configuration)[1])
            assert "COMPLETE, part" in run("list")[1]
        finally:
            assert run("stop", configuration)[0] == 0

    lab.stop("n2")
    check_status("n2", "it keeps of name-space 'stock' the part that readers on its host want")
    check_status("n3", "it is Lazy and keeps nothing of name-space 'stock': no reader here wants it")


def test_a_part_never_becomes_a_complete_set_in_silence(
    lab: ClientLab, run: Callable[..., tuple[int, str, str]]
) -> None:
    lab.kill("n2")
    configuration = lab.configure("n2", settings("Initial"))
    lab.seen.forget("n2")
    assert run("start", configuration)[0] == 0
    try:
        lab.seen.wait_for("n2 is its own master", lambda: is_own_master(lab, "n2"))
        lab.seen.wait_for("it says so", lambda: lab.trace("n2", "store.from-parts"))
        assert history(lab, WANTED, 60.0) == COUNT
        with pytest.raises(OnlyParts):
            history(lab, OTHER, SHORT_S)
        lab.seen.wait_for(
            "its supervisor knows", lambda: "comes from parts" in run("status", configuration)[1]
        )
        assert "COMPLETE, part" in run("list")[1]
        assert "a part" in run("store", "info", lab.home("n2") / "store")[1]
        code, out, _ = run("health", "--domain", lab.domain)
        assert (code, "DUL-SET-FROM-PARTS" in out) == (1, True)
    finally:
        assert run("stop", configuration)[0] == 0

    lab.seen.forget("n2")
    lab.start("n2")
    lab.seen.wait_for("n2 is its own master", lambda: is_own_master(lab, "n2"))
    assert "comes from parts" in lab.errors("n2") + lab.information("n2")
    lab.start_again("n1")
    lab.seen.wait_for("n2 has everything", lambda: has(lab, "n2", OTHER) == COUNT)
    lab.seen.wait_for("it says so", lambda: lab.trace("n2", "store.parts-completed"))
    assert history(lab, OTHER, 60.0) == COUNT
    lab.kill("n1", "n2")
    lab.seen.forget("n2")
    lab.start("n2")
    lab.seen.wait_for("n2 is complete", lambda: lab.seen.are_complete("n2"))
    assert history(lab, OTHER, 60.0) == COUNT


@pytest.fixture
def filtering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClientLab]:
    """No node runs yet."""
    domain, tag = own_domain()
    made = ClientLab(tmp_path, (domain + 150) % 230, f"filtering-{tag}")
    monkeypatch.setenv("CYCLONEDDS_URI", made.uri)
    yield made
    made.close()


def test_a_group_of_which_a_filter_withholds_a_part_is_said_to_be_filtered(
    filtering: ClientLab, capfd: pytest.CaptureFixture[str]
) -> None:
    lab = filtering
    lab.start_one("n1", Settings(filters=(("value < 5", "stock*.Reading"),)))
    lab.start_one("n2", Settings())
    steps = ({"first": n, "count": 1, "value": n, "time": 1_000 + n} for n in range(10))
    lab.write(*steps, readers=2)  # it waits for both nodes
    lab.seen.wait_for("all is kept", lambda: (lab.seen.samples("n1"), lab.seen.samples("n2")) == (5, 10))
    capfd.readouterr()
    assert app.main(["history", "state", "--domain", str(lab.domain), "--json"]) == 0
    groups = json.loads(capfd.readouterr().out)["data"]["groups"]
    assert {each["node"]: each["filtered"] for each in groups} == {"n1": True, "n2": False}
    assert app.main(["history", "state", "--domain", str(lab.domain)]) == 0
    assert capfd.readouterr().out.count("complete, filtered") == 1


def test_a_group_of_which_nothing_is_kept_is_incomplete(
    filtering: ClientLab, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its content filter does not fit the type, which was not known at the start."""
    lab = filtering
    lab.start_one("n1", Settings(filters=(("nothing < 5", "stock*.Plain"),)))
    lab.reader(types=["Plain"])  # the writer waits for one
    lab.write({"type": "Plain", "count": 3, "time": 1_000})
    lab.seen.wait_for("n1 says it", lambda: lab.trace("n1", "filter.refused"))
    capfd.readouterr()
    assert app.main(["history", "state", "--domain", str(lab.domain), "--json"]) == 1
    (group,) = json.loads(capfd.readouterr().out)["data"]["groups"]
    assert (group["topic"], group["completeness"]) == ("Plain", "incomplete")
