"""Stores as text and as values for JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from engine.dataset.sample import Sample
from engine.store.interface import note_of
from ospltool.output.text import plural, table, visible
from ospltool.stores.describe import Counted, DescribedInstance, DescribedSample, GroupCount, hex_dump
from ospltool.stores.model import UNKNOWN_DEPTH, GroupFacts, SetFacts, SetKind, StoreFacts, shown, status_text

if TYPE_CHECKING:
    from ospltool.output.documents import (
        GroupCounts,
        StoredGroup,
        StoredInstance,
        StoredSample,
        StoredSet,
        StoreInfo,
        WholeSample,
    )


def info_text(facts: StoreFacts, sets: Sequence[Counted]) -> Iterator[str]:
    """Render the text of `store info`."""
    yield f"{visible(facts.path)}: {facts.format.value}, {plural(facts.file_bytes, 'byte')}"
    yield from (f"  {visible(name)}: {visible(value)}" for name, value in facts.detail)
    yield from (f"  finding: {visible(finding)}" for finding in facts.findings)
    for one in sets:
        yield ""
        yield _set_line(one.facts)
        rows = [_group_row(group, count) for group, count in one.groups]
        header = ("GROUP", "TYPE", "DEPTH", "SAMPLES", "INSTANCES", "BYTES", "DAMAGED", "OLDEST", "NEWEST")
        yield from (f"  {line}" for line in table(header, rows).splitlines())
        yield from (f"  damaged: {visible(str(damage))}" for damage in one.damage.first[:10])
        if one.damage.count > 10:
            yield f"  ... and {one.damage.count - 10} more; `store verify` lists them"


def _set_line(one: SetFacts) -> str:
    complete = {True: "complete", False: "NOT complete", None: "completeness not known"}[one.complete]
    if one.part:
        complete = "a part (what a Lazy node kept)"
    quality = "" if one.quality_ns is None else f", quality {shown(one.quality_ns)}"
    note = note_of(one.mark) if one.kind is SetKind.BACKUP else None
    mark = f", mark {visible(one.mark)}" if one.mark else ""
    if note is not None:
        mark = f", replaced {shown(note.at_ns)} by {visible(note.by)}: {visible(note.why)}"
    name = visible(one.name_space) or "(name-space not known)"
    return f"set {one.number}: {name}, {one.kind.value}, {complete}{quality}{mark}"


def _group_row(group: GroupFacts, count: GroupCount) -> tuple[object, ...]:
    return (
        group.name,
        group.name.type_name,
        "?" if group.history_depth == UNKNOWN_DEPTH else group.history_depth or "all",
        count.samples,
        count.instances,
        count.payload_bytes,
        count.damaged,
        shown(count.oldest_ns) if count.oldest_ns else "-",
        shown(count.newest_ns) if count.samples else "-",
    )


def info_value(facts: StoreFacts, sets: Sequence[Counted]) -> StoreInfo:
    """Convert the values of `store info` to JSON values."""
    return {
        "path": facts.path,
        "format": facts.format,
        "file_bytes": facts.file_bytes,
        "detail": dict(facts.detail),
        "findings": facts.findings,
        "sets": [set_value(one) for one in sets],
    }


def set_value(one: Counted) -> StoredSet:
    """Convert a counted set to JSON values."""
    return {
        "number": one.facts.number,
        "name_space": one.facts.name_space,
        "kind": one.facts.kind,
        "complete": one.facts.complete,
        "part": one.facts.part,
        "quality_ns": one.facts.quality_ns,
        "mark": one.facts.mark,
        "samples": one.samples,
        "damaged": one.damage.count,
        "damage": [str(damage) for damage in one.damage.first],
        "groups": [{**group_value(group), **_count_value(count)} for group, count in one.groups],
    }


def group_value(group: GroupFacts) -> StoredGroup:
    """Convert a group to JSON values."""
    return {
        "partition": group.name.partition,
        "topic": group.name.topic,
        "type": group.name.type_name,
        "key_list": group.key_list,
        "durability": group.durability,
        "history_depth": group.history_depth,
        "cleanup_delay_ns": group.cleanup_delay_ns,
        "problem": group.problem,
    }


def _count_value(count: GroupCount) -> GroupCounts:
    return {
        "samples": count.samples,
        "instances": count.instances,
        "damaged": count.damaged,
        "oldest_ns": count.oldest_ns,
        "newest_ns": count.newest_ns,
        "payload_bytes": count.payload_bytes,
        "disposed": count.disposed,
    }


def verified_text(name: str, one: Counted, problems: Sequence[str]) -> Iterator[str]:
    """Render the text of `store verify` for a set.

    `name` is that of the store, `problems` are what the check found besides damaged samples.
    """
    sound = "NOT SOUND" if problems or one.damage.count else "sound"
    where = f"{name}, set {one.facts.number} ({one.facts.name_space or '?'})"
    yield f"{visible(where)}: {sound}, {plural(one.samples, 'sample')}"
    yield from (f"  {visible(str(damage))}" for damage in one.damage.first)
    if one.damage.count > len(one.damage.first):
        yield f"  {one.damage.count - len(one.damage.first)} more damaged records"
    yield from (f"  {visible(problem)}" for problem in problems)


def instances_text(found: Sequence[DescribedInstance], total: int, *, samples: bool) -> Iterator[str]:
    """Render the text of `store ls`.

    `total` is the number of instances before the limit; with `samples` every sample has a line.
    """
    yield from (_sample_lines(found) if samples else _instance_lines(found))
    if total > len(found):
        yield f"... and {total - len(found)} more instances; --limit shows more"


def _sample_lines(found: Sequence[DescribedInstance]) -> list[str]:
    rows = [
        (one.group.name, _key_text(one), status_text(sample.status), *_sample_cells(sample))
        for one in found
        for sample in one.samples
    ]
    header = ("GROUP", "KEY", "STATUS", "TIME", "WRITER", "SEQUENCE", "BYTES", "DIGEST")
    return table(header, rows).splitlines()


def _instance_lines(found: Sequence[DescribedInstance]) -> list[str]:
    rows = []
    for one in found:
        last = one.samples[-1]
        state = (len(one.samples), status_text(last.status), shown(last.source_time_ns))
        rows.append((one.group.name, _key_text(one), *state))
    return table(("GROUP", "KEY", "SAMPLES", "LAST", "TIME"), rows).splitlines()


def _key_text(one: DescribedInstance) -> str:
    if one.key_fields is not None:
        return json.dumps(one.key_fields, ensure_ascii=False)
    return one.key.hex() or "(none)"


def _sample_cells(sample: Sample) -> tuple[object, ...]:
    return (
        shown(sample.source_time_ns),
        sample.writer.hex(),
        sample.sequence,
        len(sample.payload),
        sample.digest.hex()[:12],
    )


def instance_value(one: DescribedInstance) -> StoredInstance:
    """Convert an instance to JSON values."""
    return {
        "set": one.set_number,
        **group_value(one.group),
        "key": one.key,
        "key_fields": one.key_fields,
        "samples": [sample_value(sample) for sample in one.samples],
    }


def sample_value(sample: Sample) -> StoredSample:
    """Convert a sample without its content to JSON values."""
    return {
        "source_time_ns": sample.source_time_ns,
        "writer": sample.writer,
        "sequence": str(sample.sequence),
        "status": status_text(sample.status),
        "digest": sample.digest,
        "bytes": len(sample.payload),
    }


def whole_value(sample: Sample, fields: object, problem: str) -> dict[str, Any]:
    """Convert a sample with its content (fields, or the problem with them) to JSON values, as in exports."""
    about = {name: value for name, value in sample_value(sample).items() if name != "bytes"}
    return {"key": sample.key, **about, "fields": fields, "problem": problem, "payload": sample.payload}


def shown_text(one: DescribedSample) -> Iterator[str]:
    """Render the text of `store show` for a sample."""
    sample = one.sample
    group = f"group {one.group.name}, type {one.group.name.type_name}"
    yield f"set {one.set_facts.number}, {visible(group)}"
    yield f"  status    {status_text(sample.status)}"
    yield f"  time      {shown(sample.source_time_ns)} ({sample.source_time_ns})"
    yield f"  writer    {sample.writer.hex()}"
    yield f"  sequence  {sample.sequence}"
    yield f"  key       {sample.key.hex() or '(none)'}"
    yield f"  digest    {sample.digest.hex()}"
    if one.fields is not None:
        text = json.dumps(one.fields, ensure_ascii=False, indent=2)
        yield from (f"  {visible(line)}" for line in text.splitlines())
    else:
        yield f"  not decoded: {visible(one.problem)}"
    yield from (f"  {line}" for line in hex_dump(sample.payload))


def shown_value(one: DescribedSample) -> WholeSample:
    """Convert a sample of `store show` to JSON values."""
    return {
        "set": one.set_facts.number,
        "name_space": one.set_facts.name_space,
        **group_value(one.group),
        **sample_value(one.sample),
        "key": one.sample.key,
        "fields": one.fields,
        "problem": one.problem,
        "payload": one.sample.payload,
    }
