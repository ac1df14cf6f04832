"""Settings of Cyclone DDS that ask for DDS Security, or end too early, are refused with the reason."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from engine.supervisor.policy import EXIT_CONFIGURATION
from ospltool.cli.app import main
from ospltool.cli.exits import Exit
from tests.integration.configurations import Settings
from tests.integration.programs import ROOT

if TYPE_CHECKING:
    from tests.integration.lab import Lab

pytestmark = pytest.mark.dds

SECURED: Final = """<CycloneDDS><Domain Id="any">
  <General><Interfaces><NetworkInterface name="lo"/></Interfaces></General>
  <Security><Authentication>
    <Library path="dds_security_auth"/><IdentityCertificate>file:identity.pem</IdentityCertificate>
  </Authentication></Security>
</Domain></CycloneDDS>
"""
WHY: Final = "the package cyclonedds is built without DDS Security"


CUT_OFF: Final = '<CycloneDDS>\n <Domain Id="any">'
"""Cyclone DDS takes it, and leaves the loopback interface."""
WHERE: Final = "CYCLONEDDS_URI is incomplete: {} ends, but <Domain> of line 2, column 2 is not closed"


@pytest.mark.parametrize(
    ("settings", "is_file", "why"),
    [(SECURED, False, WHY), (SECURED, True, WHY), (CUT_OFF, False, WHERE.format(repr(CUT_OFF)))],
    ids=["secured", "secured in a file", "cut off"],
)
def test_a_node_refuses_settings_and_says_why(lab: Lab, settings: str, is_file: bool, why: str) -> None:
    lab.configure("n1", Settings())
    path = lab.directory / "secured.xml"
    path.write_text(settings, encoding="utf-8")
    lab.start("n1", environ={"CYCLONEDDS_URI": f"file://{path}" if is_file else settings})
    assert lab.process("n1").wait(30) == EXIT_CONFIGURATION
    assert why in lab.output("n1")
    assert "Traceback" not in lab.output("n1")


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["doctor", "--domain", "57", "--for", "1s"], Exit.UNREACHABLE),
        (["health", "--domain", "57"], Exit.UNREACHABLE),
        (["history", "state", "T", "--domain", "57"], Exit.UNREACHABLE),
    ],
    ids=lambda value: str(value[0]) if isinstance(value, list) else "",
)
def test_every_command_that_joins_a_domain_refuses_settings_that_end_too_early(
    command: list[str], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CYCLONEDDS_URI", CUT_OFF)
    assert main(command) == code
    (said,) = capsys.readouterr().err.splitlines()
    assert WHERE.format(repr(CUT_OFF)) in said


def test_check_finds_it_before(lab: Lab) -> None:
    path = lab.directory / "secured.xml"
    path.write_text(SECURED, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "ospltool.cli.app", "check", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "DUR753" in done.stdout
    assert "built without Security" in done.stdout
