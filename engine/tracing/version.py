"""The version of the product, for reports, snapshots and `ospltool info`."""

from __future__ import annotations

import functools
import importlib.metadata


@functools.cache
def product_version() -> str:
    """The installed version; `0+source` when the packages are imported without being installed."""
    try:
        return importlib.metadata.version("ospltool")
    except importlib.metadata.PackageNotFoundError:
        return "0+source"
