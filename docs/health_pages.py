"""Make docs/health from the health codes: `python -m docs.health_pages`.

A test fails if the pages differ from what this module makes.
"""

from __future__ import annotations

import pathlib

from ospltool.health.codes import Code, codes

DIRECTORY = pathlib.Path(__file__).with_name("health")
_NOTE = "<!-- Made by `python -m docs.health_pages` from ospltool/health/codes.toml. -->"


def pages() -> dict[str, str]:
    """Return the text of every page, by file name."""
    found = {"README.md": _index()}
    for code in codes().values():
        found[f"{code.id}.md"] = _page(code)
    return found


def _index() -> str:
    lines = [
        "# Health codes",
        "",
        _NOTE,
        "",
        f"{len(codes())} codes, which `ospltool health` and the console use.",
        "`ospltool explain CODE` shows one of them in the terminal.",
        _unprovoked(),
        "How incidents come and go is in [Health](../health.md). A code is never given to another trouble.",
        "",
        "| Code | Severity | What is wrong |",
        "|---|---|---|",
    ]
    lines += [f"| [{one.id}]({one.id}.md) | {one.severity.label} | {one.title} |" for one in codes().values()]
    return "\n".join(lines) + "\n"


def _unprovoked() -> str:
    names = ", ".join(f"[{one.id}]({one.id}.md)" for one in codes().values() if one.unprovoked)
    return f"Tests provoke all of them on real processes (`make faults`), but for {names}: its page says why."


def _page(code: Code) -> str:
    lines = [f"# {code.id}", "", _NOTE, "", f"**{code.title}.** Severity: {code.severity.label}.", ""]
    for heading, text in code.sections.items():
        lines += [f"## {heading}", "", text, ""]
    if code.unprovoked:
        lines += ["## Why no test provokes it", "", code.unprovoked, ""]
    return "\n".join([*lines, "[All codes](README.md)", ""])


if __name__ == "__main__":
    for name, text in pages().items():
        (DIRECTORY / name).write_text(text, "utf-8")
