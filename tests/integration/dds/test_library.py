"""Another library of Cyclone DDS is refused, with the reason; and what public functions can do there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest
from cyclonedds.internal import DDS

from engine.dds.abi import content_of
from engine.dds.participant import NodeParticipant, free_domain_id
from engine.dds.topics import description_of
from engine.dds.uri import cyclone_uri, private_uri
from tests.integration.dds import sample_types
from tests.integration.dds.compared_topics import Compared, own_library
from tests.integration.dds.public_api import content
from tests.integration.programs import ROOT, Program

if TYPE_CHECKING:
    from pathlib import Path

DOMAIN: Final = 97
HEADER_BYTES: Final = 4
LOOK: Final = "from engine.dds.selfcheck import check_layouts; check_layouts()"
MIX: Final = """
import ctypes, sys
from cyclonedds import _clayer
from engine.dds.own_types import Message
other = ctypes.CDLL(sys.argv[1])
participant = other.dds_create_participant(0, None, None)
assert participant > 0, participant
Message.__idl__.populate()
Message.__idl__.fill_type_data()
print(_clayer.ddspy_topic_create(participant, "T", Message, None, None))
"""
LOOPBACK: Final = (
    '<CycloneDDS><Domain Id="any"><General><Interfaces><NetworkInterface name="lo"/></Interfaces></General>'
    "</Domain></CycloneDDS>"
)


@pytest.fixture
def other(tmp_path: Path) -> str:
    """Another library: a copy of the same one counts as another, too."""
    return shutil.copy(DDS._dll_handle._name, str(tmp_path / "libddsc.so"))


def run(program: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "CYCLONEDDS_URI": LOOPBACK, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def test_another_library_is_refused_and_the_own_one_is_not(other: str) -> None:
    refused = run(LOOK, OSPLTOOL_DDSC=other)
    assert refused.returncode != 0
    assert f"OSPLTOOL_DDSC names {other}" in refused.stderr
    assert run(LOOK, OSPLTOOL_DDSC=DDS._dll_handle._name).returncode == 0


@pytest.fixture
def loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CYCLONEDDS_URI", cyclone_uri(tag=f"library-{os.getpid()}", environment={}))


def public(library: str, *arguments: object) -> Any:
    command = [sys.executable, "-m", "tests.integration.dds.public_api", library, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.usefixtures("loopback")
def test_public_functions_hand_over_samples_in_another_library(other: str) -> None:
    """Of a type that is discovered: kind 2 is data; the key is XCDR2 with its header."""
    options = {"domain": DOMAIN, "topic": "Bare", "typed": True, "keyed": True, "count": 3, "readers": 1}
    program = Program("untyped", options, os.environ)
    try:
        found = public(other, "taken", DOMAIN, "Bare", 3)
    finally:
        program.end()
    assert found == [[2, 0, f"000100000{n}000000", f"000700000{n}000000"] for n in range(3)]


@pytest.mark.usefixtures("loopback")
def test_public_functions_make_topics_of_types_known_by_their_bytes(other: str) -> None:
    made = public(other, "made", DOMAIN)
    assert made == dict.fromkeys(sample_types.TYPES, True)


def test_topics_of_public_functions_keep_the_bytes_that_those_of_the_package_keep() -> None:
    """Of all types; and only they tell the key, so that both must be replaced at once.

    Once the last line fails, the memory layout of samples need not be read any more.
    """
    library = own_library()
    with free_domain_id() as domain, NodeParticipant(domain, private_uri(), "topics", os.urandom(16)) as one:
        for class_, make in sample_types.SAMPLES.items():
            compared = Compared(library, one, description_of(class_))
            payload = make(5).serialize()
            package, public = compared.package(payload), compared.public(payload)
            assert content(library, public) == content(library, package) == payload, class_
            key, _ = content_of(package)
            assert content(library, compared.key(public))[HEADER_BYTES:] == key, class_
            assert content(library, compared.key(package)) == b""


def test_the_package_makes_no_topic_on_a_participant_of_another_library(other: str) -> None:
    """Once this fails, another library may be possible."""
    mixed = run(MIX, other)
    assert mixed.returncode == 0, mixed.stderr
    assert int(mixed.stdout) < 0
