"""`ospltool store`: open, verify, compare and copy durability stores."""

from __future__ import annotations

from typing import Final

import typer

from ospltool.cli.store.copying import export, import_, replace, restore
from ospltool.cli.store.diff import diff
from ospltool.cli.store.looking import backups, info, ls, show, verify, watch

_HELP: Final = """Open durability stores of ospltool nodes and of OpenSplice, and compare them.

A store is the store directory of a node, the directory of OpenSplice's kv.sqlite, kvmt.sqlite or XML store,
or a snapshot that `store export` made. Only `import`, `replace` and `restore` change a store.
"""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    store = typer.Typer(help=_HELP, no_args_is_help=True, rich_markup_mode=None)
    store.command("info", short_help="Show the content of stores.")(info)
    store.command("backups", short_help="List the replaced sets that a store keeps.")(backups)
    store.command("ls", short_help="List instances or samples.")(ls)
    store.command("show", short_help="Show samples with metadata, fields and bytes.")(show)
    store.command("verify", short_help="Check stores for damage.")(verify)
    store.command("export", short_help="Write a snapshot (Parquet), JSON lines or MCAP.")(export)
    store.command("import", short_help="Make an ospltool store from another store.")(import_)
    store.command("diff", short_help="Compare two or more stores.")(diff)
    store.command("watch", short_help="Show changes in a store as they happen.")(watch)
    store.command("replace", short_help="Replace the set of a stopped node.")(replace)
    store.command("restore", short_help="Bring a replaced set back.")(restore)
    app.add_typer(store, name="store", short_help="Open, verify and compare durability stores.")
