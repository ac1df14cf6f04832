"""The sample applications with faults, and what the doctor says of them: as in docs/doctor.md."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import own_domain
from tests.integration.lab import Lab
from tests.integration.programs import ROOT, end_all
from tests.integration.test_doctor import doctor

pytestmark = pytest.mark.dds

SAMPLES = ROOT / "samples"
MEMBER = re.compile(r"(writer|reader) [0-9a-f]{32} of pid \d+ host \S+,")
RELIABILITY_POLICY = 11


def shape(text: str) -> list[str]:
    """The lines of a report without what differs from run to run."""
    return [MEMBER.sub(r"\1", line).rstrip() for line in text.splitlines()]


def documented() -> list[str]:
    """The report in the manual."""
    manual = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
    section = manual.split("samples/faulty_publisher.py", 1)[1]
    return shape(section.split("```text\n", 1)[1].split("```", 1)[0])


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A domain in which nobody watches."""
    domain, tag = own_domain()
    made = Lab(tmp_path, domain, tag, watched=False)
    yield made
    made.close()


def test_the_doctor_explains_what_is_wrong_with_the_samples_as_the_manual_shows(lab: Lab) -> None:
    programs = [
        subprocess.Popen(
            [sys.executable, str(SAMPLES / f"faulty_{role}.py"), "--domain", str(lab.domain)],
            env=lab.environ,
            stdout=subprocess.PIPE,
        )
        for role in ("publisher", "subscriber")
    ]
    try:
        for program, verb in zip(programs, ("refused by", "refuses"), strict=True):
            assert program.stdout is not None
            line = program.stdout.readline().decode()
            assert line.startswith(f"{verb} 1 ")
            assert line.endswith(f", policy {RELIABILITY_POLICY}\n"), "all that Cyclone DDS tells"
        code, text, _ = doctor(lab, "--for", "2s")
        assert code == 1
        assert shape(text) == documented()
        code, data, _ = doctor(lab, "--for", "2s", "--json")
        found = {(each["weight"], each["cause"]) for each in json.loads(data)["data"]["findings"]}
        assert found == {
            ("error", "incompatible-qos"),
            ("warning", "nobody-keeps"),
            ("warning", "reliability"),
        }
    finally:
        end_all(programs, 10.0)
        for program in programs:
            assert program.stdout is not None
            program.stdout.close()
