"""Where files and cases lie: paths of this machine, URIs, and the directory of a user's state."""

from __future__ import annotations

import pathlib
import re
import urllib.parse
from collections.abc import Mapping
from typing import Final

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/{1,2}")
"""The beginning of a URI. `pathlib` makes one slash of two. No drive has a name of two letters."""


class LocationFault(ValueError):
    """A location that nothing can open; the message names it and says why."""


def scheme_of(name: str) -> str:
    """Return the scheme of a URI in lower case; empty for a path."""
    found = _SCHEME.match(name)
    return found[1].lower() if found else ""


def located(name: str) -> pathlib.Path:
    """Return where a path or URI leads.

    Raises:
        LocationFault: nothing can open the URI.
    """
    scheme = scheme_of(name)
    if not scheme or pathlib.Path(name).exists():
        return pathlib.Path(name)
    if scheme != "file":
        raise LocationFault(f"{name}: nothing here can open {scheme}://; name a path or file://")
    parts = urllib.parse.urlsplit(name)
    if parts.netloc not in {"", "localhost"}:
        raise LocationFault(f"{name}: file:// names a file of this machine, so three slashes follow it")
    return pathlib.Path(urllib.parse.unquote(parts.path))


def state_directory(environ: Mapping[str, str]) -> pathlib.Path:
    """Return the directory of this user's state, below $XDG_STATE_HOME or ~/.local/state."""
    state = environ.get("XDG_STATE_HOME")
    return (pathlib.Path(state) if state else pathlib.Path.home() / ".local" / "state") / "ospltool"
