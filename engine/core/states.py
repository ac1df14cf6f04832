"""The two life cycles of the protocol, as transition tables.

The *service* passes through the states of the deployment guide, section 5.4, under OpenSplice's names. It
only moves forward: a later merge makes name-spaces incomplete for a while, not the service.

Each *name-space* has its own life cycle, so that independent name-spaces do not wait for each other:

- DISCOVER: this node looks for fellows (5.4.1, 5.4.2).
- ELECT: fellows are known; proposals are exchanged until all agree on a master (5.4.3).
- SOURCE: this node is master of its role; of the masters of all roles, one injects (5.4.4).
- INJECT: this node loads its stored set. An empty set is a set.
- COLLECT: this node is master and gathers what fellows captured before there was a master (5.2.3.7).
- WAIT: the node that will have the set (the master, or the injector of another role) is not complete yet.
- ALIGN: that node is complete and has been asked for its set (5.4.6).
- COMPLETE: the set is whole; it is given to late joiners and to fellows (5.4.7).
- MERGE: the set evolved apart from the master's, or from a fellow's, and is being merged (5.4.8).
- PASSIVE: nothing is kept: alignee Lazy before the first durable reader on this host, or On_Request
  (5.2.3.1).

The diagrams of the documentation and the exhaustive test are made from these tables. A pair that is not
listed is a bug in ospltool and raises `InvariantError`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType


class InvariantError(Exception):
    """This node broke its own rules."""


class ServiceState(enum.StrEnum):
    """State of the durability service, as sent in d_status and written in every trace line."""

    INIT = "INIT"
    DISCOVER_FELLOWS_GROUPS = "DISCOVER_FELLOWS_GROUPS"
    DISCOVER_PERSISTENT_SOURCE = "DISCOVER_PERSISTENT_SOURCE"
    INJECT_PERSISTENT = "INJECT_PERSISTENT"
    DISCOVER_LOCAL_GROUPS = "DISCOVER_LOCAL_GROUPS"
    FETCH_INITIAL = "FETCH_INITIAL"
    COMPLETE = "COMPLETE"
    TERMINATING = "TERMINATING"
    TERMINATED = "TERMINATED"


class Phase(enum.StrEnum):
    """Place of a name-space in its life cycle on this node."""

    DISCOVER = "discover"
    ELECT = "elect"
    SOURCE = "source"
    INJECT = "inject"
    COLLECT = "collect"
    WAIT = "wait"
    ALIGN = "align"
    COMPLETE = "complete"
    MERGE = "merge"
    PASSIVE = "passive"


class Trigger(enum.StrEnum):
    """Event that moves a name-space from phase to phase."""

    DISCOVERED = "fellows are known"
    MASTER_IS_SELF = "this node is the confirmed master"
    MASTER_IS_FELLOW = "a fellow is the confirmed master"
    MASTER_LOST = "there is no master any more"
    NOT_WANTED = "nobody here wants the data yet"
    WANTED = "a durable reader on this host wants the data"
    INJECTOR_IS_SELF = "this node injects for the whole system"
    INJECTOR_IS_OTHER = "the master of another role injects or has injected"
    INJECTED = "the stored set is loaded"
    COLLECTED = "fellows' data is gathered"
    REQUESTED = "the master was asked for its set"
    ALIGNED = "the master's set is here, whole"
    FAILED = "the aligner was lost, refused or fell silent"
    DIVERGED = "sets evolved apart"
    MERGED = "the merge policy has been carried out"


PHASES: Mapping[Phase, Mapping[Trigger, Phase]] = MappingProxyType(
    {
        Phase.DISCOVER: {Trigger.DISCOVERED: Phase.ELECT, Trigger.NOT_WANTED: Phase.PASSIVE},
        Phase.PASSIVE: {Trigger.WANTED: Phase.ELECT},
        Phase.ELECT: {
            Trigger.MASTER_IS_SELF: Phase.SOURCE,
            Trigger.MASTER_IS_FELLOW: Phase.WAIT,
        },
        Phase.SOURCE: {
            Trigger.INJECTOR_IS_SELF: Phase.INJECT,
            Trigger.INJECTOR_IS_OTHER: Phase.WAIT,
            Trigger.MASTER_IS_FELLOW: Phase.WAIT,
            Trigger.MASTER_LOST: Phase.ELECT,
        },
        Phase.INJECT: {
            Trigger.INJECTED: Phase.COLLECT,
            Trigger.MASTER_IS_FELLOW: Phase.WAIT,
            Trigger.MASTER_LOST: Phase.ELECT,
        },
        Phase.COLLECT: {
            Trigger.COLLECTED: Phase.COMPLETE,
            Trigger.INJECTOR_IS_OTHER: Phase.WAIT,
            Trigger.MASTER_IS_FELLOW: Phase.WAIT,
            Trigger.MASTER_LOST: Phase.ELECT,
        },
        Phase.WAIT: {
            Trigger.REQUESTED: Phase.ALIGN,
            Trigger.MASTER_IS_SELF: Phase.SOURCE,
            Trigger.MASTER_IS_FELLOW: Phase.WAIT,
            Trigger.MASTER_LOST: Phase.ELECT,
        },
        Phase.ALIGN: {
            Trigger.ALIGNED: Phase.COMPLETE,
            Trigger.FAILED: Phase.WAIT,
            Trigger.MASTER_IS_SELF: Phase.SOURCE,
            Trigger.MASTER_IS_FELLOW: Phase.WAIT,
            Trigger.MASTER_LOST: Phase.ELECT,
        },
        Phase.COMPLETE: {
            Trigger.MASTER_IS_SELF: Phase.COMPLETE,
            Trigger.MASTER_IS_FELLOW: Phase.COMPLETE,
            Trigger.MASTER_LOST: Phase.COMPLETE,
            Trigger.DIVERGED: Phase.MERGE,
        },
        Phase.MERGE: {
            Trigger.MERGED: Phase.COMPLETE,
            Trigger.FAILED: Phase.COMPLETE,
            Trigger.MASTER_IS_SELF: Phase.COMPLETE,
            Trigger.MASTER_IS_FELLOW: Phase.COMPLETE,
            Trigger.MASTER_LOST: Phase.COMPLETE,
        },
    }
)

SERVICE_ORDER = tuple(ServiceState)
"""The service states in their order; a service may skip some."""


def next_phase(phase: Phase, trigger: Trigger) -> Phase:
    """Return the phase after `trigger` in `phase`.

    Raises:
        InvariantError: the pair is not in the table.
    """
    try:
        return PHASES[phase][trigger]
    except KeyError:
        raise InvariantError(f"{trigger!r} cannot happen in phase {phase}") from None


def is_complete(phase: Phase) -> bool:
    """Whether the set is whole and may be announced and sent."""
    return phase is Phase.COMPLETE


def service_state(phases: list[Phase]) -> ServiceState:
    """Return the state of a running service, from the phases of all its name-spaces.

    A merging name-space was complete before, so the service stays COMPLETE.
    """
    if Phase.DISCOVER in phases:
        return ServiceState.DISCOVER_FELLOWS_GROUPS
    if Phase.ELECT in phases or Phase.SOURCE in phases:
        return ServiceState.DISCOVER_PERSISTENT_SOURCE
    if Phase.INJECT in phases:
        return ServiceState.INJECT_PERSISTENT
    if Phase.COLLECT in phases or Phase.WAIT in phases or Phase.ALIGN in phases:
        return ServiceState.FETCH_INITIAL
    return ServiceState.COMPLETE
