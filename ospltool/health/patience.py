"""Delays signs until they have lasted: elections, merges and first meetings are over in seconds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Final, NamedTuple

from ospltool.health.sign import SECOND_NS, Sign

GAP_NS: Final = 2 * SECOND_NS
"""A sign that is missing for a shorter time continues."""


class _Seen(NamedTuple):
    first_ns: int
    last_ns: int


class Patience:
    """The beginnings of signs. `is_waiting`: some of the present signs do not count yet."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], _Seen] = {}
        self.is_waiting = False

    def lasting(self, signs: Iterable[Sign], now_ns: int) -> list[Sign]:
        """Return the present signs that have lasted for their `patience_ns`, each with its beginning."""
        self.is_waiting = False
        found = []
        for sign in signs:
            key = (sign.code, sign.who)
            before = self._seen.get(key)
            first_ns = before.first_ns if before else now_ns
            self._seen[key] = _Seen(first_ns, now_ns)
            since_ns = min(first_ns, sign.since_ns or first_ns)
            if now_ns - since_ns >= sign.patience_ns:
                found.append(dataclasses.replace(sign, since_ns=since_ns))
            else:
                self.is_waiting = True
        self._seen = {key: seen for key, seen in self._seen.items() if now_ns - seen.last_ns < GAP_NS}
        return found
