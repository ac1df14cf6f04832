"""A configuration that asks for DDS Security is refused, with the reason."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from engine.supervisor.policy import EXIT_CONFIGURATION
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


@pytest.mark.parametrize("is_file", [False, True], ids=["inline", "in a file"])
def test_a_node_refuses_security_and_says_why(lab: Lab, is_file: bool) -> None:
    lab.configure("n1", Settings())
    path = lab.directory / "secured.xml"
    path.write_text(SECURED, encoding="utf-8")
    lab.start("n1", environ={"CYCLONEDDS_URI": f"file://{path}" if is_file else SECURED})
    assert lab.process("n1").wait(30) == EXIT_CONFIGURATION
    assert WHY in lab.output("n1")
    assert "Traceback" not in lab.output("n1")


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
