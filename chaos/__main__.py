"""`python -m chaos [--minutes N] [--seed N]`, or `python -m chaos --case NAME [--repeat N]`.

Exit codes: 0 no violation, 1 a promise was broken or a bar missed, 2 wrong usage, 4 no namespaces here.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

from chaos import capsule

EXIT_FORBIDDEN = 4


def main(arguments: list[str]) -> int:
    """Enter the capsule, and run there what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--case", choices=("rolling-restart", "stale-first", "cut-from-master", "busy-merge"))
    parser.add_argument("--first", type=int, choices=(0, 1, 2), default=2, help="which node starts first")
    parser.add_argument("--samples", type=int, default=200_000, help="the common set of busy-merge")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--unicast", action="store_true", help="disallow multicast")
    parser.add_argument("--keep", type=Path, help="keep traces and stores of what fails here")
    options = parser.parse_args(arguments)
    if not capsule.is_inside():
        try:
            return capsule.enter(arguments)
        except capsule.Forbidden as reason:
            print(f"chaos: nothing was run: {reason}", file=sys.stderr)
            return EXIT_FORBIDDEN
    capsule.prepare()
    return _cases(options)


def _cases(options: argparse.Namespace) -> int:
    from chaos.cases import run_case
    from chaos.ground import Violation

    argument = options.samples if options.case == "busy-merge" else options.first
    label = f"{options.case} --first {options.first}" if options.case == "stale-first" else options.case
    failed = 0
    for number in range(1, options.repeat + 1):
        directory = Path(tempfile.mkdtemp(prefix="chaos-"))
        began = time.monotonic()
        try:
            result = run_case(options.case, directory, argument, multicast=not options.unicast)
            line, missed = result.line(), result.missed
        except (Violation, AssertionError) as error:
            traceback.print_exc()
            line, missed = "", [str(error)]
        failed += bool(missed)
        print(
            f"{label} {number}/{options.repeat}: {'FAILED' if missed else 'ok'}  {line}"
            f"  ({time.monotonic() - began:.0f} s, load {os.getloadavg()[0]:.1f})",
            flush=True,
        )
        for text in missed:
            print(f"  {text}", flush=True)
        if missed and options.keep:
            shutil.copytree(directory, options.keep / f"{options.case}-{number}", dirs_exist_ok=True)
        shutil.rmtree(directory)
    print(f"{label}: {options.repeat - failed} of {options.repeat} kept the promise")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
