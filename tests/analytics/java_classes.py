"""An archive of the classes that Spark loads: each of its Java processes starts with half the processor time.

It is made once for a virtual environment, by a session that loads a case and queries it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pyspark
import pytest

from ospltool.analytics.spark import java_home

ROOT = pathlib.Path(__file__).parents[2]
SHORT_START = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
JAVA_VARIABLE = "JDK_JAVA_OPTIONS"  # for each Java process of this environment, also those that others start
_TRAIN = f"""
import contextlib, pathlib, tempfile
from ospltool.analytics.case import open_case
from ospltool.analytics.contract import Detail
from ospltool.analytics.show import named_queries
from ospltool.analytics.spark import SparkEngine, session
from ospltool.trace.case.spark_load import load_with_spark
from ospltool.trace.reading.sources import find_sources

opened = session("local[1]")
with tempfile.TemporaryDirectory() as name, contextlib.closing(opened.sparkContext._gateway):
    case = pathlib.Path(name, "case")
    sources = find_sources([{str(ROOT / "samples" / "traces" / "master-livelock")!r}]).sources
    load_with_spark(sources, case, Detail.FULL, "local[1]", opened=opened)
    list(SparkEngine(open_case(case), "local[1]", opened=opened).query(named_queries()["levels"].sql).rows)
    opened.stop()
"""


def _java() -> str:
    home = java_home(os.environ)
    return "java" if home is None else str(pathlib.Path(home, "bin", "java"))


def _archive(java: str) -> pathlib.Path:
    """The place of the archive for this Java and this Spark as they are installed."""
    version = subprocess.run([java, "-version"], capture_output=True, check=True).stderr
    jars = pathlib.Path(pyspark.__path__[0], "jars")
    installed = f"{jars} {jars.stat().st_mtime_ns}".encode()
    return pathlib.Path(sys.prefix, f"spark-{hashlib.sha256(version + installed).hexdigest()[:16]}.jsa")


def _make(archive: pathlib.Path) -> None:
    """Make the archive; it is empty where this Java cannot make one, as a runtime without an own archive."""
    for old in archive.parent.glob("spark-*.jsa"):
        old.unlink()
    made = archive.with_suffix(".new")
    made.unlink(missing_ok=True)
    options = f"{SHORT_START} -XX:ArchiveClassesAtExit={made} -Xlog:disable"
    # The output is at its end when Java has ended, which is after its Python.
    subprocess.run(
        [sys.executable, "-c", _TRAIN],
        env={**os.environ, "PYTHONPATH": str(ROOT), JAVA_VARIABLE: options},
        capture_output=True,
        check=False,
    )
    made.touch()
    made.replace(archive)


def java_options() -> str:
    """Options with which Java starts soon: that of the archive, which is made if there is none."""
    archive = _archive(_java())
    with pathlib.Path(sys.prefix, "spark-classes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one of several workers makes it
        if not archive.exists():
            _make(archive)
    return f"-XX:SharedArchiveFile={archive} -Xlog:disable" if archive.stat().st_size else ""


@pytest.fixture(scope="module")
def java_classes() -> Iterator[str]:
    """All Java processes of the tests of a module start with the archive; also the options for that."""
    options = java_options()
    with pytest.MonkeyPatch.context() as patch:
        if options:
            patch.setenv(JAVA_VARIABLE, options)
        yield options
