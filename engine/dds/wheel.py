"""The installed package cyclonedds: its version, and the parts that a service uses."""

from __future__ import annotations

import importlib
import importlib.machinery
import pathlib
import sys
import types


def installed_version() -> str | None:
    """Return the version of the installed package, by the name of its directory; None if there is none."""
    for folder in sys.path:
        for found in pathlib.Path(folder or ".").glob("cyclonedds-*.dist-info"):
            return found.stem.removeprefix("cyclonedds-")
    return None


def import_used_parts_only() -> None:
    """Let `import cyclonedds` load nothing; its modules are loaded when they are used.

    The package imports all of its modules, of which a service uses a third. The rest, with asyncio, costs a
    node 5 MB and 60 ms at each start. Call it before cyclonedds is imported, in a process of our own.
    """
    spec = importlib.machinery.PathFinder.find_spec("cyclonedds")
    if "cyclonedds" in sys.modules or spec is None or spec.submodule_search_locations is None:
        return
    package = _Package("cyclonedds")
    package.__spec__ = spec
    package.__file__ = spec.origin
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules["cyclonedds"] = package


class _Package(types.ModuleType):
    """The package, which imports a module when it is asked for it."""

    def __getattr__(self, name: str) -> types.ModuleType:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return importlib.import_module(f"{self.__name__}.{name}")
        except ModuleNotFoundError as error:
            raise AttributeError(f"module {self.__name__} has no attribute {name}") from error
