"""The compiled library: how it is compiled, and what is said of one that does not fit."""

from __future__ import annotations

import _ctypes
import contextlib
import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from engine import native
from engine.native import NoLibrary, load
from tests.unit.native.building import ROOT, hatchling, library_of

hatch_build = pytest.importorskip("hatch_build", reason="hatchling, which compiles, is not installed")
COMPILERS = [*hatch_build.system_compilers(), *hatch_build.packaged_compiler()]
NO_COMPILER = "import sys; open(sys.argv[sys.argv.index('-o') + 1], 'w').close()"
needs_compiler = pytest.mark.skipif(not COMPILERS, reason="there is no C compiler")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library, compiled with every warning an error."""
    target = tmp_path_factory.mktemp("library") / "libnative.so"
    made = hatch_build.compile_library(ROOT, target, COMPILERS, strict=True)
    assert made.path == target, made.reasons
    assert list(target.parent.iterdir()) == [target]
    return target


@needs_compiler
def test_the_source_compiles_without_a_warning_to_a_library_that_fits(library: Path) -> None:
    assert load(library, native.SOURCES).ring_bytes() > 0


@needs_compiler
def test_a_library_of_another_source_is_refused(library: Path, tmp_path: Path) -> None:
    source = tmp_path / "ring.c"
    source.write_bytes(native.SOURCES[0].read_bytes() + b"\n")
    with pytest.raises(NoLibrary, match=r"libnative.so was compiled from another version of ring.c; install"):
        load(library, [source])
    with pytest.raises(NoLibrary, match="nothing tells whether"):
        load(library, [tmp_path / "none.c"])


@pytest.mark.parametrize("content", [b"", b"no library", Path(_ctypes.__file__).read_bytes()])
def test_a_file_that_is_not_ours_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "libnative.so"
    path.write_bytes(content)
    with pytest.raises(NoLibrary, match=r"is not a library of ospltool for this machine \(.+\); install"):
        load(path, native.SOURCES)


def test_a_library_that_is_not_there_is_said_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(NoLibrary, match="is not there: ospltool was installed without a C compiler; install"):
        load(tmp_path / "libnative.so", native.SOURCES)


@pytest.mark.parametrize(
    ("choice", "is_there", "words"),
    [
        ("", False, ""),
        ("no", True, ""),
        ("required", True, ""),
        ("required", False, "OSPLTOOL_NATIVE=required: it is gone"),
        ("perhaps", True, "OSPLTOOL_NATIVE must be no, required or empty, not 'perhaps'"),
    ],
)
def test_a_process_runs_as_the_environment_demands(
    choice: str, is_there: bool, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(native.CHOICE, choice)
    monkeypatch.setattr(native, "absence", lambda: "" if is_there else "it is gone")
    with pytest.raises(NoLibrary, match=words) if words else contextlib.nullcontext():
        native.check()


@needs_compiler
def test_the_next_compiler_is_taken_where_one_fails(tmp_path: Path) -> None:
    broken, foreign = ("false", "-x"), (sys.executable, "-c", NO_COMPILER)
    made = hatch_build.compile_library(ROOT, tmp_path / "libnative.so", [broken, foreign, COMPILERS[0]])
    assert made.compiler == COMPILERS[0]
    first, second = made.reasons
    assert first == "false -x: exit code 1: no message"
    assert "too short" in second, "what the second wrote is no library"


def test_an_installation_without_any_compiler_succeeds_and_says_so(tmp_path: Path) -> None:
    if hatch_build.packaged_compiler():
        pytest.skip("the package ziglang is installed here")
    wheel, said = hatchling("wheel", tmp_path / "out", PATH="/nowhere")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert library_of(wheel, tmp_path) is None
    assert "engine/native is not compiled, nodes will work more slowly: there is no C compiler" in said


def test_a_compiler_is_asked_for_only_where_there_is_none_and_the_index_has_one(tmp_path: Path) -> None:
    code = f"""
import hatch_build, sys
hook = hatch_build.NativeHook({str(ROOT)!r}, {{}}, None, None, {str(tmp_path)!r}, "wheel")
hatch_build.packaged_compiler = list
print(hook.dependencies())
"""

    def asked(**environ: str) -> str:
        ended = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={"PATH": "/nowhere", "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null", **environ},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        return ended.stdout.strip() or ended.stderr.splitlines()[-1]

    asks = f"['{hatch_build.ZIGLANG}']"
    assert asked(OSPLTOOL_NATIVE="required") == asks
    assert asked() == "[]", "the index has none"
    assert asked(OSPLTOOL_NATIVE="no") == "[]"
    assert "OSPLTOOL_NATIVE must be no, required or empty, not 'off'" in asked(OSPLTOOL_NATIVE="off")
    (tmp_path / "ziglang-0.17.1-py3-none-any.whl").write_bytes(_empty_wheel())
    assert asked(PIP_FIND_LINKS=str(tmp_path)) == asks, "the index has one"
    if hatch_build.system_works(ROOT):
        assert asked(PATH=os.environ["PATH"], PIP_FIND_LINKS=str(tmp_path)) == "[]"


def _empty_wheel() -> bytes:
    """A package of that name that can be installed, and has nothing in it."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        info = "ziglang-0.17.1.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: ziglang\nVersion: 0.17.1\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return packed.getvalue()
