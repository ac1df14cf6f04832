"""All rules by code; they are in `ospltool.check.rules`, in a module for each family.

Most are functions. Those that only hand on what the reader of a file, the schema or the table of another
product has found are rows of `handed_on.toml`.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterator
from importlib import resources
from typing import Any

from engine.config import ProblemKind
from ospltool.check.registry import NOWHERE, OPENSPLICE, RULES, Check, Rule, RuleInput, rule
from ospltool.check.rules import (  # noqa: F401  # each registers its rules
    consistency,
    files,
    fleet_domain,
    fleet_roles,
    foreign,
    leftovers,
    name_spaces,
    persistence,
    policies,
    services,
    suppressions,
)
from ospltool.check.views import FileView, NodeView
from ospltool.diagnostics.model import Finding, Severity, Target


@functools.cache
def all_rules() -> dict[str, Rule]:
    """Return every rule by code, in the order of the codes."""
    text = resources.files("ospltool.check.rules").joinpath("handed_on.toml").read_text("utf-8")
    for code, row in tomllib.loads(text).items():
        register = rule(
            code,
            row["name"],
            Severity.named(row["severity"]),
            takes=RuleInput(row["takes"]),
            targets=frozenset(map(Target, row.get("targets", Target))),
            blocks=frozenset(map(Target, row.get("blocks", ()))),
        )
        register(_check(code, row))
    return dict(sorted(RULES.items()))


def find_rules(selector: str) -> list[Rule]:
    """Find the rules with a code, a prefix of a code, a name, or `ALL`.

    Raises:
        KeyError: there is no such rule.
    """
    wanted = selector.strip()
    upper = wanted.upper()
    found = [
        each
        for each in all_rules().values()
        if upper == "ALL" or each.code.startswith(upper) or each.name == wanted.lower()
    ]
    if not wanted or not found:
        raise KeyError(wanted)
    return found


def _check(code: str, row: dict[str, Any]) -> Check:
    kind = row.get("kind", "")

    def of_file(file: FileView) -> Iterator[Finding]:
        return files.of_kind(file, ProblemKind(kind))

    def of_another_product(file: FileView) -> Iterator[Finding]:
        return (each for each in file.faults if each.code == code)

    def of_node(node: NodeView) -> Iterator[Finding]:
        blocks = NOWHERE if row.get("starts") else OPENSPLICE
        return (node.from_problem(each, blocks=blocks) for each in node.problems(ProblemKind(kind)))

    checks: dict[str, Check] = {"file": of_file, "node": of_node}
    check = checks.get(row["takes"], of_another_product)
    check.__doc__ = row["doc"]
    return check
