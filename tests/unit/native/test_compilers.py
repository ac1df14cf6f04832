"""What `make compilers` runs: the project built without a C compiler, and the C files on other processors."""

from __future__ import annotations

import array
import os
import random
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import native
from engine.dataset import rateless
from engine.dataset.blocks import PLACE_BITS, pack_samples
from engine.dataset.rateless import finished
from engine.dataset.sample import DATA, make_sample
from engine.dataset.sample_rows import BlockSources, times_of
from engine.native import load
from tests.unit.native.building import BUILD_S, ROOT, library_of, pip_wheel

hatch_build: Any = pytest.importorskip("hatch_build", reason="hatchling, which compiles, is not installed")

RECORDS = "20000"
DRIVER = Path(__file__).with_name("driver.c")
SYMBOLS = Path(__file__).with_name("symbols.c")
BLOCKS = Path(__file__).with_name("blocks.c")
IDENTITIES, LENGTH = 2_000, 3_500
DRIVER_FLAGS = (
    *("-O2", "-std=c11", "-Wall", "-Wextra", "-Werror", "-pthread", *hatch_build.EXACT),
    *('-DNATIVE_SOURCE="driver"', "-I", str(native.LIBRARY.parent)),
)
TARGETS = {"aarch64": "aarch64-linux-musl", "x86_64": "x86_64-linux-musl"}

long_way = pytest.mark.skipif("OSPLTOOL_COMPILERS" not in os.environ, reason="`make compilers` runs it")


def run(*command: str, **environ: str) -> str:
    return run_for_bytes(*command, **environ).decode()


def run_for_bytes(*command: str, **environ: str) -> bytes:
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        timeout=BUILD_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[:1000] + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with hatchling and what it needs: an index that has no compiler."""
    directory = tmp_path_factory.mktemp("packages")
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check")
    command = [*pip, "--dest", str(directory), "hatchling>=1.27,<2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S, check=False)
    if done.returncode:
        pytest.skip(f"the package index cannot be reached: {done.stderr.strip()[-200:]}")
    return directory


@pytest.fixture(scope="module")
def zig(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the package ziglang; `packages` shows that the index is there."""
    directory = tmp_path_factory.mktemp("zig")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*pip, "--target", str(directory), hatch_build.ZIGLANG)
    return directory


@long_way
@pytest.mark.timeout(BUILD_S)
def test_without_a_compiler_the_index_brings_one(packages: Path, tmp_path: Path) -> None:
    wheel, said = pip_wheel(tmp_path / "out", PATH="/nowhere")
    assert "-m ziglang cc" in said, said
    assert not wheel.stem.endswith("-any")
    library = library_of(wheel, tmp_path)
    assert library is not None
    assert load(library, native.SOURCES).ring_bytes() > 0


@long_way
@pytest.mark.timeout(BUILD_S)
@pytest.mark.parametrize(("machine", "number"), [("x86_64", 62), ("aarch64", 183)])
def test_a_wheel_is_built_for_each_processor(machine: str, number: int, tmp_path: Path) -> None:
    """The number is that of the processor in the head of an ELF file."""
    wheel, _ = pip_wheel(tmp_path / "out", OSPLTOOL_WHEEL=machine)
    assert wheel.stem.endswith(f"-py3-none-manylinux_2_17_{machine}")
    library = library_of(wheel, tmp_path)
    assert library is not None
    assert struct.unpack_from("<H", library.read_bytes(), 18) == (number,)


def mix(words: rateless.Words) -> rateless.Words:
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def symbols_here() -> str:
    """The digest that symbols.c prints, computed by the library of this machine."""
    numbers = np.arange(IDENTITIES, dtype=np.uint64)
    halves = np.stack((numbers, np.uint64(IDENTITIES) - numbers), axis=1)
    identities = mix(mix(halves[:, 0] ^ np.uint64(1)) + mix(halves[:, 1] ^ np.uint64(2)) * np.uint64(3))
    made = finished(rateless.Encoder(identities).until(LENGTH))
    digest = np.zeros(1, dtype=np.uint64)
    for count, total, check in zip(made.counts.astype(np.uint64), made.sums, made.checks, strict=True):
        digest = mix(digest ^ count) + mix(np.array([total])) + check
    return f"{int(digest[0]):016x}"


def blocks_of_file(path: Path) -> bytes:
    """Write blocks and rows for blocks.c; return what it must write, computed without C."""
    chance = random.Random(1)
    writers = [bytes([number]) * 16 for number in range(5)]
    lengths = [*range(80, 90), 200, 250, 5000]
    blocks = {
        number: pack_samples(
            [
                make_sample(
                    chance.randint(-(1 << 62), 1 << 62),
                    chance.choice(writers[: 1 + number]),
                    DATA,
                    chance.randbytes(chance.choice((0, 4, 100)) if number % 2 else 4),
                    chance.randbytes(chance.choice(lengths) if number < 3 else 3000),
                    number // 2 and chance.randint(0, (1 << 64) - 1),
                )
                for _ in range(20 + number)
            ]
        )
        for number in range(5)
    }
    rows = array.array(
        "i", [(n << PLACE_BITS) + at for n, block in blocks.items() for at in range(block.count)]
    )
    chance.shuffle(rows)
    known = list(dict.fromkeys(writer for block in blocks.values() for writer in block.writers))
    limit = 1 << 24
    parts = [struct.pack("=4Q", len(blocks), len(rows), len(known), limit)]
    for block in blocks.values():
        numbers = [known.index(writer) for writer in block.writers]
        ends = [
            struct.pack(f"={len(t.ends)}Q", *t.ends)
            for t in (block.key_texts, block.payload_texts)
            if t.size < 0
        ]
        parts += [struct.pack("=2Q", len(block.data), len(numbers)), bytes(block.layout()), block.data]
        parts += [block.digests, struct.pack(f"={len(numbers)}i", *numbers), *ends]
    path.write_bytes(b"".join([*parts, rows.tobytes(), *known]))
    sources = BlockSources(blocks)
    samples = [sources.sample(row) for row in rows]
    woven = pack_samples(samples)
    digests = b"".join(sample.digest for sample in samples)
    return b"".join((woven.data, digests, times_of(samples).tobytes(), digests))


def check_drivers(
    compiler: tuple[str, ...], emulator: tuple[str, ...], directory: Path, **environ: str
) -> None:
    """The ring gives every record once and in order; symbols, digests and blocks are those of here."""
    for source, arguments, wanted in (
        (DRIVER, [RECORDS], " taken, "),
        (SYMBOLS, [str(IDENTITIES), str(LENGTH)], symbols_here()),
    ):
        program = str(directory / source.stem)
        run(*compiler, *DRIVER_FLAGS, "-o", program, str(source), "-lm", **environ)
        assert wanted in run(*emulator, program, *arguments)
    program, file = str(directory / BLOCKS.stem), directory / "blocks.bin"
    sources = str(BLOCKS), str(native.LIBRARY.with_name("digests.c"))
    run(*compiler, *DRIVER_FLAGS, "-o", program, *sources, **environ)
    wanted_bytes = blocks_of_file(file)
    assert run_for_bytes(*emulator, program, str(file)) == wanted_bytes


def test_the_c_files_do_their_work_on_this_processor(tmp_path: Path) -> None:
    if not hatch_build.system_works(ROOT):
        pytest.skip("there is no C compiler")
    (compiler, *_) = hatch_build.system_compilers()
    check_drivers(compiler, (), tmp_path)


@long_way
@pytest.mark.timeout(BUILD_S)
@pytest.mark.parametrize("machine", TARGETS)
def test_the_c_files_do_so_on_an_emulated_processor(machine: str, zig: Path, tmp_path: Path) -> None:
    emulators = [shutil.which(f"qemu-{machine}{suffix}") for suffix in ("-static", "")]
    emulator = next((found for found in emulators if found), None)
    if emulator is None:
        pytest.skip(f"there is no qemu-{machine}: install qemu-user-static")
    compiler = (sys.executable, "-m", "ziglang", "cc", "-target", TARGETS[machine], "-static")
    caches = {name: str(zig / "cache") for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")}
    check_drivers(compiler, (emulator,), tmp_path, PYTHONPATH=str(zig), **caches)
