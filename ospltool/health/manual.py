"""The pages of the codes in Markdown: `python -m ospltool.health.manual docs/health`."""

from __future__ import annotations

import sys
import textwrap

from ospltool.health.codes import Code, codes
from ospltool.output.pages import write_pages

WIDTH = 100
_NOTE = "<!-- Made by `python -m ospltool.health.manual docs/health` from ospltool/health/codes.toml. -->"


def pages() -> dict[str, str]:
    """Every page, by file name."""
    found = {"README.md": _index()}
    for code in codes().values():
        found[f"{code.id}.md"] = _page(code)
    return found


def text_of(code: Code) -> str:
    """A code for the terminal."""
    causes = "\n".join(f"- {cause}" for cause in code.causes)
    parts = {
        "What is observed": code.observed,
        "Likely causes": causes,
        "Effect on data": code.effect,
        "What to do": code.next,
    }
    lines = [f"{code.id} ({code.severity.label})", "", code.title]
    for title, body in parts.items():
        lines += ["", f"{title}:"]
        for paragraph in body.splitlines():
            lines += textwrap.wrap(paragraph, WIDTH, initial_indent="  ", subsequent_indent="  ")
    return "\n".join(lines) + "\n"


def _index() -> str:
    lines = [
        "# Health codes",
        "",
        _NOTE,
        "",
        f"{len(codes())} codes, which `ospltool health` and the console use.",
        "`ospltool explain CODE` shows one of them in the terminal.",
        "How incidents come and go is in [Health](../health.md). A code is never given to another trouble.",
        "",
        "| Code | Severity | What is wrong |",
        "|---|---|---|",
    ]
    lines += [f"| [{one.id}]({one.id}.md) | {one.severity.label} | {one.title} |" for one in codes().values()]
    return "\n".join(lines) + "\n"


def _page(code: Code) -> str:
    lines = [f"# {code.id}", "", _NOTE, "", f"**{code.title}.** Severity: {code.severity.label}.", ""]
    lines += ["## What is observed", "", code.observed, "", "## Likely causes", ""]
    lines += [f"- {cause}" for cause in code.causes]
    lines += ["", "## Effect on data", "", code.effect, "", "## What to do", "", code.next, ""]
    return "\n".join([*lines, "[All codes](README.md)", ""])


if __name__ == "__main__":
    write_pages(sys.argv[1], pages())
