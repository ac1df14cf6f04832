"""Levels of trace events and types of reports, with the names that a configuration uses."""

from __future__ import annotations

import enum
from typing import Self


class _Named(enum.IntEnum):
    @classmethod
    def named(cls, name: str) -> Self:
        """Return the member of a name in any case; raise ValueError with the names if it is unknown."""
        upper = name.strip().upper()
        if upper not in cls.__members__:
            raise ValueError(f"{name!r} is none of {', '.join(cls.__members__)}")
        return cls[upper]


class Level(_Named):
    """Importance of an event. As a verbosity: events of this level and above are written.

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


class ReportType(_Named):
    """Type of a record of ospl-info.log or ospl-error.log; as a verbosity, the least that is written.

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
    def configured(cls, name: str | None) -> ReportType | None:
        """Return the type that a configuration names, if any."""
        return None if name is None else cls.named(name)
