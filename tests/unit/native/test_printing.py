"""What Cyclone DDS prints is bounded: each kind of line once, the others counted, nothing else touched."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from engine import native

PROGRAM = """
import ctypes, sys
from engine.dds import abi, printing
assert printing.bound() is printing.bound() is (sys.argv[1] == "bounded")
log = abi._library.dds_log
for index in range(1000):
    text = b"write to udp/10.0.0.%d:%d failed with retcode -3\\n"
    log(ctypes.c_uint32(4), b"file", ctypes.c_uint32(1), b"function", text, index % 7, index)
log(ctypes.c_uint32(4), b"file", ctypes.c_uint32(1), b"function", b"something else\\n")
sys.stderr.write("a line of Python\\n" * 2)
"""


def printed(kind: str, **environ: str) -> list[str]:
    program = [sys.executable, "-c", PROGRAM, kind]
    done = subprocess.run(program, env={**os.environ, **environ}, capture_output=True, text=True, check=True)
    return done.stderr.splitlines()


@pytest.mark.skipif(bool(native.absence()), reason="the compiled library is not here")
def test_lines_that_differ_in_digits_only_are_printed_once_and_counted() -> None:
    first, other, *rest = printed("bounded")
    assert first.endswith("write to udp/10.0.0.0:0 failed with retcode -3")
    assert other.endswith("something else")
    *python, counted = rest
    assert python == ["a line of Python"] * 2
    assert re.match(r"999 more lines like this in \d+ s, the last: .* udp/10\.0\.0\.5:999 failed", counted)


def test_everything_is_printed_without_the_compiled_library() -> None:
    assert len(printed("whole", **{native.CHOICE: "no"})) == 1003
