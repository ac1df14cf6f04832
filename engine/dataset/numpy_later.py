"""numpy, loaded when it is first used: a node of small sets never needs it, and it costs 0.1 s and 14 MB."""

from __future__ import annotations


class _NumpyLater:
    """Stands for numpy; each name is looked up there once."""

    def __getattr__(self, name: str) -> object:
        import numpy

        value = getattr(numpy, name)
        setattr(self, name, value)
        return value


np = _NumpyLater()
