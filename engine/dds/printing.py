"""Bounds what Cyclone DDS prints on standard error: the first line of a kind, then a count once a minute."""

from __future__ import annotations

import atexit
import contextlib
import ctypes

from engine import native
from engine.dds import abi


def bound() -> bool:
    """Bound it from now on; return whether that is possible. Idempotent.

    Lines are of one kind if they differ only in digits. Without the compiled library, everything is printed.
    """
    with contextlib.suppress(native.NoLibrary, AttributeError):
        library = native.unlocked()
        function = library.bound_printing
        function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_int
        if function(abi.address_of(abi.create_domain)):
            library.tell_bounded.restype = None
            atexit.unregister(_tell)
            atexit.register(_tell)
            return True
    return False


def _tell() -> None:
    """Print the counts that were not printed yet."""
    native.unlocked().tell_bounded()
