"""The version of the product, for reports, snapshots and `ospltool info`."""

from __future__ import annotations

import functools
import importlib.metadata


@functools.cache
def product_version() -> str:
    """Return the installed version; `0+source` if the packages are not installed."""
    try:
        return importlib.metadata.version("ospltool")
    except importlib.metadata.PackageNotFoundError:
        return "0+source"
