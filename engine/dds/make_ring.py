"""Compile `ring.c` into `ring_code.py`: `python -m engine.dds.make_ring`, with gcc for x86-64 at hand.

Developers run it after a change of `ring.c`; users never do. A test compares the digest of the source that
is recorded in the result with the source that is there.
"""

from __future__ import annotations

import hashlib
import pathlib
import subprocess
import tempfile
from typing import Final

SOURCE: Final = pathlib.Path(__file__).with_name("ring.c")
RESULT: Final = pathlib.Path(__file__).with_name("ring_code.py")

# No section but .text, no symbol from outside, no registers that a signal frame would not expect.
_FLAGS: Final = (
    "-O2",
    "-std=c11",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fPIC",
    "-ffreestanding",
    "-fno-builtin",
    "-fno-stack-protector",
    "-fcf-protection=none",
    "-fno-asynchronous-unwind-tables",
    "-mgeneral-regs-only",
    "-m64",
    "-march=x86-64",
)


def source_digest() -> str:
    """The digest of the source as it is now."""
    return hashlib.sha256(SOURCE.read_bytes()).hexdigest()


def compile_code() -> tuple[bytes, dict[str, int]]:
    """The machine code and where in it each function begins.

    Raises:
        RuntimeError: the compiler made something that depends on where it lies.
    """
    with tempfile.TemporaryDirectory() as folder:
        thing, binary = f"{folder}/ring.o", f"{folder}/ring.bin"
        _run("gcc", *_FLAGS, "-c", "-o", thing, str(SOURCE))
        if "R_X86_64" in _run("objdump", "-r", thing):
            raise RuntimeError("the code of ring.c refers to something outside")
        _run("objcopy", "-O", "binary", "--only-section=.text", thing, binary)
        names = (line.split() for line in _run("nm", thing).splitlines())
        offsets = {name: int(address, 16) for address, kind, name in names if kind == "T"}
        return pathlib.Path(binary).read_bytes(), offsets


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> None:
    """Write `ring_code.py`."""
    code, offsets = compile_code()
    text = code.hex()
    lines = "\n".join(f'    "{text[start : start + 96]}"' for start in range(0, len(text), 96))
    entries = "\n".join(f'    "{name}": {offset},' for name, offset in sorted(offsets.items()))
    RESULT.write_text(
        '"""Made by `python -m engine.dds.make_ring` from `ring.c`; do not edit."""\n\n'
        "from typing import Final\n\n"
        f'SOURCE_DIGEST: Final = "{source_digest()}"\n\n'
        f"OFFSETS: Final = {{\n{entries}\n}}\n\n"
        f"CODE: Final = bytes.fromhex(\n{lines}\n)\n"
    )


if __name__ == "__main__":
    main()
