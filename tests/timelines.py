"""What a reader sees of one instance when writers come, go, are cut off and return: one table of words.

It is for everything that shows instances: the model, the client library, ordinary readers.

A script has words. `aS1` says that writer a writes at time 1; D is a dispose, U an unregister, A both, W a
write and dispose. `a-2` loses a writer with autodispose at time 2, `a~2` one without. `a+` brings a writer
back with all facts of the script so far, `a+S4` with one more of its own that nobody else has seen. `take`
and `read` are what the application does.

What is shown has S1 for a sample of time 1, D2 and NW2 for an instance that is disposed and has no writers
since time 2, and a stroke for each generation.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from engine.dataset.groups import KEEP_ALL
from engine.dataset.sample import DATA, DISPOSE, LOST_HEADER, UNREGISTER, Sample, make_sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from engine.dataset.instance import ReaderEntry

DEPTHS: Final = (1, 3, KEEP_ALL)

STATUS = {
    "S": DATA,
    "D": DISPOSE,
    "U": UNREGISTER,
    "W": DATA | DISPOSE,
    **dict.fromkeys("AE", DISPOSE | UNREGISTER),
}
"""Letters for what a writer says: sample, dispose, unregister, writedispose, autodispose; E is the end that
nodes say of a lost writer."""


def fact(word: str) -> Sample:
    """`aS1`: writer a writes at time 1."""
    payload = LOST_HEADER if word[1] == "E" else b""
    return make_sample(int(word[2:]), word[0].encode() * 16, STATUS[word[1]], b"", payload)


def shown(timeline: Iterable[ReaderEntry]) -> str:
    """A timeline as the text writes it, S1' for a sample of time 1 and generation 1."""
    return " ".join(f"{entry.kind}{entry.time_ns}" + "'" * entry.generation for entry in timeline)


class Row(NamedTuple):
    """A line of the table; `deeper` and `every` are empty where they are the same as what stands before."""

    what: str
    script: str
    state: str
    one: str
    deeper: str
    every: str = ""

    def timeline(self, depth: int) -> str:
        """What a reader of that depth shows in the end."""
        three = self.one if self.deeper == "=" else self.deeper
        return {1: self.one, 3: three, KEEP_ALL: self.every or three}[depth]

    def words(self, depth: int, times: Mapping[int, int]) -> str:
        """The same with other source times, and without those of disconnects and generations."""
        shown = self.timeline(depth).replace("'", "")
        real = re.sub(r"S(\d+)", lambda found: f"S{times[int(found[1])]}", shown)
        return re.sub(r"(D|NW)\d+", r"\1", real)


TIMELINES = """
# what | script | state | at depth 1 | at depth 3 (= the same) | with KEEP_ALL where it is not the same
# "Visible effects of a disconnect", the three cases and their neighbours
autodispose true                   | aS1 a-2                | DISPOSED   | S1 D2    | =
true, others are left              | aS1 bS1 a-2            | DISPOSED   | S1 D2    | S1 S1 D2
autodispose false                  | aS1 a~2                | NO_WRITERS | S1 NW2   | =
false, others are left             | aS1 bS1 a~2            | ALIVE      | S1       | S1 S1
false, then the others             | aS1 bS2 a~3 b~4        | NO_WRITERS | S2 NW4   | S1 S2 NW4
one not of this instance           | aS1 b-2                | ALIVE      | S1       | =
one that unregistered              | aS1 bS2 aU3 a-4        | ALIVE      | S2       | S1 S2
already disposed                   | aS1 aD2 a-3            | DISPOSED   | S1 D2    | =
its end is known later as a fact   | aS1 a-3 aE2            | DISPOSED   | S1 D3    | =
the same, and it comes back        | aS1 a-3 aE2 a+         | ALIVE      | S1'      | S1 D3 S1'
already without writers            | aS1 aU2 a~3            | NO_WRITERS | S1 NW2   | =
# "Visible effects of a re-connect": the same sample twice, with generation count n and n + 1
the text's first timeline          | aS1 a-2 a+             | ALIVE      | S1'      | S1 D2 S1'
the text's second timeline         | aS1 a~2 a+             | ALIVE      | S1'      | S1 NW2 S1'
twice                              | aS1 a-2 a+ a-3 a+      | ALIVE      | S1''     | S1 D2 S1' D3' S1''
nothing was changed                | aS1 bS2 a~3 a+         | ALIVE      | S2       | S1 S2
with what was written meanwhile    | aS1 a-2 a+S3           | ALIVE      | S3'      | S1 D2 S1' S3'
disposed meanwhile                 | aS1 a~2 a+D3           | DISPOSED   | S1' D3'  | S1 NW2 S1' D3'
gone for good meanwhile            | aS1 a-2 a+U3           | NO_WRITERS | S1' NW3' | S1 D2 S1' NW3'
another writer goes on             | aS1 a-2 bS3 a+         | ALIVE      | S3'      | S1 D2 S3'
another writer disposes            | aS1 a-2 bD3 a+         | DISPOSED   | S1 D3    | =
disposed before it was lost        | aS1 aD2 a-3 a+         | DISPOSED   | S1 D2    | =
both are lost, one comes back | aS1 bS2 a~3 b~4 a+ | ALIVE | S2' | S2 NW4 S1' S2' | S1 S2 NW4 S1' S2'
another one went on before | aS1 a-2 bS3 b-4 b+ | ALIVE | S3'' | S3' D4' S1'' S3'' | S1 D2 S3' D4' S1'' S3''
another one went on behind a dispose | aD1 a-2 bS3 b-4 b+ | ALIVE | S3'' | D1 S3' D1' S3''
it went on, the first comes back | aS1 a-2 bS3 b-4 a+ | DISPOSED | S3' D4' | S1 D2 S3' D4'
one that disposes stays away       | aS1 bS2 a-3 b-4 b+     | DISPOSED   | S2 D3    | S1 S2 D3
both disposed, both come back | aS1 bS2 a-3 b-4 b+ a+ | ALIVE | S2' | S2 D3 S1' S2' | S1 S2 D3 S1' S2'
deeper than three | aS1 aS2 aS3 aS4 a~5 a+ | ALIVE | S4' | S2' S3' S4' | S1 S2 S3 S4 NW5 S1' S2' S3' S4'
# samples already taken
taken, then lost                   | aS1 take a-2           | DISPOSED   | D2       | =
taken, then back                   | aS1 take a-2 a+        | ALIVE      | S1'      | D2 S1'
all taken, then back               | aS1 a-2 take a+        | ALIVE      | S1'      | =
taken, nothing new                 | aS1 bS2 take a~3 a+    | ALIVE      |          | =
# what the durability service says of a writer that is still absent
said by one that is absent         | aS1 a~1 aS2            | NO_WRITERS | S2' NW2' | S1 NW1 S2' NW2'
# facts alone
autodispose said by the writer     | aS1 aA2                | DISPOSED   | S1 D2    | =
reborn                             | aS1 aD2 aS3            | ALIVE      | S3'      | S1 D2 S3'
a writer again                     | aS1 aU2 bS3            | ALIVE      | S3'      | S1 NW2 S3'
writedispose                       | aW1                    | DISPOSED   | S1       | =
dispose of nothing                 | aD1                    | DISPOSED   | D1       | =
unregister of nothing              | aU1                    | NONE       |          | =
a writer that is gone already      | aU2 aS1                | NO_WRITERS | S1 NW2   | =
# BY_SOURCE_TIMESTAMP
late sample                        | aS2 bS1                | ALIVE      | S2       | S1 S2
late dispose                       | aS2 bD1                | ALIVE      | S2       | D1 S2
late sample of a disposed instance | aD2 bS1                | DISPOSED   | S1 D2    | =
equal times, by writer             | bS1 aS1                | ALIVE      | S1       | S1 S1
late sample of one who is here     | aS1 aU3 bS2            | ALIVE      | S2'      | S1 NW3 S2'
late sample behind a disconnect    | aS1 bS1 a-3 bS2        | DISPOSED   | S2 D3    | S1 S1 S2 D3
"""


def _rows(table: str) -> list[Row]:
    """The cells of a table, without its remarks."""
    lines = [line for line in table.strip().splitlines() if not line.startswith("#")]
    return [Row(*(cell.strip() for cell in line.split("|"))) for line in lines]


ROWS: Final = _rows(TIMELINES)
NAMED: Final = {row.what: row for row in ROWS}
CUT: Final = {True: NAMED["autodispose true"], False: NAMED["autodispose false"]}
"""A writer is cut off, by its autodispose."""
HEALED: Final = {True: NAMED["the text's first timeline"], False: NAMED["the text's second timeline"]}
"""It comes back."""
