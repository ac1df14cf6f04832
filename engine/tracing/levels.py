"""Levels of trace events and types of reports, with the names that a configuration uses."""

from __future__ import annotations

import enum


class Level(enum.IntEnum):
    """How much an event matters. As a verbosity: events of this level and above are written.

    Deployment guide, 5.3.5 Tracing, and //OpenSplice/DurabilityService/Tracing/Verbosity.
    """

    FINEST = 0
    FINER = 1
    FINE = 2
    CONFIG = 3
    INFO = 4
    WARNING = 5
    SEVERE = 6
    NONE = 7

    @classmethod
    def named(cls, name: str) -> Level:
        """The level of a name in any case; raises ValueError that lists the names."""
        return cls[_known_name(name, cls)]


class ReportType(enum.IntEnum):
    """What a record of ospl-info.log or ospl-error.log is; as a verbosity, the least that is written.

    Up to `WARNING` a record goes to the information log, from `API_INFO` on to the error log
    (//OpenSplice/Domain/Report).
    """

    DEBUG = 0
    INFO = 1
    WARNING = 2
    API_INFO = 3
    ERROR = 4
    CRITICAL = 5
    FATAL = 6
    REPAIRED = 7
    NONE = 8

    @classmethod
    def named(cls, name: str) -> ReportType:
        """The type of a name in any case; raises ValueError that lists the names."""
        return cls[_known_name(name, cls)]

    @classmethod
    def configured(cls, name: str | None) -> ReportType | None:
        """The type that a configuration names; None where it names none."""
        return None if name is None else cls.named(name)


def _known_name(name: str, kind: type[enum.IntEnum]) -> str:
    upper = name.strip().upper()
    if upper not in kind.__members__:
        raise ValueError(f"{name!r} is none of {', '.join(kind.__members__)}")
    return upper
