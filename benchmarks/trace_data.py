"""A FINEST trace of any size, made up after the mix of messages of real runs, with everything that is hard.

One block of records is made once; it is then repeated with its timestamps moved on, which is fast enough
to make gigabytes in seconds. The block has glued headers, cut messages, messages of several lines, the
store's printer and threads that write out of order.
"""

from __future__ import annotations

import datetime
import random
from typing import TYPE_CHECKING, Final

import numpy as np

from ospltool.trace.meaning.matcher import matcher
from ospltool.trace.meaning.trace_facts import EVENTS

if TYPE_CHECKING:
    import pathlib

START_S: Final = 1_795_223_000
BLOCK_RECORDS: Final = 160_000
SPAN_S: Final = 32
"""Trace seconds in a block: 5,000 records a second."""

_FELLOWS: Final = (1250527713, 992001269, 1094898389, 411444612)
_PARTITIONS: Final = ("partA", "partB", "sensor.area3", "__BUILT-IN PARTITION__", "commands")
_TOPICS: Final = ("Track", "Plot", "Alarm", "SystemStatus", "DCPSType", "DCPSCandMCommand", "Mission_Plan")

_MIX: Final = (
    (9, "d_newGroup", "Received remote group '{g}' with completeness=2 and quality={t} from fellow: {f}."),
    (9, "d_newGroup", "Remote group '{g}' complete, check for unfulfilled chains."),
    (9, "d_newGroup", "Remote group '{g}' already known locally with completeness=2."),
    (8, "d_newGroup", "Updating remote group '{g}' for fellow {f} with completeness=2 and quality={t}."),
    (
        8,
        "d_nameSpaces",
        (
            "nameSpace {p} defaultNamespace [policy defaultNamespace 1 2 4 100] mergeState "
            "(DefaultRole,{n}) master {{{f},{n},{n}}} st 1 conf 1 alignable 1"
        ),
    ),
    (
        6,
        "d_nameSpaces",
        (
            "HasMasterConflict fellow {p} {{{f},{n},{n}}} state 6 commstate 1 role DefaultRole "
            "isConfirmed 1 hasConfirmed 1 "
        ),
    ),
    (6, "d_nameSpaces", "masterAddr {{{f},{n},{n}}}"),
    (6, "persistentDataListener", "d_storeMessageStore for group {g} succeeded (attempt: 1)"),
    (6, "d_sampleChain", "Marking kernel group '{g}' COMPLETE"),
    (5, "conflictResolver", "Write samplerequest for group {g} to fellow {f} using source ({n},{n},{n})"),
    (
        5,
        "d_sampleRequest",
        (
            "Received sample request for group {g} from fellow {f} using source ({n},{n},{n}), adding it "
            "to queue."
        ),
    ),
    (5, "d_sampleChain", "Received link from fellow {f} for group {g} containing {n} samples. #links == 1"),
    (5, "conflictResolver", "Going to send sampleRequest to fellow {f} as part of merge action {p}"),
    (
        5,
        "sampleRequestHandler",
        "WRITE: {n}, DISPOSED: 5, WRITE_DISPOSED: 0, REGISTER: {n}, UNREGISTER: 0 EOT: 0 (SKIPPED: 0)",
    ),
    (
        5,
        "sampleRequestHandler",
        "Sending all samples for group {g} to fellow {f} using source ({n},{n},{n}).",
    ),
    (5, "sampleRequestHandler", "Sent {n} samples for group {g} to fellow {f} (1 fellows total)."),
    (
        4,
        "d_sampleChain",
        "Injected: TOTAL: {n}, WRITE: {n}, DISPOSE: 5, WRITE_DISPOSE: 0, REGISTER: 3, UNREGISTER: 0, EOT: 0.",
    ),
    (4, "d_sampleChain", "Applying REPLACE merge policy for group {g}"),
    (4, "d_sampleChain", "Group {g} is now complete."),
    (4, "d_sampleChain", "Samples before timestamp {t} disposed for group {g}"),
    (
        3,
        "d_nameSpaces",
        (
            "Received nameSpace 'defaultNamespace' from fellow {f} (his master: {f}, confirmed: 1, "
            "mergeState: (DefaultRole,{n}), quality: {t}, mergedStates:{{}}, extensions: "
            "{{masterPriority, 100}})."
        ),
    ),
    (3, "d_nameSpaces", "Checking for conflicts in namespace 'defaultNamespace' with confirmed fellow {f}"),
    (
        2,
        "dcpsHeartbeatListener",
        (
            "Incoming federation heartbeat for federation '{f}', state = '1', instance state = '2', "
            "noWriterCount = '0', period = 10.0"
        ),
    ),
    (1, "conflictResolver", "Finished solving conflict {n}"),
    (
        1,
        "conflictResolver",
        "Fellow {f} has become master when resolving conflict {n}, I am going to retrieve data.",
    ),
    (
        1,
        "d_nameSpaces",
        (
            "Master conflict in namespace 'defaultNamespace' for fellow {f} detected, conflict {n} "
            "created (use_legacy: 0)"
        ),
    ),
    (1, "", "Group '{g}' has quality: {t}"),
    (
        0.3,
        "conflictResolver",
        (
            "The merge state of my namespace 'defaultNamespace' has changed after conflict {n} was "
            "detected from (DefaultRole,{n}) to (DefaultRole,{n}),\x00"
        ),
    ),
    (
        0.2,
        "persistentDataListener",
        "Current:\nsamplesStored={n}, samplesLifespanExpired=0, instancesDisposed={n}",
    ),
    (
        0.1,
        "d_nameSpaces",
        (
            "Received nameSpace 'defaultNamespace' from fellow {f} (his master: {f}, confirmed: 1, "
            "mergeState: (DefaultRole,{n}), quality: {t}, mergedStates:{{{long}\x00"
        ),
    ),
    (
        0.05,
        "ospl_durability",
        (
            "Configuration:\n- OSPL Version                                : 6.9\n- Role                 "
            "                       : DefaultRole"
        ),
    ),
    (0.02, "ospl_durability", "----LEAVING STATE----\n\n"),
)
_QUIET: Final = 0.0002
_UNTERMINATED: Final = "\0"
_CUT_AT: Final = 1022


def make_trace(path: pathlib.Path, size_bytes: int, seed: int = 1, *, quiet: bool = False) -> int:
    """Writes a trace of about `size_bytes` and returns the number of its records.

    Args:
        path: the file.
        size_bytes: its size, at least.
        seed: of the dice.
        quiet: one record in ten thousand tells something that analyses look at; a third of them otherwise.
    """
    weights = [weight * (_QUIET if quiet and _tells(text) else 1) for weight, _, text in _MIX]
    block, positions, offsets_ns = _block(random.Random(seed), weights)
    records = 0
    with path.open("wb", buffering=1 << 22) as stream:
        repeat = 0
        while stream.tell() < size_bytes:
            _set_times(block, positions, offsets_ns + (START_S + repeat * SPAN_S) * 1_000_000_000)
            stream.write(block.tobytes())
            records += len(positions)
            repeat += 1
    return records


def _tells(message: str) -> bool:
    text = _filled(random.Random(1), message, "").rstrip("\n")
    found = matcher().match(text, cut=message.endswith(_UNTERMINATED))
    return found is not None and found.template.event in EVENTS


def _block(dice: random.Random, weights: list[float]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The bytes of a block, where its timestamps are, and their times from its start."""
    parts: list[bytes] = []
    positions: list[int] = []
    offsets_ns: list[int] = []
    at = 0
    long = ", ".join(f"(aRoleWithALongName{n:03d}, {n})" for n in range(60))
    for number, (_, thread, message) in enumerate(dice.choices(_MIX, weights, k=BLOCK_RECORDS)):
        offset_ns = number * SPAN_S * 1_000_000_000 // BLOCK_RECORDS
        if dice.random() < 0.005:  # another thread was faster
            offset_ns = max(0, offset_ns - dice.randrange(100_000))
        body = _filled(dice, message, long)
        who = f"COMPLETE ({thread})" if thread else "PersistentStore (KV)"
        positions.append(at)
        offsets_ns.append(offset_ns)
        record = f"2026-11-21T00:00:00+0000 0000000000.000000000 {who} -> {body}".encode()
        parts.append(record)
        at += len(record)
    block = np.frombuffer(b"".join(parts), np.uint8).copy()
    return block, np.array(positions), np.array(offsets_ns, np.int64)


def _filled(dice: random.Random, message: str, long: str) -> str:
    fellow = dice.choice(_FELLOWS)
    group = f"{dice.choice(_PARTITIONS)}.{dice.choice(_TOPICS)}"
    time = f"{START_S - dice.randrange(10**6)}.{dice.randrange(10**9):09d}"
    pointer = f"0x7f{dice.getrandbits(40):010x}"
    text = message.format(f=fellow, g=group, n=dice.randrange(5_000), t=time, p=pointer, long=long)
    if text.endswith(_UNTERMINATED):
        return text[:_CUT_AT].removesuffix(_UNTERMINATED)
    return text + "\n"


def _set_times(block: np.ndarray, positions: np.ndarray, times_ns: np.ndarray) -> None:
    """Writes the times into the headers of the block."""
    seconds, nanoseconds = np.divmod(times_ns, 1_000_000_000)
    for second in np.unique(seconds):
        here = positions[seconds == second]
        local = datetime.datetime.fromtimestamp(int(second), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S")
        for column, character in enumerate(local.encode()):
            block[here + column] = character
    for column in range(10):
        block[positions + 25 + column] = 48 + seconds // 10 ** (9 - column) % 10
    for column in range(9):
        block[positions + 36 + column] = 48 + nanoseconds // 10 ** (8 - column) % 10
