"""How this copy of ospltool was installed, and the command that adds to it."""

from __future__ import annotations

import json
import pathlib
import shlex
import sys
import urllib.parse
from typing import Final

_NAME: Final = "ospltool"


def extra_command(extra: str) -> str:
    """Return the command that adds an extra to this installation.

    Args:
        extra: its name, or several with commas between.
    """
    place, is_editable = _origin()
    wanted = f"{place or _NAME}[{extra}]"
    prefix = pathlib.Path(sys.prefix)
    if (prefix / "uv-receipt.toml").exists():
        return shlex.join(("uv", "tool", "install", "--force", wanted))
    if (prefix / "pipx_metadata.json").exists():
        return shlex.join(("pipx", "install", "--force", wanted))
    if "uv" in prefix.parts[-3:-1] or any(part.startswith("archive-v") for part in prefix.parts):
        return f"{shlex.join(('uvx', '--from', wanted, _NAME))} ..."  # the environment is thrown away
    by_uv = "\nuv = " in _text(prefix / "pyvenv.cfg")  # such an environment has no pip
    installer = ("uv", "pip", "install", "--python") if by_uv else ()
    command = (*installer, sys.executable) if by_uv else (sys.executable, "-m", "pip", "install")
    return shlex.join((*command, *(("--editable",) if is_editable else ()), wanted))


def _origin() -> tuple[str, bool]:
    """Return the directory or file that this is installed from, empty for an index, and if it is editable."""
    import importlib.metadata  # takes 10 ms, and nearly no command needs it

    try:
        text = importlib.metadata.distribution(_NAME).read_text("direct_url.json") or "{}"
        known = json.loads(text)
        parts = urllib.parse.urlsplit(known.get("url", ""))
        path = urllib.parse.unquote(parts.path) if parts.scheme == "file" else ""
        return path, bool(known.get("dir_info", {}).get("editable"))
    except (importlib.metadata.PackageNotFoundError, ValueError, AttributeError):
        return "", False


def _text(path: pathlib.Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, ValueError):
        return ""
