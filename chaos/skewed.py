"""`python -m chaos.skewed SECONDS URI`: a node whose wall clock is wrong by SECONDS.

The kernel has no namespace for the wall clock. So the functions of the `time` module that tell it are
replaced before the node is imported; Cyclone DDS itself, which is C, goes on with the right time.
"""

from __future__ import annotations

import sys
import time


def main() -> int:
    """Make the clock wrong, and be a node."""
    shift_s = float(sys.argv[1])
    right, right_ns, shift_ns = time.time, time.time_ns, int(shift_s * 1e9)
    time.time = lambda: right() + shift_s
    time.time_ns = lambda: right_ns() + shift_ns
    from engine.__main__ import main as node

    return node(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
