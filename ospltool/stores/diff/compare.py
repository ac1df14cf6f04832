"""The comparison of stores: the differences, found by SQL for DuckDB or Spark, and the report of them.

An instance is a key of a group. It is the same in two stores if its samples have the same digests. Rows that
are not in every store are found by group number and digest alone, which are numbers. Keys and times are read
only of the instances that these rows belong to. Where each instance has one row at most, as with a history of
depth 1, that is one pass less.

Of each store there is a view `side_0`, `side_1`, ... with the rows to compare, and a view `whole_0`,
`whole_1`, ... with all rows. They differ where snapshots have digests of ranges (`ospltool.stores.ranges`):
rows of ranges that all of them have need not be compared.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import string
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from engine.dataset.sample import DATA, Sample
from ospltool.analytics.case import CaseError
from ospltool.analytics.engines import AnalyticsMissingError, QueryError, Tables
from ospltool.output.installation import extra_command
from ospltool.stores.describe import GroupCount, fields_of, key_fields
from ospltool.stores.diff.causes import Holder, find_cause
from ospltool.stores.diff.report import (
    FieldReport,
    GroupReport,
    InstanceReport,
    ReportData,
    SampleReport,
    SideReport,
    Verdict,
)
from ospltool.stores.diff.sides import (
    MAX_SIDES,
    ComparedPart,
    DiffError,
    InstanceDifference,
    Row,
    Side,
    Wanted,
    open_side,
)
from ospltool.stores.model import GroupFacts, status_text
from ospltool.stores.ranges import differing, rows_of
from ospltool.stores.types import Value

_COMPARED: Final = "group_code, key, source_time_ns, writer, sequence, status, digest_high, digest_low"
# Beyond it, reading everything in order is faster than seeking. Not measured closely.
_MOST_COMPARED: Final = 0.25
"""Share of the rows in ranges that differ up to which the others are left out."""
_UNSIGNED: Final = 1 << 64


class DiffEngine:
    """Compares the snapshots of sides.

    Args:
        sides: the stores.
        tables: where the SQL runs; closed by the caller.
    """

    def __init__(self, sides: Sequence[Side], tables: Tables) -> None:
        self._sides = len(sides)
        self._tables = tables
        self._has_single_rows = all(side.has_single_rows for side in sides)
        wanted = _ranges_to_compare(sides) if tables.row_number else None
        for number, side in enumerate(sides):
            file = tables.parquet(side.samples_path)
            sets = ", ".join(map(str, side.set_numbers)) or "NULL"
            whole = f"SELECT {_COMPARED}, payload FROM {file} WHERE set_number IN ({sets})"  # noqa: S608  # our own names
            tables.view(f"whole_{number}", whole)
            if wanted is None:
                tables.view(f"side_{number}", f"SELECT * FROM whole_{number}")  # noqa: S608  # a number
                continue
            rows, at = rows_of(wanted[number]), tables.row_number
            first, last = (int(rows[0]), int(rows[-1])) if len(rows) else (0, -1)
            tables.fill("chosen", pa.table({"row": rows}))
            # The span of the rows beside them: DuckDB leaves out the parts of the file before and behind it.
            chosen = f"{at} IN (SELECT row FROM chosen) AND {at} BETWEEN {first} AND {last}"  # noqa: S608  # numbers
            tables.keep(f"side_{number}", f"SELECT {_COMPARED} FROM {file} WHERE {chosen}")  # noqa: S608  # our own names

    def instances(self) -> Iterator[InstanceDifference]:
        """Yield the instances that differ, ordered by group number and key."""
        self._tables.keep("odd_rows", _odd_rows(self._sides))
        if self._has_single_rows:  # then those in `odd_rows` are all
            query = _rows(self._sides, "side", f"odd_rows AS o ON {_same('s', 'o')}")
        else:
            self._tables.keep("odd_keys", _odd_keys(self._sides))
            query = _rows(
                self._sides, "whole", "odd_keys AS k ON s.key = k.key AND s.group_code = k.group_code"
            )
        yield from _instances(self._tables.rows(query), self._sides)

    def contents(self, wanted: Sequence[Wanted]) -> dict[Wanted, bytes]:
        """Return the payloads of samples."""
        found: dict[Wanted, bytes] = {}
        for side in sorted({one.side for one in wanted}):
            places = [(one.code, *_halves_of(one.digest)) for one in wanted if one.side == side]
            names = ("group_code", "digest_high", "digest_low")
            self._tables.fill("wanted", pa.table(list(map(pa.array, zip(*places, strict=True))), names=names))
            query = f"""
                SELECT s.group_code, s.digest_high, s.digest_low, s.payload
                FROM whole_{side} AS s JOIN wanted AS w ON {_same("s", "w")}"""  # noqa: S608  # a number
            for code, high, low, payload in self._tables.rows(query):
                found[Wanted(side, code, _digest_of(high, low))] = bytes(payload)
        return found


def _ranges_to_compare(sides: Sequence[Side]) -> list[pa.Table] | None:
    """Return the ranges of each side that are not in every side; None to compare all rows."""
    if any(side.ranges is None for side in sides):
        return None
    chosen = [
        side.ranges.filter(pc.is_in(side.ranges.column("set_number"), pa.array(side.set_numbers, pa.int64())))
        for side in sides
    ]
    found = differing(chosen)
    rows, wanted = (sum(pc.sum(one.column("rows")).as_py() or 0 for one in some) for some in (chosen, found))
    return found if wanted <= rows * _MOST_COMPARED else None


def _same(left: str, right: str) -> str:
    """Return the condition that two rows have the same digest and group.

    Half of the digest is what is hashed, the rest is held against it where that half is equal: a third
    faster than hashing all three, and no less exact.
    """
    rest = (
        f"{left}.{name} BETWEEN {right}.{name} AND {right}.{name}" for name in ("digest_high", "group_code")
    )
    return f"{left}.digest_low = {right}.digest_low AND {' AND '.join(rest)}"


def _odd_rows(sides: int) -> str:
    """Return the query for the rows, by group and digest, that are not in every store."""
    if sides == 2:  # a join is faster than counting
        return f"""
            SELECT coalesce(a.group_code, b.group_code) AS group_code,
                   coalesce(a.digest_high, b.digest_high) AS digest_high,
                   coalesce(a.digest_low, b.digest_low) AS digest_low
            FROM side_0 AS a FULL OUTER JOIN side_1 AS b
              ON {_same("a", "b")}
            WHERE a.group_code IS NULL OR b.group_code IS NULL"""  # noqa: S608  # our own text
    rows = " UNION ALL ".join(
        f"SELECT group_code, digest_high, digest_low, {1 << number} AS side FROM side_{number}"  # noqa: S608  # numbers
        for number in range(sides)
    )
    return f"""
        SELECT group_code, digest_high, digest_low FROM ({rows}) AS r
        GROUP BY group_code, digest_high, digest_low HAVING bit_or(side) <> {(1 << sides) - 1}"""  # noqa: S608  # numbers


def _odd_keys(sides: int) -> str:
    """Return the query for the instances that the rows in table `odd_rows` belong to."""
    return " UNION ".join(
        f"""
        SELECT s.group_code, s.key FROM side_{number} AS s JOIN odd_rows AS o ON {_same("s", "o")}"""  # noqa: S608  # numbers
        for number in range(sides)
    )


def _rows(sides: int, view: str, join: str) -> str:
    """Return the query for the rows that a join chooses, in order."""
    rows = " UNION ALL ".join(
        f"""
        SELECT {number} AS side, s.group_code, s.key, s.source_time_ns, s.writer, s.sequence, s.status,
               s.digest_high, s.digest_low
        FROM {view}_{number} AS s JOIN {join}"""  # noqa: S608  # numbers, and our own text
        for number in range(sides)
    )
    return f"SELECT * FROM ({rows}) AS r ORDER BY group_code, key, side"  # noqa: S608  # numbers


def _digest_of(high: int, low: int) -> bytes:
    """Return a digest from its halves."""
    return (high % _UNSIGNED << 64 | low % _UNSIGNED).to_bytes(16)


def _halves_of(digest: bytes) -> tuple[int, int]:
    """Return the halves of a digest, as a snapshot has them."""
    return int.from_bytes(digest[:8], signed=True), int.from_bytes(digest[8:], signed=True)


def _instances(rows: Iterable[tuple[Any, ...]], sides: int) -> Iterator[InstanceDifference]:
    """Yield the answer to `_rows` as instances."""
    for (code, key), some in itertools.groupby(rows, key=lambda row: (row[1], bytes(row[2]))):
        held: list[dict[bytes, Row]] = [{} for _ in range(sides)]
        for side, _, _, time_ns, writer, sequence, status, high, low in some:
            digest = _digest_of(high, low)
            held[side][digest] = Row(time_ns, bytes(writer), sequence % _UNSIGNED, digest, status)
        yield InstanceDifference(code, key, tuple(tuple(sorted(each.values())) for each in held))


# Some screenfuls; a flag asks for all.
DEFAULT_INSTANCES: Final = 100
_SHARE: Final = 0.6
"""Of the memory; DuckDB takes a quarter more than its limit, and the report takes its part."""
# A screenful.
_MAX_DAMAGE_SHOWN: Final = 20


@dataclasses.dataclass(frozen=True, slots=True)
class CompareOptions:
    """The options of a comparison.

    Attributes:
        instances: number of differing instances to list; None for all.
        contents: decode samples that differ, and compare their fields.
        engine: `duckdb` or `spark`.
        master: the Spark master.
        settings: more settings for Spark, such as `spark.executor.memory`.
        left: the part of the samples to compare.
        memory_bytes: approximate limit of memory; the rest goes to disk.
    """

    instances: int | None = DEFAULT_INSTANCES
    contents: bool = False
    engine: str = "duckdb"
    master: str = "local[*]"
    settings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    left: ComparedPart = ComparedPart.ALL
    # Chosen; `--memory` sets it.
    memory_bytes: int = 1 << 30


def compare(given: Sequence[str], options: CompareOptions) -> ReportData:
    """Compare stores.

    Raises:
        StoreUnreadable: one of them cannot be read at all.
        DiffError: the engine failed, or is not installed.
    """
    if not 2 <= len(given) <= MAX_SIDES:
        raise DiffError(f"2 to {MAX_SIDES} stores can be compared, not {len(given)}")
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ospltool-diff-")))
        try:
            sides = []
            for label, one in zip(string.ascii_uppercase, given, strict=False):
                side = open_side(label, one, scratch, contents=options.contents, left=options.left)
                stack.callback(side.reader.close)
                sides.append(side)
            tables = _open_tables(options)
            stack.callback(tables.close)

            return build(sides, DiffEngine(sides, tables), options)
        except ModuleNotFoundError as error:
            extra = "spark" if options.engine == "spark" else "sql"
            raise DiffError(f"this needs {error.name}: `{extra_command(extra)}`") from error
        except (QueryError, CaseError, AnalyticsMissingError) as error:
            raise DiffError(str(error)) from error


def _open_tables(options: CompareOptions) -> Tables:
    if options.engine == "spark":
        from ospltool.analytics.spark import SparkTables

        return SparkTables(options.master, options.settings)
    from ospltool.analytics.duck import DuckTables

    return DuckTables(int(options.memory_bytes * _SHARE))


@dataclasses.dataclass(slots=True)
class _Totals:
    """The counts of a group over its differing instances."""

    differing: int = 0
    only: list[int] = dataclasses.field(default_factory=list)
    absent: list[int] = dataclasses.field(default_factory=list)
    causes: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    odd: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)


def build(sides: Sequence[Side], engine: DiffEngine, options: CompareOptions) -> ReportData:
    """Make a report of the differences that an engine finds."""
    totals: dict[int, _Totals] = {}
    listed: list[tuple[InstanceDifference, str, str, str]] = []
    codes = _Codes(sides)
    holders = _Holders(sides, codes)
    for instance in engine.instances():
        total = totals.get(instance.code)
        if total is None:
            total = totals[instance.code] = _Totals(only=[0] * len(sides), absent=[0] * len(sides))
        present = [number for number, rows in enumerate(instance.rows) if rows]
        total.differing += 1
        if len(present) == 1:
            total.only[present[0]] += 1
        for number in range(len(sides)):
            total.absent[number] += number not in present
        odd, left, right = _odd_one(sides, instance.rows)
        finding = find_cause(holders.holder(instance, left), holders.holder(instance, right))
        total.causes[finding.cause.value] += 1
        total.odd[odd] += 1
        if options.instances is None or len(listed) < options.instances:
            listed.append((instance, odd, finding.cause.value, finding.evidence))
    contents = _Contents(sides, engine, [entry[0] for entry in listed], options.contents)
    groups = _groups(sides, totals, codes)
    differing = sum(total.differing for total in totals.values())
    return ReportData(
        _verdict(sides, groups, differing),
        tuple(map(_side_report, sides)),
        groups,
        tuple(_instance_report(sides, contents, *entry) for entry in listed),
        differing,
        dict(sum((total.causes for total in totals.values()), collections.Counter[str]()).most_common()),
        _only_key(sum((total.odd for total in totals.values()), collections.Counter[str]())),
    )


class _Codes:
    """The number by which a store knows a group.

    Where the description of a topic cannot be read, the type is unknown: the group has another number, and
    stands for the group of the same partition and topic that other stores have.
    """

    def __init__(self, sides: Sequence[Side]) -> None:
        self._names = {code: group.name for side in sides for code, group in side.groups.items()}
        self._untyped = [
            {
                (group.name.partition, group.name.topic): code
                for code, group in side.groups.items()
                if group.problem and not group.name.type_name
            }
            for side in sides
        ]
        typed = {(name.partition, name.topic) for name in self._names.values() if name.type_name}
        self.replaced = {code for codes in self._untyped for place, code in codes.items() if place in typed}
        """Numbers of groups without type that stand for one with a type."""

    def code_in(self, number: int, side: Side, code: int) -> int:
        """Return the number by which a store, whose own number is given, knows a group."""
        name = self._names[code]
        return code if code in side.groups else self._untyped[number].get((name.partition, name.topic), code)


class _Holders:
    """Makes the relation of stores to instances; its constant parts are made once."""

    def __init__(self, sides: Sequence[Side], codes: _Codes) -> None:
        self._sides = sides
        self._codes = codes
        self._spaces = [{one.name_space for one in side.sets} for side in sides]

    def holder(self, instance: InstanceDifference, number: int) -> Holder:
        side = self._sides[number]
        code = instance.code
        own = self._codes.code_in(number, side, code)
        count = side.counts.get(own)
        space = next((one.name_spaces[code] for one in self._sides if code in one.name_spaces), "")
        return Holder(
            side.label,
            instance.rows[number],
            side.groups.get(own),
            space in self._spaces[number],
            count.newest_ns if count else 0,
            count.damaged if count else 0,
        )


def _odd_one(sides: Sequence[Side], rows: tuple[tuple[Row, ...], ...]) -> tuple[str, int, int]:
    """Return the label of the store that differs where all others agree, and the two stores to compare."""
    states: dict[frozenset[bytes], list[int]] = {}
    for number, held in enumerate(rows):
        states.setdefault(frozenset(row.digest for row in held), []).append(number)
    # The largest class first: what most sides have is the usual state.
    classes = sorted(states.values(), key=len, reverse=True)
    usual, other = classes[0], classes[1]
    is_odd = len(sides) > 2 and len(classes) == 2 and len(other) == 1 and len(usual) > 1
    return (sides[other[0]].label if is_odd else ""), usual[0], other[0]


def _only_key(counter: collections.Counter[str]) -> str:
    """Return the store that was the odd one every time; else empty."""
    return next(iter(counter)) if len(counter) == 1 else ""


def _groups(sides: Sequence[Side], totals: Mapping[int, _Totals], codes: _Codes) -> tuple[GroupReport, ...]:
    known: dict[int, tuple[GroupFacts, str]] = {}
    for side in sides:
        for code, group in side.groups.items():
            known.setdefault(code, (group, side.name_spaces[code]))
            if not known[code][1]:
                known[code] = (group, side.name_spaces[code])  # an XML store may not know the name-space
    reports = []
    # By name-space, then by name, as in the report.
    for code, (group, space) in sorted(known.items(), key=lambda item: (item[1][1], item[1][0].name)):
        if code in codes.replaced:
            continue
        total = totals.get(code) or _Totals(only=[0] * len(sides), absent=[0] * len(sides))
        own = [codes.code_in(number, side, code) for number, side in enumerate(sides)]
        counts = [side.counts.get(each) for side, each in zip(sides, own, strict=True)]
        samples = tuple(
            (count.samples if count else 0) if each in side.groups else None
            for side, each, count in zip(sides, own, counts, strict=True)
        )
        damaged = tuple(count.damaged if count else 0 for count in counts)
        if None in samples:
            verdict = Verdict.MISSING
        elif total.differing:
            verdict = Verdict.DIFFER
        else:
            verdict = Verdict.UNREADABLE if any(damaged) else Verdict.EQUAL
        reports.append(
            GroupReport(
                space,
                *group.name,
                verdict,
                samples,
                damaged,
                total.differing,
                _equal(counts, total),
                tuple(total.only),
                tuple(total.absent),
                dict(total.causes.most_common()),
                _only_key(total.odd),
            )
        )
    return tuple(reports)


def _equal(counts: Sequence[GroupCount | None], total: _Totals) -> int:
    """Count the instances that are the same everywhere: those of any store, less its differing ones."""
    instances = counts[0].instances if counts[0] is not None else 0
    return max(0, instances - (total.differing - total.absent[0]))


def _verdict(sides: Sequence[Side], groups: Sequence[GroupReport], differing: int) -> Verdict:
    if differing or any(group.verdict is Verdict.MISSING and any(group.samples) for group in groups):
        return Verdict.DIFFER
    return Verdict.UNREADABLE if any(side.damage.count for side in sides) else Verdict.EQUAL


def _side_report(side: Side) -> SideReport:
    facts = side.reader.facts
    return SideReport(
        side.label,
        side.given,
        facts.format.value,
        tuple(f"{one.number}: {one.name_space or '(unknown)'} {one.kind.value}" for one in side.sets),
        sum(count.samples for count in side.counts.values()),
        len(side.groups),
        side.damage.count,
        tuple(map(str, side.damage.first[:_MAX_DAMAGE_SHOWN])),
        facts.findings,
    )


class _Contents:
    """The decoded content of the listed samples, if asked for."""

    def __init__(
        self, sides: Sequence[Side], engine: DiffEngine, instances: Sequence[InstanceDifference], wanted: bool
    ) -> None:
        self._sides = sides
        self._payloads: Mapping[Wanted, bytes] = {}
        if wanted:
            self._payloads = engine.contents(
                [
                    Wanted(number, one.code, row.digest)
                    for one in instances
                    for number, rows in enumerate(one.rows)
                    for row in rows
                ]
            )

    def fields(
        self, instance: InstanceDifference, number: int, row: Row
    ) -> tuple[dict[str, Value] | None, str]:
        """Return the fields of a sample, or why there are none."""
        payload = self._payloads.get(Wanted(number, instance.code, row.digest))
        group = self._sides[number].groups.get(instance.code)
        if payload is None or group is None:
            return None, ""
        sample = Sample(
            row.source_time_ns, row.writer, row.sequence, row.digest, row.status, instance.key, payload
        )
        return fields_of(self._sides[number].reader, group, sample)


def _instance_report(
    sides: Sequence[Side],
    contents: _Contents,
    instance: InstanceDifference,
    odd: str,
    cause: str,
    evidence: str,
) -> InstanceReport:
    holders: dict[Row, list[int]] = {}
    for number, rows in enumerate(instance.rows):
        for row in rows:
            holders.setdefault(row, []).append(number)
    samples = []
    for row in sorted(row for row, numbers in holders.items() if len(numbers) < len(sides)):
        numbers = holders[row]
        fields, problem = contents.fields(instance, numbers[0], row)
        samples.append(
            SampleReport(
                row.source_time_ns,
                row.writer.hex(),
                str(row.sequence),
                status_text(row.status),
                row.digest.hex(),
                "".join(sides[number].label for number in numbers),
                fields,
                problem,
            )
        )
    newest = [_newest_fields(contents, instance, number) for number in range(len(sides))]
    name = next(side.groups[instance.code].name for side in sides if instance.code in side.groups)
    return InstanceReport(
        name.partition,
        name.topic,
        instance.key.hex(),
        tuple(len(rows) for rows in instance.rows),
        odd,
        cause,
        evidence,
        tuple(samples),
        _key_fields(sides, instance, newest),
        tuple(_field_differences(newest)),
    )


def _newest_fields(contents: _Contents, instance: InstanceDifference, number: int) -> dict[str, Value] | None:
    data = [row for row in instance.rows[number] if row.status & DATA]
    return contents.fields(instance, number, data[-1])[0] if data else None


def _key_fields(
    sides: Sequence[Side], instance: InstanceDifference, newest: Sequence[dict[str, Value] | None]
) -> dict[str, Value] | None:
    """Return the key fields; None if the type is unknown."""
    groups = [side.groups.get(instance.code) for side in sides]
    for group, fields in zip(groups, newest, strict=True):
        found = key_fields(group, fields) if group is not None else None
        if found is not None:
            return found
    return None


def _field_differences(newest: Sequence[dict[str, Value] | None]) -> Iterator[FieldReport]:
    flat = [dict(_flat("", fields)) if fields is not None else {} for fields in newest]
    if sum(1 for fields in newest if fields is not None) < 2:
        return
    for path in dict.fromkeys(path for fields in flat for path in fields):
        values = tuple(fields.get(path) for fields in flat)
        present = [value for value, fields in zip(values, newest, strict=True) if fields is not None]
        if any(value != present[0] for value in present[1:]):
            yield FieldReport(path, values)


def _flat(path: str, value: Value) -> Iterator[tuple[str, Value]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _flat(f"{path}.{name}" if path else name, item)
    else:
        yield path, value
