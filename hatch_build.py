"""Compile the C files of `engine/native` when the project is installed or built: the hook of hatchling.

The first C compiler that works is taken: $CC, cc, gcc, clang. Where the system has none, `ziglang` from the
package index brings one. Without the library the project cannot be installed.

With OSPLTOOL_NATIVE=strict warnings of the compiler are errors. With OSPLTOOL_WHEEL=x86_64 or aarch64,
`ziglang` compiles for any Linux on such a processor, with glibc 2.17 or newer: `make wheels` builds both.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import pathlib
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from typing import Any, Final, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES: Final = "engine/native"
LIBRARY: Final = "engine/native/libnative.so"
CHOICE: Final = "OSPLTOOL_NATIVE"
WHEEL: Final = "OSPLTOOL_WHEEL"
PROCESSORS: Final = ("x86_64", "aarch64")
GLIBC: Final = (2, 17)
"""The oldest that the packages of Cyclone DDS run on, too."""
UNRELEASED: Final = "0.2.0.dev0"
"""The version where no tag of Git says another one."""
ZIGLANG: Final = "ziglang>=0.13,<0.18"
"""Compilers as Python packages. The newest tested is the limit: minor releases change the command line."""

EXACT: Final = ("-ffp-contract=off", "-fno-math-errno")
"""Nodes on different processors must compute the same symbols of a set."""
_FLAGS: Final = ("-O2", "-Wall", "-Wextra", "-std=c11", "-fPIC", "-shared", "-pthread", *EXACT)
_COMPILE_S: Final = 300.0


class Compiled(NamedTuple):
    """The library, or why there is none.

    Attributes:
        path: the library, None without one.
        compiler: the command that made it.
        reasons: one sentence for each compiler that was tried in vain.
    """

    path: pathlib.Path | None
    compiler: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()


def system_compilers() -> list[tuple[str, ...]]:
    """The C compilers of this system, best first, as commands."""
    named = shlex.split(os.environ.get("CC", ""))
    return [
        tuple(command)
        for command in (named, ["cc"], ["gcc"], ["clang"])
        if command and shutil.which(command[0]) is not None
    ]


def packaged_compiler() -> list[tuple[str, ...]]:
    """The C compiler of the package ziglang, if it is installed for this interpreter."""
    if importlib.util.find_spec("ziglang") is None:
        return []
    # Without this it compiles for the processor of the machine that builds the wheel.
    return [(sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline")]


def wanted_processor() -> str:
    """The processor that a wheel is wanted for; empty for this machine.

    Raises:
        RuntimeError: it is none of PROCESSORS.
    """
    wanted = os.environ.get(WHEEL, "")
    if wanted and wanted not in PROCESSORS:
        raise RuntimeError(f"{WHEEL} is {wanted!r}, none of {', '.join(PROCESSORS)}")
    return wanted


def version(root: pathlib.Path = pathlib.Path(__file__).parent) -> str:
    """The version: of the tag, of the source distribution, or UNRELEASED.

    After a tag `v0.2.0`, the third commit has 0.2.1.dev3.
    """
    if (root / "PKG-INFO").exists():
        found = re.search(r"^Version: (.+)$", (root / "PKG-INFO").read_text("utf-8"), re.MULTILINE)
        return found[1] if found else UNRELEASED
    if not (root / ".git").exists() or shutil.which("git") is None:
        return UNRELEASED
    command = ("git", "-C", str(root), "describe", "--tags", "--long", "--match", "v[0-9]*.[0-9]*.[0-9]*")
    told = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = re.fullmatch(r"v(\d+\.\d+\.)(\d+)-(\d+)-g[0-9a-f]+\n", told)
    if found is None:
        return UNRELEASED
    series, patch, commits = found[1], int(found[2]), int(found[3])
    return f"{series}{patch + 1}.dev{commits}" if commits else f"{series}{patch}"


def compile_library(
    root: pathlib.Path,
    target: pathlib.Path,
    compilers: list[tuple[str, ...]],
    *,
    strict: bool = False,
    is_foreign: bool = False,
) -> Compiled:
    """Compile the library with the first compiler whose result can be loaded here.

    Args:
        root: the top of the source tree.
        target: the library to write; it is replaced in one step, so processes that use it are not disturbed.
        compilers: commands, best first.
        strict: warnings are errors.
        is_foreign: it is for another processor, so that it cannot be loaded here.
    """
    reasons: list[str] = []
    for compiler in compilers:
        with tempfile.TemporaryDirectory(prefix="ospltool-") as folder:
            made = pathlib.Path(folder, target.name)
            command = [*compiler, *(["-Werror"] if strict else [])]
            fault = _compile(root / SOURCES, made, command, is_foreign=is_foreign)
            if not fault:
                beside = target.with_name(f"{target.name}.{os.getpid()}")
                shutil.copyfile(made, beside)
                beside.replace(target)
                return Compiled(target, compiler, tuple(reasons))
        reasons.append(f"{shlex.join(compiler)}: {fault}")
    return Compiled(None, (), tuple(reasons))


def _compile(folder: pathlib.Path, made: pathlib.Path, compiler: list[str], *, is_foreign: bool) -> str:
    """Why there is no library that can be loaded; empty when there is."""
    sources = sorted(folder.glob("*.[ch]"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    files = [str(source) for source in sources if source.suffix == ".c"]
    cache = str(made.parent / "cache")
    try:
        subprocess.run(
            [*compiler, *_FLAGS, f'-DNATIVE_SOURCE="{digest}"', "-o", str(made), *files, "-lm"],
            env={"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache, **os.environ},
            check=True,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_COMPILE_S,
        )
        if is_foreign:
            return "" if digest.encode() in made.read_bytes() else "its library is of other sources"
        library = ctypes.CDLL(str(made))
        library.native_source.restype = ctypes.c_char_p
        return "" if library.native_source() == digest.encode() else "its library is of other sources"
    except subprocess.CalledProcessError as error:
        said = (error.stderr or error.stdout).strip().splitlines()
        return f"exit code {error.returncode}: {said[0] if said else 'no message'}"
    except (OSError, subprocess.TimeoutExpired, AttributeError) as error:
        return str(error)


def system_works(root: pathlib.Path) -> bool:
    """Whether a C compiler of this system compiles the library; a compiler may lack the headers of C."""
    with tempfile.TemporaryDirectory(prefix="ospltool-") as folder:
        made = compile_library(root, pathlib.Path(folder, "libnative.so"), system_compilers())
        return made.path is not None


class NativeHook(BuildHookInterface):  # type: ignore[type-arg]  # hatchling's argument is its builder's, unused
    """Puts the library into the wheel, or beside its module in an editable installation."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """What has to be installed to compile: nothing where the system has a compiler."""
        if packaged_compiler() or (not wanted_processor() and system_works(pathlib.Path(self.root))):
            return []
        return [ZIGLANG]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and tell hatchling what to pack.

        Raises:
            RuntimeError: the library cannot be compiled.
        """
        root = pathlib.Path(self.root)
        library = root / LIBRARY
        if version != "editable":
            self._folder = tempfile.TemporaryDirectory(prefix="ospltool-")
            library = pathlib.Path(self._folder.name, library.name)
        processor = wanted_processor()
        compilers = [*system_compilers(), *packaged_compiler()]
        if processor:
            target = f"{processor}-linux-gnu.{'.'.join(map(str, GLIBC))}"
            compilers = [(*each, "-target", target) for each in packaged_compiler()]
        made = compile_library(
            root,
            library,
            compilers,
            strict=os.environ.get(CHOICE) == "strict",
            is_foreign=processor not in ("", platform.machine()),
        )
        if made.path is None:
            why = "; ".join(made.reasons) or "there is no C compiler"
            raise RuntimeError(f"{SOURCES} cannot be compiled: {why}; install a C compiler, such as gcc")
        self.app.display_info(f"{LIBRARY} was compiled with {shlex.join(made.compiler)}")
        if version != "editable":
            build_data["force_include"][str(made.path)] = LIBRARY
            build_data["pure_python"] = False
            here = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            everywhere = f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{processor}"
            build_data["tag"] = f"py3-none-{everywhere if processor else here}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what only the build needed."""
        if version != "editable":
            self._folder.cleanup()
