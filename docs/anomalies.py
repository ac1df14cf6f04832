"""Makes docs/anomalies.md from the rules themselves: `python -m docs.anomalies`.

A test fails when the page is not what this module makes of the rules.
"""

from __future__ import annotations

import pathlib

from ospltool.trace.rules import all_rules

PAGE = pathlib.Path(__file__).with_suffix(".md")


def page() -> str:
    """The whole page."""
    lines = [
        "# Rules of anomalies",
        "",
        "<!-- Made by `python -m docs.anomalies` from the rules of ospltool.trace.rules. -->",
        "",
        "Each finding of `ospltool trace anomalies` rests on what must all be seen, is dated from the first",
        "moment at which it is, and is not made where something refutes it. Each rule has traces that must",
        "make it speak and traces that must not, in `tests/trace/test_anomalies.py`. `ospltool trace explain",
        "NAME` shows the text of a rule.",
        "",
    ]
    for rule in all_rules():
        lines += [
            f"## {rule.name}",
            "",
            f"{rule.looks_for[0].upper()}{rule.looks_for[1:]}.",
            "",
            f"- **Seen:** {rule.seen}",
            f"- **Refuted by:** {rule.refuted}",
            "",
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
