"""With the secret of the domain, nobody else has a say, and both sides tell so."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from engine.dds.proofs import LOOK_S, VARIABLE
from ospltool.client import DurabilityClient
from ospltool.client.asking import ask
from tests.adversary.strangers import Attacker
from tests.integration.configurations import Settings
from tests.integration.lab import Lab
from tests.integration.programs import ROOT

pytestmark = pytest.mark.dds

FORGED = int(os.environ.get("OSPLTOOL_FORGED", "800"))
"""Forged messages, of all kinds; `make forge` sends 100,000."""
ELEMENT = "//OpenSplice/Domain/DomainSecret"
FIRST = "the first secret of the domain 1234"
SECOND = "the second secret of the domain 5678"


def secret_file(path: Path, *secrets: str) -> str:
    path.write_text("# of the tests\n" + "\n".join(secrets) + "\n", encoding="ascii")
    path.chmod(0o600)
    return str(path)


def command(lab: Lab, *arguments: str, secret: str = "") -> tuple[int, dict[str, Any]]:
    """A command that watches the domain: its exit code and what it tells."""
    code, out, _ = run(lab, *arguments, secret=secret)
    return code, json.loads(out)


def run(lab: Lab, *arguments: str, secret: str = "") -> tuple[int, str, str]:
    """A command in the domain: its exit code, its output as JSON, and what it says beside that."""
    where = [] if any(each.endswith(".toml") for each in arguments) else ["--domain", str(lab.domain)]
    options = [*where, *([] if "--once" in arguments else ["--json"])]
    done = subprocess.run(
        [sys.executable, "-m", "ospltool.cli.app", *arguments, *options],
        env={**lab.environ, "PYTHONPATH": str(ROOT), **({VARIABLE: secret} if secret else {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def secured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> tuple[Lab, Path]:
    """A lab with the file of its secret: what watches from here knows it, other processes do not."""
    path = tmp_path / "secret"
    monkeypatch.setenv(VARIABLE, secret_file(path, FIRST))
    lab: Lab = request.getfixturevalue("lab")
    monkeypatch.delenv(VARIABLE)
    del lab.environ[VARIABLE]
    return lab, path


def test_nodes_with_the_secret_are_alone_with_each_other(secured: tuple[Lab, Path]) -> None:
    lab, path = secured
    secret, names = str(path), ("n1", "n2")
    lab.start_complete(*names, settings=Settings(discovery_s=0.5, clients=True, secret=secret))
    lab.write({"count": 10, "time": 1_000}, readers=2)
    lab.seen.wait_for("both store it", lambda: all(lab.seen.stored(name) == 10 for name in names))
    # Who has no secret is a stranger, and both sides say so: one fact, with what is missing and where.
    lab.configure("n3", Settings(discovery_s=0.5))
    lab.start("n3")
    lab.seen.wait_for("they name n3", lambda: all("n3" in refused_by(lab, name) for name in names))
    shown = lab.seen.node("n1")
    assert shown is not None
    assert [one.name for one in shown.fellows] == ["n2"]
    (seen,) = serious(command(lab, "health", secret=secret))
    assert (seen["code"], seen["who"]) == ("DUL-UNPROVED", "n3")
    assert seen["what"].startswith("n1 and n2 refuse messages of n3 (")
    assert f"{ELEMENT} is missing" in seen["why"]
    assert secret in seen["next"]
    fleet = lab.directory / "fleet.toml"
    nodes = "".join(
        f'[[node]]\nname = "{each}"\nfile = "{lab.home(each) / "ospl.xml"}"\n' for each in (*names, "n3")
    )
    fleet.write_text(nodes, encoding="utf-8")
    found = serious(command(lab, "health", str(fleet)))
    assert [(one["code"], one["who"]) for one in found] == [("DUL-UNPROVED", "n3")], "its absence has a cause"
    lab.seen.wait_for("n3 names them", lambda: len(lab.trace("n3", "proof.refused")) >= 2)
    assert {one["name"] for one in lab.trace("n3", "proof.refused")} >= set(names)
    (seen,) = serious(command(lab, "health"))
    assert (seen["code"], seen["who"]) == ("DUL-UNPROVED", "n3")
    assert "n3 refuses messages of n1 and n2 (" in seen["what"]
    assert f"{ELEMENT} is missing in {lab.home('n3') / 'ospl.xml'}" in seen["why"]
    lab.stop("n3")
    (seen,) = serious(command(lab, "health"))
    assert (seen["code"], seen["who"]) == ("DUL-UNPROVED", "watcher")
    assert seen["what"].startswith("this watch refuses messages of n1, n2 (")
    assert VARIABLE in seen["why"]
    assert lab.stop(*names) == [0, 0]


def test_clients_and_commands_need_the_secret(secured: tuple[Lab, Path]) -> None:
    lab, path = secured
    secret, names = str(path), ("n1", "n2")
    lab.start_complete(*names, settings=Settings(discovery_s=0.5, clients=True, secret=secret))
    # Other commands say what they lack, too.
    for arguments in (("doctor", "--for", "3s"), ("cat", "Reading", "--timeout", "4s")):
        code, errors = said(lab, *arguments)
        assert code > 0
        assert f"it has no secret of the domain ({VARIABLE}" in errors
    # A client without it has no answer, and is named as long as it is there; one with it has an answer.
    mine = f", process {os.getpid()} on {socket.gethostname()}"
    for known, answered in ((None, 0), (secret, 2)):
        with DurabilityClient(lab.domain, uri=lab.uri, secret=known) as client:
            client.session.wait_for_services(time.monotonic() + 20)
            states = ask(client.session, "Reading", ("stock",), time.monotonic() + (20 if answered else 2))
            assert len(states) == answered
            if known is None:
                lab.seen.wait_for("n1 names it", lambda: any(mine in one for one in refused_by(lab, "n1")))
        lab.seen.wait_for("they forget it", lambda: not any(refused_by(lab, name) for name in names))
    # A file that cannot be used changes nothing, and health says so.
    path.chmod(0o644)
    kept = lab.directory / "kept"
    secret_file(kept, FIRST)
    lab.seen.wait_for("n1 shows it", lambda: bool((seen := lab.seen.node("n1")) and seen.secret_problem))
    found = {one["who"]: one for one in serious(command(lab, "health", secret=str(kept)))}
    assert {one["code"] for one in found.values()} == {"DUL-SECRET-KEPT"}
    assert found.keys() == set(names)
    assert "mode 0644" in found["n1"]["what"]
    path.chmod(0o600)


def test_the_secret_is_replaced_without_a_stop(secured: tuple[Lab, Path]) -> None:
    lab, path = secured
    secret, names = str(path), ("n1", "n2")
    lab.start_complete(*names, settings=Settings(discovery_s=0.5, clients=True, secret=secret))
    for secrets in ((FIRST, SECOND), (SECOND, FIRST), (SECOND,)):
        secret_file(path, *secrets)
        time.sleep(2 * LOOK_S)
    # Who starts now knows the new one only: nothing that the others show is proved by the former one.
    assert not serious(command(lab, "health", secret=secret))
    lab.stop("n2")
    lab.start("n2")
    lab.seen.wait_for("it is complete again", lambda: lab.seen.are_complete("n2"))
    lab.write({"first": 10, "count": 10, "time": 2_000}, readers=2)
    lab.seen.wait_for("it goes on", lambda: all(lab.seen.stored(name) == 10 for name in names))
    assert not any(refused_by(lab, name) for name in names)
    assert not any(lab.trace(name, "proof.refused") for name in names)
    check_clients(lab, secret)
    assert lab.stop(*names) == [0, 0]


def test_nodes_whose_secret_is_mended_come_together(secured: tuple[Lab, Path]) -> None:
    """What was refused for another secret counts once that is known, whoever changes which file, and when."""
    lab, path = secured
    other = path.with_name("of-n1")
    for name, file, secret in (("n1", other, SECOND), ("n2", path, FIRST)):
        lab.configure(name, Settings(discovery_s=0.5, clients=True, secret=secret_file(file, secret)))
    lab.start("n1", "n2")
    lab.seen.wait_for("n2 refuses n1", lambda: refused_by(lab, "n2") == {"n1"})
    lab.write({"count": 10, "time": 1_000}, readers=2)
    lab.seen.wait_for("n2 stores it", lambda: lab.seen.stored("n2") == 10)
    code, _, errors = run(lab, "history", "delete", "Reading", "stock", "--yes", secret=str(path))
    assert code in (0, 1), errors
    lab.seen.wait_for("n2 has deleted it", lambda: lab.seen.stored("n2") == 0)
    # n2 hears n1 first, which hears n2 only later: the answers of n2 to it are refused.
    secret_file(path, FIRST, SECOND)
    lab.seen.wait_for("n2 hears n1", lambda: "n1" in fellows_of(lab, "n2"))
    lab.seen.wait_for("n1 has it still", lambda: lab.seen.stored("n1") == 10)
    secret_file(other, SECOND, FIRST)
    met = {"n1": {"n2": "approved"}, "n2": {"n1": "approved"}}
    lab.seen.wait_for("they approve each other", lambda: {name: fellows_of(lab, name) for name in met} == met)
    lab.seen.wait_for("n1 has deleted it", lambda: lab.seen.stored("n1") == 0)
    lab.seen.wait_for("both are complete", lambda: lab.seen.are_complete("n1", "n2"))
    lab.write({"first": 20, "count": 10, "time": time.time_ns()}, readers=2)
    lab.seen.wait_for("they go on", lambda: all(lab.seen.stored(name) == 10 for name in ("n1", "n2")))
    assert lab.stop("n1", "n2") == [0, 0]
    assert lab.on_disk("n1") == lab.on_disk("n2")


def fellows_of(lab: Lab, name: str) -> dict[str, str]:
    """What a node shows of its fellows: how it talks to each."""
    shown = lab.seen.node(name)
    return {one.name: str(one.communication) for one in shown.fellows} if shown else {}


def said(lab: Lab, *arguments: str) -> tuple[int, str]:
    """The exit code of a command that does not know the secret, and what it says on standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "ospltool.cli.app", *arguments, "--domain", str(lab.domain)],
        env={**lab.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr


def serious(answer: tuple[int, dict[str, Any]]) -> list[dict[str, Any]]:
    """The incidents that `health` tells and that count for its exit code."""
    code, told = answer
    found = [one for one in told["data"][0]["incidents"] if one["severity"] != "notice"]
    assert (code > 0) == bool(found), found
    return found


def check_clients(lab: Lab, secret: str) -> None:
    """A client that lacks the secret of all or some nodes learns which of them refuse it, and why."""
    other = secret_file(Path(secret).with_name("other"), FIRST)
    for known, reason in (("", VARIABLE), (other, "another one")):
        for verb in (("wait", "Reading"), ("delete", "Reading", "stock", "--yes"), ("state",)):
            code, _, errors = run(lab, "history", *verb, secret=known)
            assert code == 3, (verb, errors)
            assert "n1, n2 refuse it" in errors
            assert reason in errors
    recording = ("record", "--output", str(lab.directory / "recording"), "--for", "6s")
    for others in (("record", "--once"), ("top",), recording):
        code, _, errors = run(lab, *others)
        assert code == 3
        assert VARIABLE in errors, others
    lab.configure("n3", Settings(discovery_s=0.5, clients=True))  # it has none itself
    lab.start("n3")
    lab.write({"first": 20, "count": 10, "time": 3_000}, readers=3)
    lab.seen.wait_for("both store it", lambda: all(lab.seen.stored(name) == 20 for name in ("n1", "n2")))
    for verb in (("wait", "Reading"), ("state",), ("delete", "Reading", "stock", "--yes")):
        code, out, errors = run(lab, "history", *verb)
        assert code == 1, (verb, errors)
        told = json.loads(out)["data"]
        assert {*told["refused"]} == {"n1", "n2"}
        assert "n1, n2 refuse it" in errors
    assert told["node"] == "n3"
    assert told["deleted"] is False
    assert all(lab.seen.stored(name) == 20 for name in ("n1", "n2"))
    lab.stop("n3")
    code, out, errors = run(lab, "history", "delete", "Reading", "stock", "--yes", secret=secret)
    assert code == 0, errors
    lab.seen.wait_for("it is deleted", lambda: not any(map(lab.seen.stored, ("n1", "n2"))))


def refused_by(lab: Lab, name: str) -> set[str]:
    shown = lab.seen.node(name)
    return {one.name for one in shown.unproved} if shown else set()


def count_refused(lab: Lab, name: str) -> int:
    shown = lab.seen.node(name)
    return sum(sum(one.counts.values()) for one in shown.unproved) if shown else 0


def test_no_forged_message_has_an_effect(secured: tuple[Lab, Path]) -> None:
    check_forged(*secured, FORGED)


def check_forged(lab: Lab, path: Path, count: int) -> None:
    """Two nodes, whatever a stranger writes in their names, keep what they have and go on."""
    names = ("n1", "n2")
    lab.start_complete(*names, settings=Settings(discovery_s=0.5, clients=True, secret=str(path)))
    lab.write({"count": 10, "time": 1_000}, readers=2)
    lab.seen.wait_for("all is stored", lambda: all(lab.seen.stored(name) == 10 for name in names))
    nodes = [shown.id for name in names if (shown := lab.seen.node(name))]
    space = lab.seen.space("n1")
    assert space is not None
    counter, start = space.merge_id.split("/")
    options: dict[str, Any] = {
        "nodes": nodes,
        "store": str(lab.home("n1") / "store"),
        "lineage": [int(counter), next(one for one in nodes if one.startswith(start))],
    }
    for role in ("node", "client"):
        attacker = Attacker(lab, role=role)
        sent = attacker.attack("forgeries", count=count // 2, timeout_s=60 + count / 50, **options)
        assert sent == count // 2
        # Half of a half: a state may be replaced before it is sent.
        lab.seen.wait_for(
            "they are counted", lambda: all(count_refused(lab, name) > count / 8 for name in names)
        )
        print(f"{role}: {[count_refused(lab, name) for name in names]} refused of {sent:,}")
        attacker.end()
    lab.write({"first": 10, "count": 10, "time": 2_000}, readers=2)
    lab.seen.wait_for("they go on", lambda: all(lab.seen.stored(name) == 20 for name in names))
    for name in names:
        shown = lab.seen.node(name)
        assert shown is not None
        assert [one.name for one in shown.fellows] == [other for other in names if other != name]
        assert not lab.trace(name, "delete.received", "fellow.lost", "fellow.reconnected")
        assert shown.counters["malformed"] == 0
        assert "Traceback" not in lab.output(name)
    assert lab.stop(*names) == [0, 0]
    for name in names:
        assert [len(digests) for digests in lab.on_disk(name).values()] == [20]
