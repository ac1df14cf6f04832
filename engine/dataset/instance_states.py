"""States of an instance in a reader, and the transitions between them (DDS 1.4, 2.2.2.5.1)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple


class InstanceState(enum.StrEnum):
    """Instance states of DDS, and NONE for an unknown instance."""

    NONE = "NONE"
    ALIVE = "ALIVE"
    NOT_ALIVE_DISPOSED = "NOT_ALIVE_DISPOSED"
    NOT_ALIVE_NO_WRITERS = "NOT_ALIVE_NO_WRITERS"


class ViewState(enum.StrEnum):
    """View state of DDS: NOT_NEW once the application has seen this generation of the instance."""

    NEW = "NEW"
    NOT_NEW = "NOT_NEW"


class InstanceEvent(enum.StrEnum):
    """Event that moves an instance from state to state."""

    DATA = "a sample is the newest"
    DISPOSED = "a dispose is the newest"
    NO_WRITERS = "the last writer is gone"
    WRITER = "there is a writer again"


class Move(NamedTuple):
    """The next state, and how many generations begin with it."""

    state: InstanceState
    disposed_generations: int = 0
    no_writers_generations: int = 0


_NONE, _ALIVE, _DISPOSED, _NO_WRITERS = InstanceState

MOVES: Mapping[InstanceState, Mapping[InstanceEvent, Move]] = MappingProxyType(
    {
        _NONE: {
            InstanceEvent.DATA: Move(_ALIVE),
            InstanceEvent.DISPOSED: Move(_DISPOSED),
            InstanceEvent.NO_WRITERS: Move(_NONE),
            InstanceEvent.WRITER: Move(_NONE),
        },
        _ALIVE: {
            InstanceEvent.DATA: Move(_ALIVE),
            InstanceEvent.DISPOSED: Move(_DISPOSED),
            InstanceEvent.NO_WRITERS: Move(_NO_WRITERS),
            InstanceEvent.WRITER: Move(_ALIVE),
        },
        _DISPOSED: {
            InstanceEvent.DATA: Move(_ALIVE, disposed_generations=1),
            InstanceEvent.DISPOSED: Move(_DISPOSED),
            InstanceEvent.NO_WRITERS: Move(_DISPOSED),
            InstanceEvent.WRITER: Move(_DISPOSED),
        },
        _NO_WRITERS: {
            InstanceEvent.DATA: Move(_ALIVE, no_writers_generations=1),
            InstanceEvent.DISPOSED: Move(_DISPOSED),
            InstanceEvent.NO_WRITERS: Move(_NO_WRITERS),
            InstanceEvent.WRITER: Move(_ALIVE, no_writers_generations=1),
        },
    }
)
"""Next state and growth of the generation counts, for every state and change."""


VIEWS: Final = MappingProxyType(
    {
        (ViewState.NEW, True): ViewState.NOT_NEW,
        (ViewState.NOT_NEW, True): ViewState.NOT_NEW,
        (ViewState.NEW, False): ViewState.NEW,
        (ViewState.NOT_NEW, False): ViewState.NEW,
    }
)
"""View after the application has read (True), or after a generation has begun (False)."""
