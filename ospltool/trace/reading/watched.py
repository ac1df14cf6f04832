"""How far a long reading is, on a terminal."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ospltool.trace.reading.record import Record
    from ospltool.trace.reading.sources import Source

EVERY_S: Final = 0.5
EVERY_RECORDS: Final = 5_000


def watched(records: Iterable[Record], sources: Sequence[Source], stream: TextIO) -> Iterator[Record]:
    """The records; on a terminal with a line that says how much was read, and goes away at the end."""
    if not stream.isatty():
        yield from records
        return
    size = sum(source.path.stat().st_size for source in sources if not source.compressed)
    done, shown, drawn = 0, time.monotonic(), False
    try:
        for number, record in enumerate(records):
            done += record.length
            if number % EVERY_RECORDS == 0 and time.monotonic() - shown > EVERY_S:
                shown, drawn = time.monotonic(), True
                share = f" of {size >> 20}" if size else ""
                stream.write(f"\r{done >> 20}{share} MiB read ")
                stream.flush()
            yield record
    finally:
        if drawn:
            stream.write("\r\x1b[K")
            stream.flush()
