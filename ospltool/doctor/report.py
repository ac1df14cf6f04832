"""The report on a domain: all findings and their sum, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from engine.dds.endpoints import Endpoint
from ospltool.diagnostics.model import Finding
from ospltool.doctor.diagnosis import Diagnosis
from ospltool.output.text import listed, plural, visible

if TYPE_CHECKING:
    from ospltool.output.documents import Diagnosed, DoctorCause, EndpointCount, EndpointData

# A line of a terminal.
MAX_SHOWN: Final = 5
"""Most endpoints shown of one kind in one finding; the number of the others is said."""


def as_text(diagnosis: Diagnosis) -> str:
    """Render the diagnosis for people, terminal-safe."""
    return "".join(f"{visible(line)}\n" for line in _lines(diagnosis))


def _lines(diagnosis: Diagnosis) -> Iterator[str]:
    topics = None
    for finding in diagnosis.findings:
        if finding.topics != topics:
            topics = finding.topics
            yield _heading(topics)
        yield from _finding(finding)
    yield from _sum(diagnosis)


def _heading(topics: Sequence[str]) -> str:
    if not topics:
        return "nodes"
    return f"{'topic' if len(topics) == 1 else 'topics'} {listed(topics, MAX_SHOWN)}"


def _finding(finding: Finding) -> Iterator[str]:
    yield f"  {finding.severity.label} {finding.name}: {_subject(finding)}{finding.message}"
    for is_writer in (True, False):
        members = [each for each in finding.evidence if each.is_writer is is_writer]
        for each in members[:MAX_SHOWN]:
            of_topic = f" of topic {each.topic}" if len(finding.topics) > 1 else ""
            yield f"      {_endpoint(each)}{of_topic}"
        if len(members) > MAX_SHOWN:
            yield f"      and {len(members) - MAX_SHOWN} more {members[0].kind}s"
    yield f"    advice: {finding.advice}"


def _subject(finding: Finding) -> str:
    writers = sum(each.is_writer for each in finding.evidence)
    readers = len(finding.evidence) - writers
    parts = [_count(number, kind) for number, kind in ((writers, "writer"), (readers, "reader")) if number]
    return f"{' and '.join(parts)}: " if parts else ""


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _endpoint(each: Endpoint) -> str:
    partitions = ",".join(each.partitions) or "default partition"
    return f"{each.kind} {each.guid} of {each.process}, {partitions}"


def _sum(diagnosis: Diagnosis) -> Iterator[str]:
    picture = diagnosis.picture
    writers = sum(each.is_writer for each in picture.endpoints)
    readers = len(picture.endpoints) - writers
    topics = len({each.topic for each in picture.endpoints})
    yield (
        f"{_count(topics, 'topic')}, {_count(picture.participants, 'participant')}, "
        f"{_count(len(picture.nodes), 'node')}: "
        f"{diagnosis.inconsistent(writers=True)} of {plural(writers, 'writer')} and "
        f"{diagnosis.inconsistent(writers=False)} of {plural(readers, 'reader')} "
        "are not certain to become consistent"
    )
    if picture.foreign_services:
        others = _count(picture.foreign_services, "durability service")
        yield f"{others} of another make, whose data is unknown"
    if picture.built_in_endpoints:
        endpoints = _count(picture.built_in_endpoints, "endpoint")
        yield f"{endpoints} of OpenSplice's or ROS 2's own topics, shown with --all"
    if diagnosis.left_out:
        yield f"{_count(diagnosis.left_out, 'finding')} more, not shown"
    if picture.left_out:
        yield f"{_count(picture.left_out, 'endpoint')} not looked at: there are too many"
    if picture.faults:
        yield f"{_count(picture.faults, 'message')} of nodes not understood"


def as_data(diagnosis: Diagnosis) -> Diagnosed:
    """Return the data of the JSON document of kind "doctor"."""
    picture = diagnosis.picture
    return {
        "eventually_consistent": diagnosis.is_good,
        "findings": [_finding_data(each) for each in diagnosis.findings],
        "findings_left_out": diagnosis.left_out,
        "participants": picture.participants,
        "nodes": [node.name for node in picture.nodes],
        "foreign_services": picture.foreign_services,
        "protocol_endpoints": picture.protocol_endpoints,
        "built_in_endpoints": picture.built_in_endpoints,
        "endpoints_left_out": picture.left_out,
        "messages_not_understood": picture.faults,
        "writers": _endpoint_sum(diagnosis, writers=True),
        "readers": _endpoint_sum(diagnosis, writers=False),
    }


def _endpoint_sum(diagnosis: Diagnosis, *, writers: bool) -> EndpointCount:
    count = sum(each.is_writer is writers for each in diagnosis.picture.endpoints)
    return {"seen": count, "not_eventually_consistent": diagnosis.inconsistent(writers=writers)}


def _finding_data(finding: Finding) -> DoctorCause:
    return {
        "cause": finding.name,
        "weight": finding.severity.label,
        "topics": finding.topics,
        "message": finding.message,
        "advice": finding.advice,
        "nodes": finding.nodes,
        "writers": _endpoints_data(finding.evidence, writers=True),
        "readers": _endpoints_data(finding.evidence, writers=False),
    }


def _endpoints_data(endpoints: Sequence[Endpoint], *, writers: bool) -> list[EndpointData]:
    return [
        {
            "guid": each.guid,
            "topic": each.topic,
            "process": each.process,
            "host": each.host,
            "type": each.type_name,
            "partitions": each.partitions,
        }
        for each in endpoints
        if each.is_writer is writers
    ]
