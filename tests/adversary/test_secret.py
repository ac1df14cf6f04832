"""With the secret of the domain, nobody else has a say, and both sides tell so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from engine.dds.proofs import LOOK_S, VARIABLE
from tests.adversary.strangers import Attacker
from tests.integration.configurations import Settings
from tests.integration.lab import Lab
from tests.integration.programs import ROOT

pytestmark = pytest.mark.dds

FORGED = int(os.environ.get("OSPLTOOL_FORGED", "800"))
"""Forged messages, of all kinds; `make forge` sends 100,000."""
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
    options = ["--domain", str(lab.domain), *([] if "--once" in arguments else ["--json"])]
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
    # Who has no secret is a stranger, and both sides say so.
    lab.configure("n3", Settings(discovery_s=0.5))
    lab.start("n3")
    lab.seen.wait_for("n1 names n3", lambda: "n3" in refused_by(lab, "n1"))
    shown = lab.seen.node("n1")
    assert shown is not None
    assert [one.name for one in shown.fellows] == ["n2"]
    code, told = command(lab, "health", secret=secret)
    assert code == 1
    assert "n3" in unproved(told)["n1"]
    lab.seen.wait_for("n3 names them", lambda: len(lab.trace("n3", "proof.refused")) >= 2)
    assert {one["name"] for one in lab.trace("n3", "proof.refused")} >= set(names)
    code, told = command(lab, "health")
    assert "n1" in unproved(told)["n3"]
    assert VARIABLE in unproved(told)["watcher"]
    lab.stop("n3")
    assert VARIABLE in unproved(command(lab, "health")[1])["watcher"]
    # The secret is replaced without a stop: both count, then the new one proves.
    for secrets in ((FIRST, SECOND), (SECOND, FIRST), (SECOND,)):
        secret_file(path, *secrets)
        time.sleep(2 * LOOK_S)
    lab.write({"first": 10, "count": 10, "time": 2_000}, readers=2)
    lab.seen.wait_for("it goes on", lambda: all(lab.seen.stored(name) == 20 for name in names))
    check_clients(lab, secret)
    assert lab.stop(*names) == [0, 0]


def check_clients(lab: Lab, secret: str) -> None:
    """Who asks without the secret of all or some nodes is told who refuses, and why, with an exit code."""
    other = secret_file(Path(secret).with_name("other"), FIRST)
    for known, reason in (("", VARIABLE), (other, "another one")):
        for verb in (("wait", "Reading"), ("delete", "Reading", "stock"), ("state",)):
            code, _, errors = run(lab, "history", *verb, secret=known)
            assert code == 3, (verb, errors)
            assert "n1, n2 refuse it" in errors
            assert reason in errors
    for others in (("record", "--once"), ("top",)):
        code, _, errors = run(lab, *others)
        assert code == 3
        assert VARIABLE in errors, others
    lab.configure("n3", Settings(discovery_s=0.5, clients=True))  # it has none itself
    lab.start("n3")
    lab.write({"first": 20, "count": 10, "time": 3_000}, readers=3)
    lab.seen.wait_for("both store it", lambda: all(lab.seen.stored(name) == 30 for name in ("n1", "n2")))
    for verb in (("wait", "Reading"), ("state",), ("delete", "Reading", "stock")):
        code, out, errors = run(lab, "history", *verb)
        assert code == 1, (verb, errors)
        told = json.loads(out)["data"]
        assert {*told["refused"]} == {"n1", "n2"}
        assert "n1, n2 refuse it" in errors
    assert told["node"] == "n3"
    assert told["deleted"] is False
    assert all(lab.seen.stored(name) == 30 for name in ("n1", "n2"))
    lab.stop("n3")
    code, out, errors = run(lab, "history", "delete", "Reading", "stock", secret=secret)
    assert (code, errors) == (0, "")
    lab.seen.wait_for("it is deleted", lambda: not any(map(lab.seen.stored, ("n1", "n2"))))


def unproved(told: dict[str, Any]) -> dict[str, str]:
    """What `health` says of messages without proofs, by whom it concerns."""
    incidents = told["data"][0]["incidents"]
    return {one["who"]: one["what"] for one in incidents if one["code"] == "DUL-UNPROVED"}


def refused_by(lab: Lab, name: str) -> set[str]:
    shown = lab.seen.node(name)
    return {one.name for one in shown.unproved} if shown else set()


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
        attacker.end()
    lab.write({"first": 10, "count": 10, "time": 2_000}, readers=2)
    lab.seen.wait_for("they go on", lambda: all(lab.seen.stored(name) == 20 for name in names))
    for name in names:
        shown = lab.seen.node(name)
        assert shown is not None
        assert [one.name for one in shown.fellows] == [other for other in names if other != name]
        refused = sum(sum(one.counts.values()) for one in shown.unproved)
        assert refused > count / 4, "a state may be replaced before it is sent"
        print(f"{name} refused {refused:,} of {count:,}")
        assert not lab.trace(name, "delete.received", "fellow.lost", "fellow.reconnected")
        assert shown.counters["malformed"] == 0
        assert "Traceback" not in lab.output(name)
    assert lab.stop(*names) == [0, 0]
    for name in names:
        assert [len(digests) for digests in lab.on_disk(name).values()] == [20]
