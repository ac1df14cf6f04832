"""Finds level, template and fields of many trace records at once, as columns.

Messages that differ only in digits come from the same template, and have their fields in the same places. So
digits are masked, equal messages are found by their hashes (and compared byte by byte), one of each is
matched, and the fields of all are cut out of the piece as columns. A message for which this is not safe (see
`_is_safe`) is matched by itself.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ospltool.trace.meaning.catalogue import UNKNOWN_LEVEL, Product, Template, pieces
from ospltool.trace.meaning.matcher import Match, Shape, matcher, templates_with_digits
from ospltool.trace.reading import compiled
from ospltool.trace.reading.splitter import Bytes, Positions, rows_of, string_views

OWN_COLUMNS: Final = ("fellow", "namespace", "group", "conflict", "samples", "source")
"""Fields with a column of their own, in the order of the contract."""

INTEGERS: Final = frozenset({"conflict", "samples"})

REMEMBERED: Final = 50_000
"""Number of remembered plans. Beyond it, all are forgotten."""

_WIDTHS: Final = (64, 128, 256, 512)
"""Messages are compared in rows of these widths; longer ones are matched by themselves."""

_DIGITS: Final = bytes.maketrans(b"123456789", b"000000000")
_HEX: Final = np.array([chr(code) in "0123456789abcdefABCDEF" for code in range(256)])
_LONGEST_POINTER: Final = 16
LONGEST_NUMBER: Final = 18
"""Digits of the longest number that always fits into 64 bits; longer ones are null."""


def is_own(name: str, template: Template | None) -> bool:
    """Return whether a field has a column of its own. Conflicts of ospltool, without numbers, have not."""
    is_engine = template is not None and template.origin is Product.ENGINE
    return name in OWN_COLUMNS and not (is_engine and name == "conflict")


class Plan(NamedTuple):
    """The shape of a message (None if no template matches), and the places of its fields."""

    shape: Shape | None
    places: tuple[tuple[int, int], ...]


class DetailColumns:
    """The columns from level to fields of a piece.

    Args:
        data: bytes of the piece, valid UTF-8.
        padded: the piece as `string_views` takes it.
        body: beginning of each message.
        stop: end of each message.
        store: for each message, whether the store's printer wrote it.
        open_end: for each message, whether no line end follows.
        origin: product that wrote the trace.
    """

    def __init__(
        self,
        data: bytes,
        padded: Bytes,
        body: Positions,
        stop: Positions,
        store: npt.NDArray[np.bool_],
        open_end: npt.NDArray[np.bool_],
        origin: Product = Product.OPENSPLICE,
    ) -> None:
        self._data, self._padded = data, padded
        self._body, self._stop = body, stop
        self._store, self._open_end = store, open_end
        self._matcher = matcher(origin)
        self._known = _known[origin]
        plans, self._plan_of = self._find_plans()
        numbers: dict[int, int] = {}
        self._shapes: list[Shape | None] = []
        codes = np.empty(len(plans), np.int32)
        for number, plan in enumerate(plans):
            code = numbers.setdefault(id(plan.shape), len(self._shapes))
            if code == len(self._shapes):
                self._shapes.append(plan.shape)
            codes[number] = code
        self._codes = codes[self._plan_of] if len(plans) else np.zeros(0, np.int32)
        most = max((len(plan.places) for plan in plans), default=0)
        self._places = np.zeros((len(plans), most, 2), np.int64)
        for number, plan in enumerate(plans):
            if plan.places:
                self._places[number, : len(plan.places)] = plan.places

    @property
    def unmatched(self) -> int:
        """Number of records that no template matches."""
        missing = [number for number, shape in enumerate(self._shapes) if shape is None]
        return int(np.isin(self._codes, missing).sum())

    def by_template(self) -> Positions:
        """Return the order of the records by the id of their template, those of each in their order."""
        ids = [shape.template.id if shape else "" for shape in self._shapes]
        ranks = {one: rank for rank, one in enumerate(sorted(set(ids)))}
        rank_of = np.array([ranks[one] for one in ids], np.int16)
        return np.argsort(rank_of[self._codes], kind="stable") if ids else np.zeros(0, np.int64)

    def take(self, order: Positions) -> None:
        """Put the records into another order."""
        self._body, self._stop = self._body[order], self._stop[order]
        self._plan_of, self._codes = self._plan_of[order], self._codes[order]

    # ------------------------------------------------------------------ which messages are alike

    def _find_plans(self) -> tuple[list[Plan], Positions]:
        """Return the plans of all kinds of messages, and the index of each record's plan."""
        plans: list[Plan] = []
        scanner = compiled.library()
        plan_of = self._compared(plans) if scanner is None else self._scanned(plans, scanner)
        for row in np.flatnonzero(plan_of < 0).tolist():
            plan_of[row] = len(plans)
            plans.append(self._plan(row))
        return plans, plan_of

    def _scanned(self, plans: list[Plan], scanner: ctypes.PyDLL) -> Positions:
        """Find the plans of all messages that are safe with the compiled library."""
        data = np.frombuffer(self._data, np.uint8)
        kind_of, firsts, texts = compiled.kinds(
            scanner, data, self._body, self._stop, self._store, self._open_end
        )
        numbers = np.full(len(firsts) + 1, -1, np.int64)  # the last one is for those without a kind
        for kind, (text, row) in enumerate(zip(texts, firsts, strict=True)):
            numbers[kind] = self._number_of(text, row, plans)
        return numbers[kind_of]

    def _compared(self, plans: list[Plan]) -> Positions:
        """Find the plans of all messages that are safe with NumPy."""
        lengths = self._stop - self._body
        plan_of = np.full(lengths.size, -1, np.int64)
        masked = _masked(self._data)
        alike = ~self._open_end & (lengths > 0)
        lower = 0
        for width in _WIDTHS:
            rows = np.flatnonzero(alike & (lengths > lower) & (lengths <= width))
            lower = width
            if rows.size:
                self._plans_of_width(rows, width, lengths, masked, plans, plan_of)
        return plan_of

    def _plans_of_width(
        self,
        rows: Positions,
        width: int,
        lengths: Positions,
        masked: Bytes,
        plans: list[Plan],
        plan_of: Positions,
    ) -> None:
        """Find the plans of rows of about the same length; skip rows that are not safe."""
        words = rows_of(masked, self._body[rows], width, lengths[rows])
        hashes = lengths[rows].astype(np.uint64) * np.uint64(2) + self._store[rows]
        for column in range(words.shape[1]):
            hashes = (hashes ^ words[:, column]) * np.uint64(0x9E3779B97F4A7C15)
            hashes ^= hashes >> np.uint64(29)
        _, first, kind = np.unique(hashes, return_index=True, return_inverse=True)
        same = (words == words[first][kind]).all(axis=1) & (
            self._store[rows] == self._store[rows[first]][kind]
        )
        numbers = np.empty(first.size, np.int64)
        for number, one in enumerate(rows[first].tolist()):
            text = masked[self._body[one] : self._stop[one]].tobytes()
            numbers[number] = self._number_of(text, one, plans)
        plan_of[rows] = np.where(same, numbers[kind], -1)

    def _number_of(self, text: bytes, row: int, plans: list[Plan]) -> int:
        """Add the plan of a masked message, found in a row; return its number, -1 if it is not safe."""
        key = (text, bool(self._store[row]))
        plan = self._known.get(key)
        if plan is None:
            plan = self._plan(row, shared=True)
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[key] = plan
        if plan is UNSAFE:
            return -1
        plans.append(plan)
        return len(plans) - 1

    def _plan(self, row: int, *, shared: bool = False) -> Plan:
        """Return the plan of one record; `UNSAFE` if it is to be shared and must not be."""
        raw = self._data[self._body[row] : self._stop[row]]
        text = raw.decode()
        found = self._matcher.match(text, store=bool(self._store[row]), cut=bool(self._open_end[row]))
        if shared and not _is_safe(found, text):
            return UNSAFE
        if found is None:
            return Plan(None, ())
        places = found.places
        if not text.isascii():
            places = [(len(text[:start].encode()), len(text[:end].encode())) for start, end in places]
        return Plan(found.shape, tuple(places))

    # ------------------------------------------------------------------ the columns

    def columns(self) -> list[Any]:
        """Return the columns from level to fields."""
        templates = [shape.template if shape else None for shape in self._shapes]
        return [
            coded(self._codes, [one.level if one else UNKNOWN_LEVEL for one in templates]),
            coded(self._codes, [one.id if one else None for one in templates]),
            coded(self._codes, [(one.event or None) if one else None for one in templates]),
            *(self._own_column(name) for name in OWN_COLUMNS),
            self._fields(),
        ]

    def _own_column(self, name: str) -> Any:
        place = np.array(
            [
                shape.names.index(name)
                if shape and name in shape.names and is_own(name, shape.template)
                else -1
                for shape in self._shapes
            ]
        )
        of_row = place[self._codes] if len(self._shapes) else np.zeros(0, np.int64)
        present = of_row >= 0
        places = self._places[self._plan_of[present], of_row[present]]
        start, stop = np.zeros(len(present), np.int64), np.zeros(len(present), np.int64)
        start[present] = self._body[present] + places[:, 0]
        stop[present] = self._body[present] + places[:, 1]
        if name in INTEGERS:
            present &= stop - start <= LONGEST_NUMBER
        column = string_views(self._data, self._padded, start, stop, present)
        return column.cast(pa.string()).cast(pa.int64()) if name in INTEGERS else column

    def _fields(self) -> Any:
        """Return the map from field names to values, for fields without a column of their own."""
        others = [
            [place for place, name in enumerate(shape.names) if not is_own(name, shape.template)]
            if shape
            else []
            for shape in self._shapes
        ]
        names = pa.array(
            [
                shape.names[place]
                for shape, some in zip(self._shapes, others, strict=True)
                if shape
                for place in some
            ],
            pa.string(),
        )
        widths = np.array([len(some) for some in others], np.int64)
        first = np.cumsum(widths) - widths
        flat = np.array([place for some in others for place in some], np.int64)
        counts = widths[self._codes] if len(others) else np.zeros(0, np.int64)
        offsets = np.concatenate(([0], np.cumsum(counts)))
        rows = np.repeat(np.arange(counts.size), counts)
        entry = np.repeat(first[self._codes] if len(others) else counts, counts) + (
            np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
        )
        places = self._places[self._plan_of[rows], flat[entry]]
        start, stop = self._body[rows] + places[:, 0], self._body[rows] + places[:, 1]
        values = string_views(self._data, self._padded, start, stop).cast(pa.string())
        return pa.MapArray.from_arrays(
            pa.array(offsets.astype(np.int32)), names.take(pa.array(entry)), values
        )


UNSAFE: Final = Plan(None, ((-1, -1),))
"""Messages of this kind are matched one by one."""

_known: Final[dict[Product, dict[tuple[bytes, bool], Plan]]] = {origin: {} for origin in Product}


def _is_safe(found: Match | None, text: str) -> bool:
    """Return whether all messages that differ from `text` only in digits have the same plan."""
    if any(pattern.fullmatch(text) for pattern in templates_with_digits()):
        return False
    if "0x" not in text or found is None:
        return True
    return not any(
        part.literal and part.literal[0] in "abcdefABCDEF" for part in pieces(found.template.pattern)[1:]
    )


def _masked(data: bytes) -> Bytes:
    """Return the bytes with every digit, and every hexadecimal digit of a pointer, as `0`."""
    masked = np.frombuffer(data.translate(_DIGITS), np.uint8)
    at = np.flatnonzero(masked[1:] == ord("x"))
    at = at[masked[at] == ord("0")] + 2
    if not at.size:
        return masked
    changed = masked.copy()
    for _ in range(_LONGEST_POINTER):
        at = at[at < changed.size]
        at = at[_HEX[changed[at]]]
        changed[at] = ord("0")
        at = at + 1
    return changed


def coded(codes: npt.NDArray[np.int32], values: list[str | None]) -> Any:
    """Return a column of few different values, which may be null. A value may occur twice in `values`."""
    missing = np.array([value is None for value in values], np.bool_)[codes] if values else None
    texts = pa.array([value or "" for value in values], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=missing), texts)
