"""A program for `test_forks.py`: it says what it was given and ends with the code that it reads."""

from __future__ import annotations

import json
import os
import socket
import sys

if __name__ == "__main__":
    print(" ".join(sys.argv[1:]))
    print(os.environ.get("OSPL_FORKED", "no"))
    print(__name__)
    print(json.dumps([name for _, name in socket.if_nameindex()]), flush=True)
    sys.exit(int(sys.stdin.readline() or "1"))
