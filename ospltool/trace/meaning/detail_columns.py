"""Finds level, template and fields of many trace records at once, as columns.

Messages that differ only in digits come from the same template, and have their fields in the same places. So
digits are masked, equal messages are found by their hashes (and compared byte by byte), one of each is
matched, and the fields of all are cut out of the piece as columns. A message for which this is not safe (see
`_is_safe`) is matched by itself.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ospltool.trace.meaning.catalogue import UNKNOWN_LEVEL, Product, Template, pieces
from ospltool.trace.meaning.matcher import Match, Shape, matcher, templates_with_digits
from ospltool.trace.reading import compiled
from ospltool.trace.reading.splitter import Positions, string_views

OWN_COLUMNS: Final = ("fellow", "namespace", "group", "conflict", "samples", "source")
"""Fields with a column of their own, in the order of the contract."""

INTEGERS: Final = frozenset({"conflict", "samples"})

# A trace has some hundred kinds of lines with some plans each; a text of another kind has a plan for each
# line. Some tens of megabytes.
REMEMBERED: Final = 50_000
"""Number of remembered plans. Beyond it, all are forgotten."""

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
        body: beginning of each message.
        stop: end of each message.
        store: for each message, whether the store's printer wrote it.
        open_end: for each message, whether no line end follows.
        origin: product that wrote the trace.
    """

    def __init__(
        self,
        data: bytes,
        body: Positions,
        stop: Positions,
        store: npt.NDArray[np.bool_],
        open_end: npt.NDArray[np.bool_],
        origin: Product = Product.OPENSPLICE,
    ) -> None:
        self._data = data
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
        return int(self.are(lambda template: template is None).sum())

    def by_template(self) -> Positions:
        """Return the order of the records by the id of their template, those of each in their order."""
        ids = [shape.template.id if shape else "" for shape in self._shapes]
        ranks = {one: rank for rank, one in enumerate(sorted(set(ids)))}
        rank_of = np.array([ranks[one] for one in ids], np.int16)
        return np.argsort(rank_of[self._codes], kind="stable") if ids else np.zeros(0, np.int64)

    def are(self, is_wanted: Callable[[Template | None], bool]) -> npt.NDArray[np.bool_]:
        """Return for each record whether its template is wanted."""
        wanted = np.array([is_wanted(shape.template if shape else None) for shape in self._shapes], np.bool_)
        return wanted[self._codes] if len(wanted) else np.zeros(0, np.bool_)

    def reorder(self, order: Positions) -> None:
        """Put the records into another order."""
        self._body, self._stop = self._body[order], self._stop[order]
        self._plan_of, self._codes = self._plan_of[order], self._codes[order]

    # ------------------------------------------------------------------ which messages are alike

    def _find_plans(self) -> tuple[list[Plan], Positions]:
        """Return the plans of all kinds of messages, and the index of each record's plan."""
        plans: list[Plan] = []
        plan_of = self._scanned(plans, compiled.library())
        for row in np.flatnonzero(plan_of < 0).tolist():
            plan_of[row] = len(plans)
            plans.append(self._plan(row))
        return plans, plan_of

    def _scanned(self, plans: list[Plan], scanner: ctypes.PyDLL) -> Positions:
        """Find the plans of all messages that are safe."""
        data = np.frombuffer(self._data, np.uint8)
        kind_of, firsts, texts = compiled.kinds(
            scanner, data, self._body, self._stop, self._store, self._open_end
        )
        numbers = np.full(len(firsts) + 1, -1, np.int64)  # the last one is for those without a kind
        for kind, (text, row) in enumerate(zip(texts, firsts, strict=True)):
            numbers[kind] = self._number_of(text, row, plans)
        return numbers[kind_of]

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
        column = string_views(self._data, start, stop, present)
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
        values = string_views(self._data, start, stop).cast(pa.string())
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


def coded(codes: npt.NDArray[np.int32], values: list[str | None]) -> Any:
    """Return a column of few different values, which may be null. A value may occur twice in `values`."""
    missing = np.array([value is None for value in values], np.bool_)[codes] if values else None
    texts = pa.array([value or "" for value in values], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=missing), texts)
