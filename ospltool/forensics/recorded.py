"""Sizes of sets over time, from a recording of the console."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from engine.core.plain import PlainFault
from ospltool.live.feed import ReceivedSnapshot
from ospltool.live.record_file import (
    Delta,
    Of,
    PatchFault,
    RecordedState,
    RecordingFault,
    Snapshots,
    decode_line,
)
from ospltool.live.recorder import parts_of
from ospltool.trace.meaning.fact_kinds import BUILT_IN, How, SetSize

APART_NS: Final = 1_000_000_000
"""Least time between two examined snapshots of a node."""

MOST_SIZES: Final = 200_000


def sizes_of(path: Path) -> tuple[list[SetSize], list[str]]:
    """Return the sizes of sets in a recording, by time, and the problems of reading it."""
    found: list[SetSize] = []
    problems: list[str] = []
    snapshots = Snapshots()
    last: dict[tuple[str, str], int] = {}
    looked: dict[str, int] = {}
    unread = 0
    for part in parts_of(path):
        try:
            stream = part.open("rb")
        except OSError as cause:
            problems.append(f"the recording {part}: {cause.strerror or cause}")
            continue
        with stream:
            for number, line in enumerate(stream, 1):
                try:
                    entry = decode_line(line, f"{part}:{number}")
                    if not isinstance(entry.item, RecordedState | Delta):
                        continue
                    key = snapshots.take(entry.item)
                    if key[0] is not Of.NODE or entry.heard_ns - looked.get(key[1], 0) < APART_NS:
                        continue
                    heard = snapshots.decode(key, entry.heard_ns)
                except (RecordingFault, PatchFault, PlainFault):
                    unread += 1
                    continue
                looked[key[1]] = entry.heard_ns
                if isinstance(heard, ReceivedSnapshot):
                    _look_at(heard, path, last, found)
                if len(found) > MOST_SIZES:
                    problems.append(f"the recording {path}: more than {MOST_SIZES} changes of sizes")
                    return found, problems
    if unread:
        problems.append(f"the recording {path}: {unread} lines cannot be read")
    return found, problems


def _look_at(
    heard: ReceivedSnapshot, path: Path, last: dict[tuple[str, str], int], found: list[SetSize]
) -> None:
    node = heard.snapshot.name
    for view in heard.snapshot.groups:
        group = f"{view.partition}.{view.topic}"
        if group.startswith(BUILT_IN) or last.get((node, group)) == view.samples:
            continue
        last[node, group] = view.samples
        found.append(SetSize(node, group, heard.heard_ns, view.samples, How.RECORDED, None, path.name))
