"""Steps of alignments in a case, as columns: no record is made of them, and no text before it is shown."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ospltool.analytics.columns import texts_of
from ospltool.trace.meaning.catalogue import catalogue
from ospltool.trace.meaning.exchanges import FOLLOWERS, KINDS, WORDS, StepRows, kind_counts
from ospltool.trace.meaning.lines import NumberedLines, RecordPlace, beginning
from ospltool.trace.reading.record import NEEDED

Numbers = npt.NDArray[np.int64]

_ALONE: Final = frozenset(
    {
        "align.completed",
        "fellow.quarantined",
        "fellow.disconnected",
        "fellow.heartbeat-lost",
        "lifecycle.address",
        "merge.started",
        "merge.finished",
    }
)
"""Events of which other facts follow, too."""

_EVENTS: Final = ("", *sorted(FOLLOWERS.keys() - _ALONE))
"""Events of steps by their code; 0 is for all other records."""

_CODES: Final = {event: code for code, event in enumerate(_EVENTS)}
_FOLLOWERS: Final = tuple(FOLLOWERS.get(event) for event in _EVENTS)
_NEEDS_GROUP: Final = np.array(["group" in NEEDED.get(event, ()) for event in _EVENTS])
_NEEDS_FELLOW: Final = np.array(["fellow" in NEEDED.get(event, ()) for event in _EVENTS])
_NEEDS_NO_GROUP: Final = np.array([event in KINDS for event in _EVENTS])
_HAS_SOURCE: Final = np.array([bool(event) and event not in WORDS for event in _EVENTS])
_WORD_NAMES: Final = tuple(sorted(set(WORDS.values())))
_WORD_OF: Final = np.array(
    [_WORD_NAMES.index(WORDS[event]) if event in WORDS else len(_WORD_NAMES) for event in _EVENTS]
)


def _codes_of(rows: pa.RecordBatch) -> Numbers:
    """Return the code of the event of each row, if it is a whole step and nothing else; else 0."""
    templates = rows.column("template").dictionary_encode()
    of_template = np.array([*map(_code_of, templates.dictionary.to_pylist()), 0], np.int64)
    places = templates.indices.fill_null(len(of_template) - 1).to_numpy()
    codes = np.where(_truth(rows.column("is_quiet")), of_template[places], 0)
    no_group = ~_truth(rows.column("group_name").is_valid())
    no_fellow = ~_truth(rows.column("fellow").is_valid())
    unfit = (
        (_NEEDS_GROUP[codes] & no_group)
        | (_NEEDS_FELLOW[codes] & no_fellow)
        | (_NEEDS_NO_GROUP[codes] & ~no_group)
    )
    codes[unfit] = 0
    return codes


@functools.cache
def _code_of(template: str) -> int:
    found = catalogue().get(template)
    return 0 if found is None else _CODES.get(found.event, 0)


class StepColumns:
    """Rows in order, of which those with a code are steps.

    Args:
        rows: the rows.
        skews: nanoseconds to add to the times of each node.
    """

    def __init__(self, rows: pa.RecordBatch, skews: Mapping[str, int]) -> None:
        self._rows, self._codes, self._skews = rows, _codes_of(rows), skews
        self._lines: CaseLines | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def others(self) -> pa.RecordBatch:
        """Return the rows that are no steps."""
        return self._rows.take(pa.array(np.flatnonzero(self._codes == 0)))

    def rows(self, lines: NumberedLines) -> StepRows:
        """Return the rows for `TraceFacts.add_rows`, and give `lines` those of steps."""
        rows, codes = self._rows, self._codes
        nodes = texts_of(rows.column("node"))
        steps = rows.select(["node", "file", "off", "time_ns", "text"]).take(pa.array(np.flatnonzero(codes)))
        self._lines = CaseLines(steps, codes[codes > 0])
        first = lines.extend(self._lines, _times(steps, self._skews).tobytes())
        words, kinds = _words_and_kinds(rows, codes)
        samples = rows.column("samples").fill_null(-1).to_numpy().tolist()
        told = zip(
            (np.cumsum(codes > 0) + (first - 1)).tolist(),
            _texts(rows.column("group_name")),
            _texts(rows.column("fellow")),
            [None if one < 0 else one for one in samples],
            words,
            kinds,
            strict=True,
        )
        followers = [_FOLLOWERS[code] for code in codes.tolist()]
        return StepRows(followers, nodes, told, rows.column("run").to_numpy().tolist())

    def forget(self, known: Collection[str]) -> None:
        """Forget lines of steps that no alignment has: their node has no address, so it is not in `known`."""
        if self._lines is not None:
            self._lines.forget(known)


def _texts(column: pa.Array) -> list[str]:
    return texts_of(column.fill_null(""))


def _words_and_kinds(rows: pa.RecordBatch, codes: Numbers) -> tuple[list[str], list[Any]]:
    """Return the field of each row that `WORDS` names, and the samples by kind."""
    words = np.array(_texts(rows.column("request")), object)
    words[~_HAS_SOURCE[codes]] = ""
    fields = rows.column("fields")
    offsets = fields.offsets.to_numpy()
    of_row = np.repeat(np.arange(len(rows)), np.diff(offsets))
    keys = fields.keys.slice(offsets[0], offsets[-1] - offsets[0]).dictionary_encode()
    items = fields.items.slice(offsets[0], offsets[-1] - offsets[0])
    names, key_of = keys.dictionary.to_pylist(), keys.indices.to_numpy()
    is_there = _truth(fields.is_valid())[of_row]

    def entries(name: str, wanted: npt.NDArray[np.bool_]) -> Numbers:
        return np.flatnonzero((key_of == names.index(name)) & wanted[of_row] & is_there)

    for number, name in enumerate(_WORD_NAMES):
        if name in names:
            found = entries(name, _WORD_OF[codes] == number)
            words[of_row[found]] = texts_of(items.take(pa.array(found)))
    kinds = np.full(len(rows), None, object)
    with_kinds = np.flatnonzero(_NEEDS_NO_GROUP[codes])
    if with_kinds.size:
        parts = []
        for name in ("writes", "write_disposes", "disposes"):
            column = np.full(len(rows), None, object)
            if name in names:
                found = entries(name, _NEEDS_NO_GROUP[codes])
                column[of_row[found]] = texts_of(items.take(pa.array(found)))
            parts.append(column[with_kinds].tolist())
        counts = np.empty(with_kinds.size, object)
        counts[:] = list(map(kind_counts, *parts))
        kinds[with_kinds] = counts
    return words.tolist(), kinds.tolist()


def _truth(column: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(column.to_numpy(zero_copy_only=False), np.bool_)


class CaseLines:
    """Lines of a case; see `LinePart`."""

    def __init__(self, rows: pa.RecordBatch, codes: Numbers) -> None:
        self._codes = codes
        self._kept: Numbers | None = None
        """The positions of the lines that are kept; None for all."""
        self._node, self._file = (rows.column(name).dictionary_encode() for name in ("node", "file"))
        self._offset = rows.column("off")
        self._texts = _PackedTexts(rows.column("text"))

    def forget(self, known: Collection[str]) -> None:
        """Forget the places of lines of nodes that are not known, except for applied merge policies."""
        names = self._node.dictionary.to_pylist()
        unknown = [at for at, name in enumerate(names) if name not in known]
        if not unknown or self._kept is not None:
            return
        is_known = ~np.isin(self._node.indices.to_numpy(), unknown)
        self._kept = np.flatnonzero(is_known | (self._codes == _CODES["merge.applying"]))
        kept = pa.array(self._kept)
        self._node, self._file, self._offset = (
            column.take(kept) for column in (self._node, self._file, self._offset)
        )

    def _position(self, at: int) -> int:
        return at if self._kept is None else int(np.searchsorted(self._kept, at))

    def node(self, at: int) -> str:
        """Return the node of a line."""
        return str(self._node[self._position(at)].as_py())

    def place(self, at: int, time_ns: int | None) -> RecordPlace:
        """Return the place of a line."""
        position = self._position(at)
        node, file, offset = (column[position].as_py() for column in (self._node, self._file, self._offset))
        return RecordPlace(node, file, offset, time_ns, beginning(self._texts[at]))


def _times(rows: pa.RecordBatch, skews: Mapping[str, int]) -> Numbers:
    """Return the corrected times of rows."""
    times: Numbers = rows.column("time_ns").to_numpy()
    if not any(skews.values()):
        return times
    nodes = rows.column("node").dictionary_encode()
    added = np.array([skews.get(node, 0) for node in nodes.dictionary.to_pylist()], np.int64)
    corrected: Numbers = times + added[nodes.indices.to_numpy()]
    return corrected


_ROWS: Final = 2_048
"""Texts that are compressed together; to show one, all of them are taken out."""
_RECENT: Final = 16
_LEVEL: Final = 1


class _PackedTexts:
    """The texts of a column, by position, compressed: few of them are ever shown.

    Args:
        texts: a column of texts, none of them missing, whose memory need not stay.
    """

    def __init__(self, texts: pa.StringArray) -> None:
        codec = pa.Codec("zstd", compression_level=_LEVEL)
        _, places, data = texts.buffers()
        kind = np.int64 if pa.types.is_large_string(texts.type) else np.int32
        first = texts.offset
        self._places = (
            np.frombuffer(places, kind)[first : first + len(texts) + 1].copy()
            if len(texts)
            else np.zeros(1, kind)
        )
        self._blocks: list[bytes] = []
        for first in range(0, len(texts), _ROWS):
            start, end = self._span(first // _ROWS)
            self._blocks.append(
                codec.compress(data.slice(start, end - start), asbytes=True) if end > start else b""
            )

    def _span(self, block: int) -> tuple[int, int]:
        return int(self._places[block * _ROWS]), int(
            self._places[min((block + 1) * _ROWS, self._places.size - 1)]
        )

    def __getitem__(self, at: int) -> str:
        block = at // _ROWS
        start, end = self._span(block)
        if start == end:
            return ""
        data = _unpacked(self._blocks[block], end - start)
        return data[int(self._places[at]) - start : int(self._places[at + 1]) - start].decode()


@functools.lru_cache(_RECENT)
def _unpacked(block: bytes, size: int) -> bytes:
    return bytes(pa.Codec("zstd").decompress(block, size, asbytes=True))
