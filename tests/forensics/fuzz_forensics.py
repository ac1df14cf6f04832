"""What else an investigation reads, as targets for damaged files."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Sequence

from ospltool.forensics.attachments import find_attachments
from ospltool.forensics.investigation import configured
from ospltool.forensics.stored import sizes_of
from tests.forensics.recordings import recording
from tests.fuzzing import Target

CONFIGURATION = b"""<OpenSplice><Domain><Name>n</Name><Id>1</Id></Domain><DurabilityService name="durability">
<NameSpaces><NameSpace name="a"><Partition>*</Partition></NameSpace><Policy nameSpace="a" durability="Durable"
aligner="true" alignee="Initial"/></NameSpaces></DurabilityService></OpenSplice>"""


def _recorded(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        path = pathlib.Path(scratch) / "r.jsonl"
        path.write_bytes(data)
        sizes_of(path)


def _configured(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        (pathlib.Path(scratch) / "n.xml").write_bytes(data)
        configured(find_attachments([scratch], ["n"]))


def targets() -> Sequence[Target]:
    """Recordings and configurations beside traces."""
    return (
        Target("recording", [recording([3, 7, 0]), recording([1, 2])], _recorded),
        Target("configuration", [CONFIGURATION], _configured),
    )
