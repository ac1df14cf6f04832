"""What an operator knows belongs to the operator, and to no moment of what is watched."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ospltool.health.acknowledgements import Acknowledgements
from ospltool.health.codes import codes
from ospltool.health.incidents import Incident
from tests.fake import SECOND_NS as S
from tests.health.test_winding import Watcher, record, troubled


def incident(since_ns: int) -> Incident:
    code = codes()["DUL-NODE-GONE"]
    return Incident(
        key="node n1", code=code, severity=code.severity, who="n1", what="", why="", is_cause_known=False,
        effect="", next="", since_ns=since_ns,
    )  # fmt: skip


def test_what_is_known_is_known_while_it_is_not_worse() -> None:
    found = incident(100 * S)
    known = Acknowledgements()
    assert not known.at_ns(found)
    known.add(found, 130 * S)
    assert known.at_ns(found) == 130 * S
    worse = dataclasses.replace(found, weight=found.weight + 1)
    assert not known.at_ns(worse)
    assert known.at_ns(found) == 130 * S
    known.add(worse, 150 * S)
    assert known.at_ns(worse) == known.at_ns(found) == 150 * S


def test_the_same_incident_is_known_to_a_reader_who_began_within_it() -> None:
    known = Acknowledgements()
    known.add(incident(100 * S), 130 * S)
    other = dataclasses.replace(incident(120 * S), key="another reader's", origin="another reader's")
    assert known.at_ns(other) == 130 * S
    assert not known.at_ns(dataclasses.replace(other, since_ns=140 * S)), "the next one"
    assert not known.at_ns(dataclasses.replace(other, since_ns=80 * S)), "the one before"
    assert not known.at_ns(dataclasses.replace(other, who="n9"))


@pytest.mark.parametrize("seed", range(2))
def test_winding_a_recording_forgets_no_acknowledgement(tmp_path: Path, seed: int) -> None:
    record(tmp_path / "r.jsonl", troubled(seed))
    watcher = Watcher(tmp_path / "r.jsonl")
    moment_ns = watcher.feed.begin_ns
    while not watcher.system.health.open:
        moment_ns += S
        watcher.seek(moment_ns)
    moment_ns += 2 * S
    watcher.seek(moment_ns)
    (key, *_) = [one.key for one in watcher.system.health.open]
    assert watcher.system.health.acknowledge(key)

    def known() -> list[int]:
        health = watcher.system.health
        return [one.acknowledged_ns for one in health.every if one.key == key]

    (told_ns,) = known()
    assert moment_ns - S < told_ns <= moment_ns
    for place_ns in (watcher.feed.begin_ns, watcher.feed.end_ns):
        watcher.seek(place_ns)
        for there_ns in (moment_ns - S, moment_ns):
            watcher.seek(there_ns)
            assert known() == [told_ns], (there_ns - moment_ns) / S
    watcher.feed.close()
