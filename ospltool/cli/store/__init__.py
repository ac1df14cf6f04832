"""`ospltool store`: open, verify, compare and copy durability stores."""

from __future__ import annotations

from typing import Final

from ospltool.cli.options import command_group
from ospltool.cli.store.copying import export, import_, replace, restore
from ospltool.cli.store.diff import diff
from ospltool.cli.store.looking import backups, info, ls, show, verify, watch

_HELP: Final = """Open durability stores of ospltool nodes and of OpenSplice, and compare them.

A store is the store directory of a node, the directory of OpenSplice's kv.sqlite, kvmt.sqlite or XML store,
or a snapshot that `store export` made. Only `import`, `replace` and `restore` change a store.
"""


group = command_group(
    _HELP,
    (
        ("info", info, "Show the content of stores."),
        ("backups", backups, "List the replaced sets that a store keeps."),
        ("ls", ls, "List instances or samples."),
        ("show", show, "Show samples with metadata, fields and bytes."),
        ("verify", verify, "Check stores for damage."),
        ("export", export, "Write a snapshot (Parquet), JSON lines or MCAP."),
        ("import", import_, "Make an ospltool store from another store."),
        ("diff", diff, "Compare two or more stores."),
        ("watch", watch, "Show changes in a store as they happen."),
        ("replace", replace, "Replace the set of a stopped node."),
        ("restore", restore, "Bring a replaced set back."),
    ),
)
