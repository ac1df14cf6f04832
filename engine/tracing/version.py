"""The version of the product, for reports, snapshots and `ospltool info`."""

from __future__ import annotations

import functools
import pathlib
import sys


@functools.cache
def product_version() -> str:
    """Return the installed version; `0+source` if the packages are not installed.

    The directory `ospltool-VERSION.dist-info` has it. `importlib.metadata` looks there, too, but reads the
    description of the package as a mail, which takes 10 ms at each start.
    """
    for folder in sys.path:
        for found in pathlib.Path(folder or ".").glob("ospltool-*.dist-info"):
            return found.stem.removeprefix("ospltool-")
    return "0+source"
