"""What rules about files of other products have in common."""

from __future__ import annotations

from typing import Final

from engine.config import Attribute, Value, XmlElement
from engine.config.values import did_you_mean
from ospltool.diagnostics.model import Finding, Place

# More is no advice but a list, which `ospltool explain` has.
MAX_NAMED: Final = 8
"""Names in an advice at most."""


def finding_at(
    code: str, thing: XmlElement | Attribute | Value, message: str, advice: str = "", subject: str = ""
) -> Finding:
    """Make a finding of a rule.

    Args:
        code: of the rule.
        thing: a value, or an element or attribute, of which the name is underlined.
        message: what is wrong.
        advice: what to do; may be empty.
        subject: path of the setting; may be empty.
    """
    source = thing.value.source if isinstance(thing, Attribute) else thing.source
    span = thing.span if isinstance(thing, Value) else thing.name_span
    return Finding(message, Place.from_span(source, span), advice=advice, subject=subject, code=code)


def hint(name: str, known: tuple[str, ...]) -> str:
    """Return what an unknown name may stand for; empty if nothing is like it and much is known."""
    return did_you_mean(name, known) or (
        f"use {' or '.join(known)}, or remove it" if 0 < len(known) <= MAX_NAMED else ""
    )
