"""What Cyclone DDS says of settings and QoS profiles: a process that answers questions in JSON."""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence

MARK = "Zzqq"
"""An element that Cyclone DDS does not know: a file with it is read and complained of, but nothing starts."""


def refusals(kind: str, texts: Sequence[str]) -> list[list[str]]:
    """Ask Cyclone DDS about files; return its reasons to refuse each of them.

    `settings` are only read, and have MARK in them; with `domains` a domain is made in a process of its own,
    and with `files` so that the settings stand in a file; `profiles` are QoS profiles.
    """
    done = subprocess.run(
        [sys.executable, __file__, kind],
        input=json.dumps(list(texts)),
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    answers: list[list[str]] = json.loads(done.stdout)
    return answers


def _answers(kind: str, texts: Sequence[str]) -> list[list[str]]:
    import cyclonedds  # loads the library

    places = pathlib.Path(cyclonedds.__file__).parent.with_name("cyclonedds.libs")
    library = ctypes.CDLL(str(next(places.glob("libddsc-*"))))
    library.dds_create_domain.argtypes = [ctypes.c_uint32, ctypes.c_char_p]
    library.dds_create_qos_provider.argtypes = [ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p)]
    asks = _end if kind in ("domains", "files") else _answer
    return [asks(library, kind, text) for text in texts]


def _end(library: ctypes.CDLL, kind: str, text: str) -> list[str]:
    """How a process ends that makes a domain: with nothing, or with what it says."""
    with tempfile.TemporaryFile() as said, tempfile.NamedTemporaryFile(suffix=".xml") as file:
        if kind == "files":
            file.write(text.encode())
            file.flush()
            text = f"file://{file.name}"
        child = os.fork()
        if not child:
            os.dup2(said.fileno(), 2)
            os._exit(library.dds_create_domain(59, text.encode()) < 0)
        _, status = os.waitpid(child, 0)
        said.seek(0)
        return said.read().decode(errors="replace").splitlines() or ["refused"] if status else []


def _answer(library: ctypes.CDLL, kind: str, text: str) -> list[str]:
    with tempfile.TemporaryFile() as said, tempfile.NamedTemporaryFile(suffix=".xml") as file:
        file.write(text.encode())
        file.flush()
        before = os.dup(2)
        os.dup2(said.fileno(), 2)
        try:
            if kind == "settings":
                assert MARK in text
                code = library.dds_create_domain(1, text.encode())
            else:
                code = library.dds_create_qos_provider(file.name.encode(), ctypes.byref(ctypes.c_void_p()))
        finally:
            os.dup2(before, 2)
            os.close(before)
        said.seek(0)
        lines = said.read().decode(errors="replace").splitlines()
    if kind == "profiles":
        return [line for line in lines if "Error" in line] or ([f"code {code}"] if code < 0 else [])
    warnings = re.compile(rf"{MARK}|deprecated|moved to")
    return [line.partition(": config: ")[2] for line in lines if not warnings.search(line)]


if __name__ == "__main__":
    json.dump(_answers(sys.argv[1], json.load(sys.stdin)), sys.stdout)
