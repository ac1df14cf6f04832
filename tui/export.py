"""Writing what is shown to a file: the system as JSON or CSV, the screen as SVG."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ospltool.health import export as health
from ospltool.live import export
from tui.commands import CommandFault

if TYPE_CHECKING:
    from tui.app import ConsoleApp

FORMATS: Final = ("json", "csv", "svg")


def run(app: ConsoleApp, words: list[str]) -> None:
    """`export FORMAT [FILE]`. A file that is there already is never overwritten.

    Raises:
        CommandFault: another format, or the file cannot be written.
    """
    if not words or words[0] not in FORMATS:
        raise CommandFault(f"export what? {', '.join(FORMATS)}")
    path = Path(" ".join(words[1:])).expanduser() if words[1:] else Path(default_name(app, words[0]))
    try:
        with path.open("x", encoding="utf-8", newline="") as file:
            file.write(content(app, words[0]))
    except FileExistsError:
        raise CommandFault(f"{path} is there already") from None
    except OSError as error:
        raise CommandFault(f"{path}: {error.strerror or error}") from error
    app.say(f"written to {path}")


def content(app: ConsoleApp, wanted: str) -> str:
    """What goes into the file."""
    now_ns = app.view().now_ns
    if wanted == "json":
        return health.as_json(app.health, now_ns)
    if wanted == "csv":
        return export.as_csv(app.model, now_ns)
    return app.export_screenshot(title=app.title, simplify=True)


def default_name(app: ConsoleApp, wanted: str) -> str:
    """A name that says when the picture or the figures are from."""
    seconds = app.view().now_ns // 1_000_000_000
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return f"ospltool-{moment:%Y%m%d-%H%M%S}.{wanted}"
