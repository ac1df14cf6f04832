"""The moving picture of the README: commands as they run, each line when it came.

make screenshots
"""

from __future__ import annotations

import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from typing import Final

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from ospltool.output.text import visible

ROOT: Final = pathlib.Path(__file__).parent.parent
PICTURE: Final = ROOT / "docs" / "images" / "late-reader.svg"
WIDTH: Final = 92
"""Columns: as many as the longest line has."""
TYPING_S: Final = 1.2
"""Pause before a command, in which a viewer reads what the last one printed."""
LAST_S: Final = 5.0
"""How long the whole picture stays before it begins again."""
STEPS: Final = (
    ("# One node keeps what applications write.", "ospltool start samples/three-nodes/n1.xml"),
    ("# A program that uses only Cyclone DDS writes, and exits.", "python samples/publisher.py"),
    ("# The node is killed, too; its supervisor starts it again.", "kill -9 {node_pid}"),
    ("# A reader that starts now gets everything.", "python samples/subscriber.py"),
)


def main() -> None:
    """Play with a run directory of its own: nodes of this user are left alone."""
    environ = os.environ | {
        "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
        "CYCLONEDDS_URI": f"file://{ROOT}/samples/three-nodes/cyclonedds.xml",
    }
    with tempfile.TemporaryDirectory(prefix="ospltool-picture-") as directory:
        environ["OSPLTOOL_RUNDIR"] = directory
        play(environ)


def play(environ: dict[str, str]) -> None:
    """Run the commands, and draw them."""
    lines: list[tuple[float, Text]] = []
    now = 0.0
    try:
        for comment, command in STEPS:
            now += TYPING_S
            command = command.format(node_pid=node_pid(environ))
            if comment:
                lines.append((now, Text(comment, "grey62")))
            lines.append((now, Text.assemble(("$ ", "green"), (command, "bold"))))
            began = time.monotonic()
            done = subprocess.run(
                ["sh", "-c", command], cwd=ROOT, env=environ, capture_output=True, text=True, check=True
            )
            now += time.monotonic() - began
            lines += [(now, Text(visible(line))) for line in (done.stdout + done.stderr).splitlines()]
    finally:
        subprocess.run(["ospltool", "stop", "--all"], cwd=ROOT, env=environ, check=True, capture_output=True)
    PICTURE.write_text(moving(lines, now + LAST_S), encoding="utf-8")


def node_pid(environ: dict[str, str]) -> int:
    """Return the process of the node that runs, 0 if none does."""
    done = subprocess.run(
        ["ospltool", "list", "--json"], cwd=ROOT, env=environ, check=True, capture_output=True, text=True
    )
    return next((int(node["node_pid"]) for node in json.loads(done.stdout)["data"]), 0)


def moving(lines: list[tuple[float, Text]], length_s: float) -> str:
    """Return an SVG in which each line appears at its time, over and over.

    A viewer that does not move pictures shows all lines.
    """
    console = Console(
        record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    rows = []
    for at_s, line in lines:
        wrapped = line.wrap(console, WIDTH)
        rows += [at_s] * len(wrapped)
        console.print(*wrapped, sep="\n")
    svg = console.export_svg(title="durable data on Cyclone DDS", theme=MONOKAI, unique_id="late")
    rules = []
    for row, at_s in enumerate(rows):
        share = 100 * at_s / length_s
        rules.append(
            f"@keyframes row{row} {{ 0%, {share:.2f}% {{ opacity: 0 }}"
            f" {share + 0.01:.2f}%, 100% {{ opacity: 1 }} }}"
            f' [clip-path="url(#late-line-{row})"] {{ animation: row{row} {length_s:.1f}s infinite }}'
        )
    # Nothing moves for those who have asked their system for less motion.
    style = f"@media (prefers-reduced-motion: no-preference) {{ {' '.join(rules)} }}"
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # nothing is loaded from elsewhere
    return svg.replace("</style>", f"{style}</style>", 1)


if __name__ == "__main__":
    main()
