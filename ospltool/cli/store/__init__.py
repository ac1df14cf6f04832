"""`ospltool store`: what is in durability stores, whether they are sound, and how they differ."""

from __future__ import annotations

from typing import Final

import typer

from ospltool.cli.store.comparing import diff
from ospltool.cli.store.copying import export, import_, replace, restore
from ospltool.cli.store.looking import backups, info, ls, show, verify, watch

_HELP: Final = """Open durability stores of our nodes and of OpenSplice, and compare them.

A store is the directory of a node's store, of OpenSplice's kv.sqlite, kvmt.sqlite or XML store, or a snapshot
that `store export` made. Stores are only read, except by `import`, `replace` and `restore`.
"""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    store = typer.Typer(help=_HELP, no_args_is_help=True, rich_markup_mode=None)
    store.command("info", short_help="Show what is in stores.")(info)
    store.command("backups", short_help="List sets that were replaced and are kept.")(backups)
    store.command("ls", short_help="List instances or samples.")(ls)
    store.command("show", short_help="Show samples: metadata, fields, bytes.")(show)
    store.command("verify", short_help="Check that stores are sound.")(verify)
    store.command("export", short_help="Write a snapshot (Parquet) or JSON lines.")(export)
    store.command("import", short_help="Make a store of ospltool from one of OpenSplice.")(import_)
    store.command("diff", short_help="Compare two or more stores.")(diff)
    store.command("watch", short_help="Show what changes in a store.")(watch)
    store.command("replace", short_help="Put another set in place on a node that is down.")(replace)
    store.command("restore", short_help="Take back a set that was replaced.")(restore)
    app.add_typer(store, name="store", short_help="Open, verify and compare durability stores.")
