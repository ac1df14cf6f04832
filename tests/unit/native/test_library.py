"""The compiled library: how it is compiled, and what is said of one that does not fit."""

from __future__ import annotations

import _ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine import native
from engine.native import NoLibrary, load
from tests.unit.native.building import ROOT, hatchling

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
    with pytest.raises(NoLibrary, match="is not there; install ospltool again, with a C compiler or"):
        load(tmp_path / "libnative.so", native.SOURCES)


@pytest.mark.parametrize(
    "program",
    [
        "from engine.__main__ import main; sys.exit(main([sys.argv[1]]))",
        "from ospltool.cli.app import main; sys.exit(main(['simulate', '--minutes', '0.1']))",
        "from ospltool.cli.app import main; sys.exit(main(['trace', 'load', *sys.argv[2:]]))",
    ],
    ids=["a node", "a simulated one", "a trace"],
)
def test_without_the_library_a_program_ends_with_one_sentence_that_says_how_to_build_it(
    program: str, tmp_path: Path
) -> None:
    hide = "import pathlib, sys; from engine import native; native.LIBRARY = pathlib.Path('/nowhere/x.so'); "
    samples = ROOT / "samples"
    arguments = [str(samples / "three-nodes" / "n1.xml"), str(samples / "traces" / "own-engine")]
    arguments += ["-o", str(tmp_path / "case")]
    ended = subprocess.run(
        [sys.executable, "-c", hide + program, *arguments],
        cwd=ROOT,
        env={**os.environ, "OSPL_LOGPATH": str(tmp_path), "OSPLTOOL_RUNDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith(
        "ospltool: the compiled library /nowhere/x.so is not there; install ospltool again"
    )


@needs_compiler
def test_the_next_compiler_is_taken_where_one_fails(tmp_path: Path) -> None:
    broken, foreign = ("false", "-x"), (sys.executable, "-c", NO_COMPILER)
    made = hatch_build.compile_library(ROOT, tmp_path / "libnative.so", [broken, foreign, COMPILERS[0]])
    assert made.compiler == COMPILERS[0]
    first, second = made.reasons
    assert first == "false -x: exit code 1: no message"
    assert "too short" in second, "what the second wrote is no library"


def test_a_build_without_any_compiler_fails_and_says_what_to_install(tmp_path: Path) -> None:
    if hatch_build.packaged_compiler():
        pytest.skip("the package ziglang is installed here")
    with pytest.raises(AssertionError, match="there is no C compiler; install a C compiler, such as gcc"):
        hatchling("wheel", tmp_path / "out", PATH="/nowhere")


def test_the_version_is_that_of_the_tag(tmp_path: Path) -> None:
    def git(*command: str) -> None:
        author = ("-c", "user.name=t", "-c", "user.email=t@localhost")
        subprocess.run(("git", "-C", str(tmp_path), *author, *command), check=True, capture_output=True)

    def commit() -> str:
        git("commit", "--allow-empty", "-m", "more")
        return str(hatch_build.version(tmp_path))

    assert hatch_build.version(tmp_path) == hatch_build.UNRELEASED
    git("init")
    assert commit() == hatch_build.UNRELEASED
    git("tag", "other")
    git("tag", "v0.2.9")
    assert hatch_build.version(tmp_path) == "0.2.9"
    assert (commit(), commit()) == ("0.2.10.dev1", "0.2.10.dev2")
    (tmp_path / "PKG-INFO").write_text("Name: ospltool\nVersion: 7.1\n")
    assert hatch_build.version(tmp_path) == "7.1"


def test_a_wheel_for_another_processor_needs_the_packaged_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = hatch_build.NativeHook(str(ROOT), {}, None, None, str(tmp_path), "wheel")
    monkeypatch.setattr(hatch_build, "packaged_compiler", list)
    monkeypatch.setattr(hatch_build, "system_works", lambda _: True)
    monkeypatch.setenv("OSPLTOOL_WHEEL", "aarch64")
    assert hook.dependencies() == [hatch_build.ZIGLANG]
    monkeypatch.setenv("OSPLTOOL_WHEEL", "sparc")
    with pytest.raises(RuntimeError, match="OSPLTOOL_WHEEL is 'sparc', none of x86_64, aarch64"):
        hook.dependencies()


def test_a_compiler_is_asked_for_only_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = hatch_build.NativeHook(str(ROOT), {}, None, None, str(tmp_path), "wheel")
    monkeypatch.setattr(hatch_build, "packaged_compiler", list)
    monkeypatch.setattr(hatch_build, "system_works", lambda _: True)
    assert hook.dependencies() == []
    monkeypatch.setattr(hatch_build, "system_works", lambda _: False)
    assert hook.dependencies() == [hatch_build.ZIGLANG]
