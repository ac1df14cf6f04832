"""The filter language of `/`: words that must all match, `!` turns one around, `field:` aims one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, slots=True)
class Term:
    """One word in lower case: looked for in `field`, or in every field when that is empty; `raw` as typed."""

    word: str
    field: str = ""
    inverse: bool = False
    raw: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Filter:
    """Terms that must all hold. The empty filter matches everything."""

    terms: tuple[Term, ...] = ()
    text: str = ""

    def __bool__(self) -> bool:
        return bool(self.terms)

    @classmethod
    def parse(cls, text: str, fields: tuple[str, ...] = ()) -> Filter:
        """Parse a filter. Every text is one: a prefix that is not a field of the view belongs to the word."""
        terms = []
        for word in text.split():
            inverse = word.startswith("!")
            rest = word[1:] if inverse else word
            name, colon, value = rest.partition(":")
            field = name.lower() if colon and name.lower() in fields else ""
            wanted = value if field else rest
            if wanted:
                terms.append(Term(wanted.casefold(), field, inverse, wanted))
        return cls(tuple(terms), text.strip())

    def matches(self, values: Mapping[str, str], skip: tuple[str, ...] = ()) -> bool:
        """Return whether every term holds for `values`, except for terms on a field in `skip`."""
        return all(self._holds(term, values) for term in self.terms if term.field not in skip)

    def matches_field(self, field: str, value: str) -> bool:
        """Return whether the terms that aim at `field` hold for `value`."""
        aimed = [term for term in self.terms if term.field == field]
        return all((term.word in value.casefold()) is not term.inverse for term in aimed)

    @staticmethod
    def _holds(term: Term, values: Mapping[str, str]) -> bool:
        texts = [values.get(term.field, "")] if term.field else list(values.values())
        return any(term.word in text.casefold() for text in texts) is not term.inverse
