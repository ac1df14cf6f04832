"""The comparison as SQL, the same text for every engine.

Rows that are not in every store are found by group number and digest alone, which are numbers. Keys and
times are read only of the instances that these rows belong to. Of each store there is a view `side_0`,
`side_1`, ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ospltool.stores.diff.contract import Instance, Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SIDE_COLUMNS: Final = (
    "group_code, key, source_time_ns, writer, sequence, status, digest_high, digest_low, payload"
)
_UNSIGNED: Final = 1 << 64


def odd_rows(sides: int) -> str:
    """Which rows, by group and digest, are not in every store."""
    if sides == 2:  # a join is faster than counting
        return """
            SELECT coalesce(a.group_code, b.group_code) AS group_code,
                   coalesce(a.digest_high, b.digest_high) AS digest_high,
                   coalesce(a.digest_low, b.digest_low) AS digest_low
            FROM side_0 AS a FULL OUTER JOIN side_1 AS b
              ON a.digest_low = b.digest_low AND a.digest_high = b.digest_high AND a.group_code = b.group_code
            WHERE a.group_code IS NULL OR b.group_code IS NULL"""
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
        SELECT s.group_code, s.key FROM side_{number} AS s JOIN odd_rows AS o
          ON s.digest_low = o.digest_low AND s.digest_high = o.digest_high AND s.group_code = o.group_code"""  # noqa: S608  # numbers
        for number in range(sides)
    )


def all_rows(sides: int) -> str:
    """All rows of those instances, in order. The instances are in table `odd_keys`."""
    rows = " UNION ALL ".join(
        f"""
        SELECT {number} AS side, s.group_code, s.key, s.source_time_ns, s.writer, s.sequence, s.status,
               s.digest_high, s.digest_low
        FROM side_{number} AS s JOIN odd_keys AS k ON s.key = k.key AND s.group_code = k.group_code"""  # noqa: S608  # numbers
        for number in range(sides)
    )
    return f"SELECT * FROM ({rows}) AS r ORDER BY group_code, key, side"  # noqa: S608  # numbers


def contents(side: int) -> str:
    """The payloads of the rows in table `wanted`."""
    return f"""
        SELECT s.group_code, s.digest_high, s.digest_low, s.payload
        FROM side_{side} AS s JOIN wanted AS w
          ON s.digest_low = w.digest_low AND s.digest_high = w.digest_high AND s.group_code = w.group_code"""  # noqa: S608  # a number


def digest_of(high: int, low: int) -> bytes:
    """A digest from its halves."""
    return (high % _UNSIGNED << 64 | low % _UNSIGNED).to_bytes(16)


def halves_of(digest: bytes) -> tuple[int, int]:
    """The halves of a digest, as a snapshot has them."""
    return int.from_bytes(digest[:8], signed=True), int.from_bytes(digest[8:], signed=True)


def to_instances(rows: Iterable[tuple[object, ...]], sides: int) -> Iterator[Instance]:
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


def _instance(place: tuple[int, bytes], held: list[dict[bytes, Row]]) -> Instance:
    return Instance(*place, tuple(tuple(sorted(rows.values())) for rows in held))


def _bytes(value: object) -> bytes:
    assert isinstance(value, bytes | bytearray | memoryview)
    return bytes(value)
