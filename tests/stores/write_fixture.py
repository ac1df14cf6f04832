"""Writes the store fixture of a release: `python -m tests.stores.write_fixture COMMIT TARGET.tar.xz`.

The packages of the commit write it, so that the fixture is what that release really left on disk. It is the
store of a node that was killed: a complete set whose last changes are in the write-ahead log, the start of
an interrupted alignment, an operator's back-up, remembered values and fellows.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from pathlib import Path

from tests.integration.releases import NotBuilt, built, run

PROGRAM = """
import contextlib, os, sys
from pathlib import Path
from engine.core.name_spaces import Group
from engine.dataset.groups import DurabilityKind, GroupDescription, GroupQos, TypeDescription
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, make_sample
from engine.store.interface import Change, Fellow
from engine.store.sqlite import SqliteStore

TIME = 1_700_000_000_000_000_000
type_ = TypeDescription("Reading", b"information of Reading", b"mapping" * 20, keyed=True)
qos = GroupQos(DurabilityKind.PERSISTENT, history_depth=2, cleanup_delay_ns=60_000_000_000)
groups = [GroupDescription(Group(name, "Reading", type_.type_id), type_, qos) for name in ("stock", "spare")]

def sample(number, status=DATA):
    key, payload = (number % 10).to_bytes(4), b"reading %d" % number
    return make_sample(TIME + number * 1000, number.to_bytes(16), status, key, payload, sequence=number)

store = SqliteStore(Path(sys.argv[1]), "n1", lambda: "0123456789abcdef0123456789abcdef")
for first in (0, 5):
    writer = store.begin_set("stock")
    for group in groups:
        writer.add(group, [sample(n) for n in range(first, first + 10)])
    store.commit_complete(writer, "3/n1/1", keep_previous=bool(first))
store.append("stock", [Change(groups[0], sample(20), [sample(10)])])
store.append("stock", [Change(groups[0], sample(21, DISPOSE)), Change(groups[1], sample(22, UNREGISTER))])
store.mark("stock", {"lineage": "3/n1/1"})
store.remember_fellows("stock", [Fellow("f" * 32, "n2", "Depot")])
store.begin_set("stock").add(groups[0], [sample(n) for n in range(30, 33)])
os._exit(9)  # killed: the log is not carried over to the file
"""


def main(commit: str, target: Path) -> None:
    """Build the release, let it write a store, and pack that."""
    with tempfile.TemporaryDirectory() as directory:
        try:
            code = built(commit, Path(directory))
        except NotBuilt as reason:
            sys.exit(str(reason))
        store = Path(directory) / "store"
        run(code, PROGRAM, str(store), ends_with=9)
        with tarfile.open(target, "w:xz") as packed:
            for path in sorted(store.iterdir()):
                if not path.name.endswith(("-shm", ".lock")):
                    packed.add(path, path.name, filter=_anonymous)


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    return info


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
