"""The table of rules: each is one function whose docstring is its documentation.

The docstring has a first line, which says what is wrong, and these sections: Why, Example, Use instead,
OpenSplice (what the real service does), Reference. Codes are stable and never given to another rule.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
from collections.abc import Callable, Iterable
from typing import TypeAlias

from ospltool.diagnostics.model import Finding, RuleText, Severity, Target

EVERYWHERE = frozenset(Target)
OPENSPLICE = frozenset({Target.OPENSPLICE})
OSPLTOOL = frozenset({Target.OSPLTOOL})
NOWHERE: frozenset[Target] = frozenset()

SECTIONS = ("Why", "Example", "Use instead", "OpenSplice", "Reference")
"""What the documentation of every rule must have, in this order."""


class RuleInput(enum.Enum):
    """The input of a rule.

    `FILE` is a file that cannot be read as a configuration; `PERSISTENCE`, `CYCLONE` and `PROFILES` are files
    of persistence services, of Cyclone DDS itself, and of QoS profiles.
    """

    FILE = "file"
    PERSISTENCE = "persistence"
    CYCLONE = "cyclone"
    PROFILES = "profiles"
    NODE = "node"
    FLEET = "fleet"
    META = "meta"


Check: TypeAlias = Callable[..., Iterable[Finding]]


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """A rule of the check."""

    code: str
    """Stable code, such as DUR201."""
    name: str
    """Stable name in kebab-case."""
    severity: Severity
    """Severity of its findings, unless a finding has its own."""
    since: str
    """Version of ospltool that introduced it."""
    takes: RuleInput
    """The kind of view that it takes."""
    targets: frozenset[Target]
    """Services for which it matters."""
    blocks: frozenset[Target]
    """Services that refuse to start, unless a finding says otherwise."""
    alone: bool
    """It runs only if all services that the user checks for are among `targets`."""
    check: Check
    """The function that yields its findings."""

    @property
    def matters_for(self) -> str:
        """A sentence that names the services for which it matters; empty if it matters for all."""
        if self.targets == EVERYWHERE:
            return ""
        names = " and ".join(sorted(self.targets))
        return f"Looked for with `--target {names}` only." if self.alone else f"Matters for {names} only."

    @property
    def summary(self) -> str:
        """What is wrong, in one line."""
        return inspect.getdoc(self.check).partition("\n")[0]  # type: ignore[union-attr]  # `rule` insists

    def sections(self) -> dict[str, str]:
        """Return the documentation by section."""
        return documentation(inspect.getdoc(self.check) or "")

    def text(self) -> RuleText:
        """Return the texts of the rule for output formats."""
        return RuleText(self.code, self.name, self.severity, self.summary, self.sections().get("Why", ""))


_SECTION = re.compile(rf"^({'|'.join(SECTIONS)}): *(.*)$")


def documentation(docstring: str) -> dict[str, str]:
    """Split a cleaned docstring into its sections; the text before the first has the empty name."""
    sections: dict[str, list[str]] = {"": []}
    current = sections[""]
    for line in docstring.splitlines():
        found = _SECTION.match(line)
        if found:
            current = sections.setdefault(found[1], [])
            line = found[2]
        current.append(line)
    return {name: inspect.cleandoc("\n".join(lines)).strip() for name, lines in sections.items()}


RULES: dict[str, Rule] = {}
"""All rules of the modules that were imported, by code; `ospltool.check.rule_book` imports all."""


def rule(
    code: str,
    name: str,
    severity: Severity,
    *,
    takes: RuleInput = RuleInput.NODE,
    targets: frozenset[Target] = EVERYWHERE,
    blocks: frozenset[Target] = NOWHERE,
    alone: bool = False,
    since: str = "0.1",
) -> Callable[[Check], Check]:
    """Register a function as a rule.

    Args:
        code: stable code, such as DUR201.
        name: stable name in kebab-case.
        severity: of its findings, unless one has its own.
        takes: kind of view that it takes as input.
        targets: services for which it matters.
        blocks: services that refuse to start, unless a finding says otherwise.
        alone: run it only if all services that the user checks for are among `targets`.
        since: version of ospltool that introduced it.
    """

    def register(check: Check) -> Check:
        assert code not in RULES, f"{code} is taken"
        assert check.__doc__, f"{code} has no documentation"
        RULES[code] = Rule(code, name, severity, since, takes, targets, blocks, alone, check)
        return check

    return register
