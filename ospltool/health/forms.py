"""How an incident goes on in another form: what stays of it, and when it is another one."""

from __future__ import annotations

import dataclasses
from typing import Final

from ospltool.health.codes import CUT, OF_WATCH, SECOND_NS, STILL_STOPPED, UNANNOUNCED, Sign
from ospltool.health.incident import Incident

AGAIN_NS: Final = 10 * SECOND_NS
"""An incident that begins within this time after the end of one like it counts as a return of it."""

OVER: Final = "DUL-NODE-RESTARTED"
"""The form of a loss that is over; any other loss within that time is a new one, with a cause of its own."""

STALLED: Final = "DUL-NODE-STALLED"
"""The form of a loss that is over without a restart: the advice on its cause holds."""

_CONTINUE: Final = f" {STILL_STOPPED.partition('{}')[0]}"
"""Beginning of the part of an advice that is about processes that are stopped."""


def is_back(before: Incident, root: Sign) -> bool:
    """Return whether a node was heard again, of which an open incident tells, and is lost once more."""
    is_back = before.code.id in (OVER, STALLED) and root.code not in (OVER, STALLED)
    return is_back and root.kind.cause == before.code.cause and before.since_ns < root.since_ns


def beginning(before: Incident, root: Sign) -> int:
    """Return when an incident began: not before a cause of another kind that came long after it.

    Consequences are seen a moment sooner than some causes; what lasted longer had another cause till then.
    That a node runs again tells only when this watch lost it, and fellows may have lost it later.
    """
    if root.code == OVER and before.code.cause == root.kind.cause:
        return before.since_ns
    is_other = root.kind.cause != before.code.cause and root.since_ns - before.since_ns > AGAIN_NS
    return root.since_ns if is_other else min(before.since_ns, root.since_ns)


def is_later(before: Incident, root: Sign) -> bool:
    """Return whether a node is lost for its fellows that only the watch had lost before."""
    return root.is_later and before.code != root.kind and before.since_ns < root.since_ns


def was_alive(before: Incident, root: Sign) -> bool:
    """Return whether an incident tells that a node lived that is lost now: its loss begins after that."""
    return before.code.cause == "late" and root.kind.cause == "node"


def is_restore(before: Incident, root: Sign) -> bool:
    """Return whether the loss of a node turns out to be part of putting its store back from a copy.

    The node begins a new run as soon as it knows that, which hides the restart that rules would see.
    """
    is_of_loss = before.code.cause == "node" and before.who == root.who
    return is_of_loss and root.code == "DUL-STORE-RESTORED"


def is_kin(before: Incident, root: Sign) -> bool:
    """Return whether one is about a pair with a node of the other, or both about one node with two names."""
    if " and " in before.who + root.who:
        return not set(before.nodes).isdisjoint(root.nodes)
    return bool(root.subjects) and before.subjects == root.subjects


def continued(before: Incident, told: Incident) -> Incident:
    """Return what is told of an incident now, with what stays of what was told before."""
    return _with_all_of(before, _with_subject_of(before, with_cause_of(before, told)))


def _with_subject_of(before: Incident, told: Incident) -> Incident:
    """Keep the node that several did not hear while the last of them comes to hear it again."""
    is_rest = " and " in told.who and before.code == told.code and len(before.subjects) == 1
    if is_rest and {*before.subjects} < {*told.nodes} <= {*before.nodes}:
        return dataclasses.replace(told, who=before.who, subjects=before.subjects, nodes=before.nodes)
    return told


def _with_all_of(before: Incident, told: Incident) -> Incident:
    """Keep all nodes that stood still together until what the last of them told is over."""
    if before.code == told.code and told.code.id == STALLED and {*told.nodes} < {*before.nodes}:
        return dataclasses.replace(
            told, who=before.who, what=before.what, nodes=before.nodes, subjects=before.subjects
        )
    return told


def with_cause_of(before: Incident, told: Incident) -> Incident:
    """Keep the known cause of an incident whose present form does not tell it, as of a node that is back."""
    is_new = before.code.id == STALLED != told.code.id  # it went on: what it is lost by now is something else
    if not before.is_cause_known or is_new or told.code.cause != before.code.cause:
        return told
    is_cut = told.why.startswith(CUT) and not before.why.startswith((UNANNOUNCED, CUT))
    is_own = told.code.id == STALLED and not before.why.startswith((UNANNOUNCED, CUT))
    is_guess = is_cut or is_own or told.why.startswith(UNANNOUNCED)
    if not told.is_cause_known or is_guess or told.why in before.why:
        is_for_why = told.code.id == STALLED and told.next == told.code.next
        is_of_before = is_for_why and before.next != before.code.next
        advice = as_it_runs(before).next if is_of_before else told.next
        return dataclasses.replace(told, why=before.why, is_cause_known=True, next=advice)
    is_next = told.code.id == OVER and told.code != before.code
    return dataclasses.replace(told, why=f"{before.why}; {told.why}") if is_next else told


def as_it_runs(before: Incident) -> Incident:
    """Return what is told of a node that was stopped and runs: nothing is left to continue."""
    return dataclasses.replace(before, next=before.next.partition(_CONTINUE)[0])


def is_again(before: Incident, told: Incident, now_ns: int) -> bool:
    """Return whether a trouble is back that was over a moment ago.

    A node that is lost by a cut link of this watch is another trouble than one that is lost by anything else.
    """
    is_same = (before.code.cause, before.who) == (told.code.cause, told.who)
    return is_same and _is_cut(before) == _is_cut(told) and now_ns - before.until_ns < AGAIN_NS


def _is_cut(one: Incident) -> bool:
    return one.is_cause_known and (one.why.startswith(CUT) or OF_WATCH in one.why)
