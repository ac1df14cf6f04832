"""Writes the system as JSON or CSV, or the screen as SVG, to a file."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Final

from ospltool.health import export as health
from ospltool.live import export
from tui.console import CommandFault, Console

FORMATS: Final = ("json", "csv", "svg")


def run(app: Console, words: list[str]) -> None:
    """Carry out `export FORMAT [FILE]`. An existing file is never overwritten.

    Raises:
        CommandFault: the format is unknown, or the file cannot be written.
    """
    if not words or words[0] not in FORMATS:
        raise CommandFault(f"export what? {', '.join(FORMATS)}")
    path = Path(" ".join(words[1:])).expanduser() if words[1:] else Path(default_name(app, words[0]))
    try:
        with path.open("x", encoding="utf-8", newline="") as file:
            file.write(content(app, words[0]))
    except FileExistsError:
        raise CommandFault(f"{path} exists already") from None
    except OSError as error:
        raise CommandFault(f"{path}: {error.strerror or error}") from error
    app.say(f"written to {path}")


def content(app: Console, wanted: str) -> str:
    """Return the content of the file."""
    now_ns = app.view().now_ns
    if wanted == "json":
        return health.as_json(app.health, now_ns)
    if wanted == "csv":
        return export.as_csv(app.model, now_ns)
    return app.export_screenshot(title=app.title, simplify=True)


def default_name(app: Console, wanted: str) -> str:
    """Return a file name with the moment of the picture."""
    seconds = app.view().now_ns // 1_000_000_000
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return f"ospltool-{moment:%Y%m%d-%H%M%S}.{wanted}"
