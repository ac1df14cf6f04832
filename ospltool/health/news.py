"""What somebody who follows incidents is told: each begins, changes and ends, and its effect settles."""

from __future__ import annotations

import dataclasses
import re
from typing import Final, NamedTuple

from ospltool.diagnostics.model import Severity
from ospltool.health.codes import LAST_COPY, NO_MASTER
from ospltool.health.health import Health
from ospltool.health.incidents import Incident

# Doubling: an effect that keeps changing is reported a few times an hour, not each time.
SLOWER: Final = 2
"""Factor by which an effect that was told again must stand longer until it is told once more."""

RELIEF_S: Final = 1.0
"""Time in seconds for which a relief must stand until it is told."""

_WARNINGS: Final = (NO_MASTER, LAST_COPY)
"""What effects tell of no longer once there is a relief."""

_MASTERS: Final = " are masters, their sets "
"""What effects tell of several masters of one role."""

_COPIES: Final = re.compile(r"\d+(?: of \d+)? cop(?:y|ies)")
"""What effects tell of copies in memory."""

_ON_DISK: Final = re.compile(r"\d+(?: of \d+)? on disk")
"""What they tell of copies on disk."""


class _Form(NamedTuple):
    """What is told at once when it changes."""

    code: str
    severity: Severity
    who: str
    muted_until_ns: int
    is_cause_known: bool


@dataclasses.dataclass(slots=True)
class _ToldIncident:
    """An open incident that was told.

    Attributes:
        form: as it was told.
        last: the incident as it was seen last.
        effect: the effect that was told.
        seen: the effect as it was seen last.
        since: when that was seen first.
        patience_s: time for which another effect must stand.
    """

    form: _Form
    last: Incident
    effect: str
    seen: str
    since: float
    patience_s: float

    def is_effect_untold(self, effect: str, now: float) -> bool:
        """Return whether the effect is another one than was told, and has stood for long enough."""
        if effect != self.seen:
            self.seen, self.since = effect, now
        patience_s = min(RELIEF_S, self.patience_s) if self.is_relief(effect) else self.patience_s
        return effect != self.effect and (self.is_loss(effect) or now - self.since >= patience_s)

    def is_relief(self, effect: str) -> bool:
        """Return whether an effect tells a master where none was told, or further copies beside the last."""
        return any(one in self.effect and one not in effect for one in _WARNINGS)

    def is_loss(self, effect: str) -> bool:
        """Return whether an effect tells fewer copies of a name-space than were told."""
        before, now = _copies(self.effect), _copies(effect)
        return bool(before and now) and min(now) < min(before)


def _copies(effect: str) -> list[int]:
    """Return the numbers of copies that an effect tells."""
    return [int(one.split()[0]) for one in _COPIES.findall(effect)]


def _is_true(effect: str, health: Health) -> bool:
    """Return whether as many copies as an effect tells are there now, and several masters if it says so."""
    now = {one for copies in health.redundancies for one in _counts(copies.text)}
    are_masters = _MASTERS not in effect or any(health.model.contested())
    return are_masters and now.issuperset(_counts(effect))


def _counts(text: str) -> list[str]:
    """Return the numbers of copies, also on disk, that a text tells."""
    return [*_COPIES.findall(text), *_ON_DISK.findall(text)]


class IncidentNews:
    """The incidents of one system that were told, each in its last form.

    An effect changes with elections and counts while the trouble stays the same. It is told again once it
    has stood for `settled_s`, and with the end of its incident if it is still true; each time it is, the
    next one must stand twice as long. A master where there was none is told sooner, and so are further copies
    beside the last one; fewer copies than were told are told at once.

    Args:
        settled_s: time in seconds, above 0.
    """

    def __init__(self, settled_s: float) -> None:
        self._settled_s = settled_s
        self._told: dict[str, _ToldIncident] = {}

    def changes(self, health: Health, now: float) -> list[tuple[str, Incident]]:
        """Return (what, incident) for each change since the last call.

        What is `began`, `changed`, `worse` (in severity, by what `Incident.worse` says), `ended` or
        `joined`: an incident that joined another one, its cause, has no end of its own. One that ended has
        the effect that is still to be told; else it is empty.
        """
        found: list[tuple[str, Incident]] = []
        last = {one.key: one for one in (*health.open, *health.muted)}
        for key, one in last.items():
            form = _Form(one.code.id, one.severity, one.who, one.muted_until_ns, one.is_cause_known)
            told = self._told.get(key)
            if told is None:
                self._told[key] = _ToldIncident(form, one, one.effect, one.effect, now, self._settled_s)
                found.append(("began", one))
                continue
            told.last = one
            is_settled = told.is_effect_untold(one.effect, now) and not one.muted_until_ns
            is_settled = is_settled and _is_true(one.effect, health)
            if is_settled and not (told.is_relief(one.effect) or told.is_loss(one.effect)):
                told.patience_s *= SLOWER
            if told.form != form or is_settled:
                found.append(("worse" if one.severity < told.form.severity else "changed", one))
                told.form, told.effect = form, one.effect
        for one in health.closed:
            told = None if one.is_part else self._told.pop(one.key, None)
            if told:
                muted_until_ns = told.form.muted_until_ns
                is_untold = told.last.effect != told.effect and not muted_until_ns
                effect = told.last.effect if is_untold and _is_true(told.last.effect, health) else ""
                found.append(
                    ("ended", dataclasses.replace(one, muted_until_ns=muted_until_ns, effect=effect))
                )
        joined = [key for key in self._told if key not in last]  # they are part of other incidents now
        found += [("joined", self._told.pop(key).last) for key in joined]
        return found
