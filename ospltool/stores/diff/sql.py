"""The comparison as SQL, the same text for every engine.

Rows that are not in every store are found by group number and digest alone, which are numbers. Keys and
times are read only of the instances that these rows belong to. Where each instance has one row at most, as
with a history of depth 1, that is one pass less. Of each store there is a view `side_0`, `side_1`, ... with
the rows to compare, and a view `whole_0`, `whole_1`, ... with all rows: an engine that knows rows to be in
every store compares only the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from ospltool.stores.diff.sides import InstanceDifference, Row, Wanted

SIDE_COLUMNS: Final = (
    "group_code, key, source_time_ns, writer, sequence, status, digest_high, digest_low, payload"
)
COMPARED_COLUMNS: Final = SIDE_COLUMNS.removesuffix(", payload")
"""The columns of which a comparison needs the rows that are not in every store."""

_UNSIGNED: Final = 1 << 64


def _same(left: str, right: str) -> str:
    """That two rows have the same digest and group.

    Half of the digest is what is hashed, the rest is held against it where that half is equal: a third
    faster than hashing all three, and no less exact.
    """
    rest = (
        f"{left}.{name} BETWEEN {right}.{name} AND {right}.{name}" for name in ("digest_high", "group_code")
    )
    return f"{left}.digest_low = {right}.digest_low AND {' AND '.join(rest)}"


def odd_rows(sides: int) -> str:
    """Which rows, by group and digest, are not in every store."""
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


def odd_keys(sides: int) -> str:
    """Which instances those rows belong to. The rows are in table `odd_rows`."""
    return " UNION ".join(
        f"""
        SELECT s.group_code, s.key FROM side_{number} AS s JOIN odd_rows AS o ON {_same("s", "o")}"""  # noqa: S608  # numbers
        for number in range(sides)
    )


def all_rows(sides: int) -> str:
    """All rows of those instances, in order. The instances are in table `odd_keys`."""
    return _rows(sides, "whole", "odd_keys AS k ON s.key = k.key AND s.group_code = k.group_code")


def only_rows(sides: int) -> str:
    """The same where no instance has more than one row in a store: then those in `odd_rows` are all."""
    return _rows(sides, "side", f"odd_rows AS o ON {_same('s', 'o')}")


def _rows(sides: int, view: str, join: str) -> str:
    rows = " UNION ALL ".join(
        f"""
        SELECT {number} AS side, s.group_code, s.key, s.source_time_ns, s.writer, s.sequence, s.status,
               s.digest_high, s.digest_low
        FROM {view}_{number} AS s JOIN {join}"""  # noqa: S608  # numbers, and our own text
        for number in range(sides)
    )
    return f"SELECT * FROM ({rows}) AS r ORDER BY group_code, key, side"  # noqa: S608  # numbers


def contents(side: int) -> str:
    """The payloads of the rows in table `wanted`."""
    return f"""
        SELECT s.group_code, s.digest_high, s.digest_low, s.payload
        FROM whole_{side} AS s JOIN wanted AS w ON {_same("s", "w")}"""  # noqa: S608  # a number


def digest_of(high: int, low: int) -> bytes:
    """A digest from its halves."""
    return (high % _UNSIGNED << 64 | low % _UNSIGNED).to_bytes(16)


def _halves_of(digest: bytes) -> tuple[int, int]:
    """The halves of a digest, as a snapshot has them."""
    return int.from_bytes(digest[:8], signed=True), int.from_bytes(digest[8:], signed=True)


def found_contents(
    wanted: Sequence[Wanted], payloads: Callable[[int, list[tuple[int, int, int]]], Iterable[Any]]
) -> dict[Wanted, bytes]:
    """Return the payloads of samples.

    Args:
        wanted: the samples.
        payloads: fills table `wanted` with groups and halves of digests, and runs `contents` of a side.
    """
    found: dict[Wanted, bytes] = {}
    for side in sorted({one.side for one in wanted}):
        places = [(one.code, *_halves_of(one.digest)) for one in wanted if one.side == side]
        for code, high, low, payload in payloads(side, places):
            found[Wanted(side, code, digest_of(high, low))] = bytes(payload)
    return found


def to_instances(rows: Iterable[tuple[object, ...]], sides: int) -> Iterator[InstanceDifference]:
    """The answer to `all_rows` as instances."""
    current: tuple[int, bytes] | None = None
    held: list[dict[bytes, Row]] = []
    for side, code, key, time_ns, writer, sequence, status, high, low in rows:
        assert isinstance(side, int)
        assert isinstance(code, int)
        place = (code, _bytes(key))
        if place != current:
            if current is not None:
                yield _instance(current, held)
            current, held = place, [{} for _ in range(sides)]
        assert isinstance(time_ns, int)
        assert isinstance(sequence, int)
        assert isinstance(status, int)
        assert isinstance(high, int)
        assert isinstance(low, int)
        digest = digest_of(high, low)
        held[side][digest] = Row(time_ns, _bytes(writer), sequence % _UNSIGNED, digest, status)
    if current is not None:
        yield _instance(current, held)


def _instance(place: tuple[int, bytes], held: list[dict[bytes, Row]]) -> InstanceDifference:
    return InstanceDifference(*place, tuple(tuple(sorted(rows.values())) for rows in held))


def _bytes(value: object) -> bytes:
    assert isinstance(value, bytes | bytearray | memoryview)
    return bytes(value)
