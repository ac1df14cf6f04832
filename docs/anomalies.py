"""Makes docs/rules/anomalies.md from the rules themselves: `python -m docs.anomalies`.

A test fails when the page is not what this module makes of the rules.
"""

from __future__ import annotations

import pathlib

from ospltool.trace.rules import all_rules

PAGE = pathlib.Path(__file__).parent / "rules" / "anomalies.md"


def page() -> str:
    """The whole page."""
    lines = [
        "# Rules of anomalies",
        "",
        "<!-- Made by `python -m docs.anomalies` from the rules of ospltool.trace.rules. -->",
        "",
        "To look for these faults in traces, run `ospltool trace anomalies DIR`. A rule makes a finding when",
        "it has seen all of its conditions and nothing refutes them; the finding begins at that moment.",
        "`ospltool trace explain NAME` shows the text of a rule.",
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
