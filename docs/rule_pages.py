"""Make docs/rules from the rules of `ospltool check`: `python -m docs.rule_pages`.

A test fails if the pages differ from what this module makes.
"""

from __future__ import annotations

import pathlib

from ospltool.check.registry import SECTIONS, Rule
from ospltool.check.rule_book import all_rules

DIRECTORY = pathlib.Path(__file__).with_name("rules")
FAMILIES = {
    "DUR0": ("files.md", "Files and structure"),
    "DUR1": ("values.md", "Values and leftovers"),
    "DUR2": ("name-spaces.md", "Name-spaces"),
    "DUR24": ("built-in.md", "Built-in topics, durable policies and filters"),
    "DUR3": ("masters.md", "Policies, aligners and masters"),
    "DUR32": ("elections.md", "Aligners and masters of a deployment"),
    "DUR33": ("elections.md", "Aligners and masters of a deployment"),
    "DUR4": ("merging.md", "Merging"),
    "DUR5": ("timing.md", "Timing"),
    "DUR6": ("persistence.md", "Persistence"),
    "DUR7": ("domain.md", "Services, tracing and the domain"),
    "DUR74": ("deployments.md", "Differences between nodes"),
    "DUR75": ("cyclone.md", "Cyclone DDS and QoS profiles"),
    "DUR76": ("cyclone.md", "Cyclone DDS and QoS profiles"),
    "DUR77": ("cyclone.md", "Cyclone DDS and QoS profiles"),
    "DUR8": ("consistency.md", "Eventual consistency"),
    "DUR9": ("suppressions.md", "Suppressions"),
}
"""File and title of each page, by the prefix of its codes; the longest prefix counts."""

_CODE_SECTIONS = frozenset({"Example", "Use instead"})
_NOTE = "<!-- Made by `python -m docs.rule_pages` from the rules themselves. -->"


def pages() -> dict[str, str]:
    """Return the text of every page, by file name."""
    rules = list(all_rules().values())
    found = {"README.md": _index(rules)}
    for name, title in dict.fromkeys(FAMILIES.values()):
        members = [each for each in rules if _page(each.code) == name]
        found[name] = "\n".join([f"# {title}", "", _NOTE, "", *(_chapter(each) for each in members)])
    return found


def _page(code: str) -> str:
    """Return the file that explains a rule: that of the longest prefix of its code."""
    return next(FAMILIES[code[:size]][0] for size in (5, 4) if code[:size] in FAMILIES)


def _index(rules: list[Rule]) -> str:
    lines = [
        "# Rules of `ospltool check`",
        "",
        _NOTE,
        "",
        f"{len(rules)} rules. `ospltool explain CODE` shows one of them in the terminal.",
        "A code is never given to another rule.",
    ]
    for name, title in dict.fromkeys(FAMILIES.values()):
        lines += ["", f"## {title}", "", "| Rule | Severity |", "|---|---|"]
        for each in rules:
            if _page(each.code) == name:
                link = f"[{each.code} {each.name}]({name}#{each.code.lower()}-{each.name})"
                lines.append(f"| {link} | {each.severity.label} |")
    return "\n".join(lines) + "\n"


def _chapter(each: Rule) -> str:
    sections = each.sections()
    lines = [f"## {each.code} {each.name}", "", escaped(each.summary), ""]
    facts = [f"Severity: {each.severity.label}. Since {each.since}."]
    if each.matters_for:
        facts.append(each.matters_for)
    lines += [" ".join(facts), ""]
    for name in SECTIONS:
        title = "What OpenSplice does" if name == "OpenSplice" else name
        body = sections.get(name, "")
        if name in _CODE_SECTIONS:
            lines += [f"**{title}**", "", "```xml" if "<" in body else "```text", body, "```", ""]
        else:
            lines += [f"**{title}.** {escaped(body)}", ""]
    return "\n".join(lines)


def escaped(text: str) -> str:
    """Escape tags and bars outside of code spans."""
    parts = text.split("`")
    return "`".join(
        part if at % 2 else part.replace("<", "&lt;").replace("|", "\\|") for at, part in enumerate(parts)
    )


if __name__ == "__main__":
    for name, text in pages().items():
        (DIRECTORY / name).write_text(text, "utf-8")
