"""Incidents: troubles from their beginning to their end, in changing forms. One cause is one incident."""

from __future__ import annotations

import collections
import dataclasses
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from ospltool.diagnostics.model import Severity
from ospltool.health.causes import RootCause
from ospltool.health.codes import CUT, OF_WATCH, SECOND_NS, STILL_STOPPED, UNANNOUNCED, Code, Sign
from ospltool.live.remarks import clock
from ospltool.output.text import age, lasted

_BOUNDS: Final = {
    (False, False): "",
    (True, False): "> ",
    (False, True): "< ",
    (True, True): "about ",
}
"""Before a duration whose beginning, and whose end, are not exactly known."""


@dataclasses.dataclass(frozen=True, slots=True)
class Incident:
    """One present or past trouble."""

    key: str
    """Identity, unchanged while the incident lasts."""
    code: Code
    """Entry of the registry."""
    severity: Severity
    """Worst severity of its signs; of a closed incident, while it lasted."""
    who: str
    """Subject: a node, name-space, pair of nodes or service."""
    what: str
    """Observation."""
    why: str
    """Cause, or the usual causes if it is unknown."""
    is_cause_known: bool
    """Whether `why` is the cause. A known cause stays when the trouble changes its form."""
    effect: str
    """Consequence for the data."""
    next: str
    """Advice to the operator."""
    since_ns: int
    """Beginning, by the feed's clock."""
    began_before: bool = False
    """Whether nobody tells the beginning: it began at `since_ns` or before."""
    until_ns: int = 0
    """End; 0 while it is open."""
    ended_before: bool = False
    """Whether nobody saw the end, as the watch did not look then: it ended at `until_ns` or before."""
    nodes: tuple[str, ...] = ()
    """Ids of the involved nodes."""
    subjects: tuple[str, ...] = ()
    """Ids of the nodes among them that it is about."""
    name_spaces: tuple[str, ...] = ()
    """Name-spaces that its signs name."""
    signs: tuple[str, ...] = ()
    """Observations in words, that of the root first."""
    weight: int = 1
    """Gravity, comparable only with that of the same incident at another moment."""
    origin: str = ""
    """Key of the first of the incidents that this one returns after; its own key if it is no return."""
    times: int = 1
    """1 plus the number of incidents before it that it returns after, each within ten seconds."""
    rises: int = 0
    """How often it became worse than ever before: a higher severity, or more subjects."""
    acknowledged_ns: int = 0
    """When an operator acknowledged it, as grave as it is; 0 for never."""
    muted_until_ns: int = 0
    """End of its mute; 0 if it is not muted."""
    worse: str = ""
    """The observation by which it last got a worse severity than it had; empty if it never did."""
    is_part: bool = False
    """Whether the trouble goes on as part of another one, as of a lost domain: it has no end of its own."""

    @property
    def is_open(self) -> bool:
        """Whether the incident has not ended."""
        return not self.until_ns

    @property
    def node(self) -> str:
        """Id of the node that it is about, of several the first; empty without any."""
        return next(iter(self.subjects or self.nodes), "")

    def age_ns(self, now_ns: int) -> int:
        """Return its duration up to its end or now."""
        return max(0, (self.until_ns or now_ns) - self.since_ns)

    def lasts(self, now_ns: int) -> str:
        """Return its duration up to its end or now, in words.

        They begin with ">" if it may have lasted longer, "<" if shorter, and "about" if both.
        """
        duration_ns = self.age_ns(now_ns)
        said = (age if self.is_open else lasted)(duration_ns)
        sign = _BOUNDS[self.began_before, self.ended_before] if duration_ns >= SECOND_NS else ""
        return f"{sign}{said}"

    @property
    def since(self) -> str:
        """The word before its beginning: `since`, or `since before`."""
        return "since before" if self.began_before else "since"

    @property
    def again(self) -> str:
        """How often it was there before, as `, again: 2 before`; empty if it is no return."""
        return f", again: {self.times - 1} before" if self.times > 1 else ""


# Two snapshots: one may be lost. Longer delays the end of each incident, shorter makes it flicker.
LINGER_NS: Final = 2 * SECOND_NS
"""An incident not seen for this long is over; a shorter time is a gap in the observation."""

_TOLD_BY_NODE: Final = frozenset(
    [
        "clock",
        "complete",
        "damaged",
        "definition",
        "deviates",
        "ignored",
        "limits",
        "loss",
        "not-kept",
        "pressure",
        "reader",
        "store",
        "stuck",
    ]
)
"""Causes of which nobody but the node knows, or of two nodes no third one."""

_OF_PAIRS: Final = frozenset({"clock", "definition"})
"""Those of them that are about two nodes: neither knows that it is over while it does not hear the other."""

_LOSSES: Final = frozenset({"node", "domain"})

# Severity may rise at once; falling slowly keeps it from changing with each snapshot.
FALL_NS: Final = 10 * SECOND_NS
"""Time without a consequence as severe as before after which an incident is not that severe any more."""

# What came within it led to the loss, or was its first sign.
APART_NS: Final = 5 * SECOND_NS
"""An incident that began so long before the loss of the domain is one of its own, although it ends in it."""

# More than any person looks at; a system of 1,000 nodes may have one for each.
MAX_OPEN: Final = 1_000
# Some screenfuls of history; a recording has all.
MAX_CLOSED: Final = 500


@dataclasses.dataclass(slots=True)
class _Open:
    """An open incident.

    Attributes:
        incident: as it is now.
        root: key of its present root.
        seen_ns: when it was seen last.
        keys: keys of its signs.
        worst: the worst severity so far, also of the incidents that it returns after.
        gravest: its own worst severity so far.
        most: the most subjects so far.
        brought: the worst severity of consequences of late.
        brought_ns: when there was one of that severity last.
        after_ns: end of the incident that it returns after, before which it did not begin; 0 without one.
        is_assumed: whether it was seen last before the watch stood still, or its nodes were not heard any
            more, until `seen_ns`.
        known_ns: while its nodes are not heard, when they were heard last; else 0.
    """

    incident: Incident
    root: str
    seen_ns: int
    keys: frozenset[str]
    worst: Severity
    most: int
    brought: Severity
    brought_ns: int
    gravest: Severity
    after_ns: int = 0
    is_assumed: bool = False
    known_ns: int = 0

    def bring(self, severity: Severity, now_ns: int, *, is_same: bool) -> None:
        """Take in the worst severity of the present consequences; `is_same`: the code is as it was."""
        if severity <= self.brought or not is_same or now_ns - self.brought_ns >= FALL_NS:
            self.brought, self.brought_ns = severity, now_ns

    @property
    def shown(self) -> Incident:
        """The incident, which says so if nobody knows whether it goes on."""
        if not self.known_ns:
            return self.incident
        what = f"{self.incident.what} (last known at {clock(self.known_ns)} UTC)"
        return dataclasses.replace(self.incident, what=what, effect=self.incident.code.effect)

    def may_last(self, now_ns: int, away: Mapping[str, int], young: Collection[str]) -> bool:
        """Return whether nobody knows that it is over, of which there is no sign; the rest as in `update`."""
        nodes = self.incident.subjects or self.incident.nodes
        heard_ns = [away[node] for node in nodes if node in away]
        is_unknown = len(heard_ns) == len(nodes) or self.incident.code.cause in _OF_PAIRS
        if self.incident.code.cause in _TOLD_BY_NODE and heard_ns and is_unknown:
            self.known_ns = max(heard_ns)
        elif self.is_assumed and self.root in young:
            self.known_ns = 0
        else:
            return False
        self.seen_ns, self.is_assumed = now_ns, True
        return True


class Incidents:
    """The incidents of one system. `left_out` counts present causes beyond the bound of open incidents."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}
        self._closed: collections.deque[Incident] = collections.deque(maxlen=MAX_CLOSED)
        self.left_out = 0

    def wound_to(self, now_ns: int) -> Incidents:
        """Return what is known of the time before `now_ns`, for a feed that shows another moment now.

        An incident that was open is seen again, or ends when it was seen last.
        """
        found = Incidents()
        found._closed.extend(one for one in self._closed if one.until_ns <= now_ns)
        for key, one in self._open.items():
            if one.incident.since_ns <= one.seen_ns <= now_ns:
                found._open[key] = one
        return found

    def resume(self, now_ns: int) -> None:
        """Take in that nobody looked until now: what was open may have lasted, or ended at any moment."""
        for one in self._open.values():
            one.seen_ns, one.is_assumed = now_ns, True

    @property
    def open(self) -> list[Incident]:
        """Open incidents, most urgent and then oldest first."""
        found = (one.shown for one in self._open.values())
        # The key at the end keeps rows from changing places when two began at once.
        return sorted(found, key=lambda one: (one.severity, one.since_ns, one.key))

    @property
    def closed(self) -> list[Incident]:
        """Closed incidents, newest end first."""
        # The key at the end keeps rows from changing places when two ended at once.
        return sorted(self._closed, key=lambda one: (-one.until_ns, one.key))

    def are_unseen(self, now_ns: int) -> bool:
        """Return whether an open incident was not there at the last update, of `now_ns`; it may be over."""
        return any(one.seen_ns < now_ns for one in self._open.values())

    def update(
        self,
        causes: Sequence[RootCause],
        now_ns: int,
        describe: Callable[[RootCause], Incident],
        away: Mapping[str, int] = types.MappingProxyType({}),
        young: Collection[str] = (),
    ) -> None:
        """Take in the causes present at `now_ns`.

        Args:
            causes: all causes, most urgent first.
            now_ns: not earlier than in the last update.
            describe: returns an incident with the words for a cause, which begins with its first sign.
            away: when each node (id) was heard last that is not heard, nor known to have ended: what it told
                stays.
            young: keys of the signs that do not count yet.
        """
        seen: set[str] = set()
        self.left_out = 0
        roots = {cause.root.key for cause in causes}
        for cause in causes:
            key = self._place(cause, seen)
            if key is None and self._is_rest(cause, roots):
                continue
            if key is not None and _is_back(self._open[key].incident, cause.root):
                self._close(key, cause.root.since_ns)
                key = None
            is_later = key is not None and _is_later(self._open[key].incident, cause.root)
            if key is not None and is_later:
                self._part(key, cause.root.since_ns, "then gone")
            if key is None or is_later:
                seen.add(self._begin(cause, now_ns, describe, is_new=is_later))
                continue
            seen.add(key)
            self._go_on(key, cause, now_ns, describe)
        lost = {
            node
            for one in causes
            if one.root.kind.cause in _LOSSES
            for node in one.root.subjects or one.nodes
        }
        for one in causes:
            if one.root.kind.cause == "domain":
                self._merge(seen, one)
        taken = {key for cause in causes for key in cause.keys}
        for key, known in [item for item in self._open.items() if item[0] not in seen]:
            if known.root in taken or not known.may_last(now_ns, away, young):
                self._end(key, now_ns, taken=taken, lost=lost)

    def _place(self, cause: RootCause, taken: set[str]) -> str | None:
        """Return the key of the open incident that this cause continues, by root, signs, or nodes.

        The loss of the domain continues none of its nodes' incidents: it has its own beginning, and is news.
        """
        free = {key: one for key, one in self._open.items() if key not in taken}
        for key, one in free.items():
            if one.root == cause.root.key:
                return key
        if cause.root.kind.cause == "domain":
            return None
        for key, one in free.items():
            if one.root in cause.keys and not _was_alive(one.incident, cause.root):
                return key
        for key, one in free.items():
            if one.incident.code == cause.root.kind and cause.root.key in one.keys:
                return key
        for key, one in free.items():
            is_of_family = one.incident.code.cause == cause.root.kind.cause
            if is_of_family and _is_kin(one.incident, cause.root):
                return key
            if _is_restore(one.incident, cause.root):
                return key
        return None

    def _is_rest(self, cause: RootCause, roots: Collection[str]) -> bool:
        """Return whether two nodes have yet to meet that did not hear each other as part of a trouble before.

        They are an incident of their own if they do not meet before that has ended; `roots` are present.
        """
        if cause.root.kind.cause != "mesh":
            return False
        before = [key for one in self._open.values() if one.root not in roots for key in one.keys]
        pairs = [key.removeprefix("mesh:").split(" and ") for key in before if key.startswith("mesh:")]
        return any(not set(pair).isdisjoint(cause.root.who.split(" and ")) for pair in pairs)

    def _begin(
        self, cause: RootCause, now_ns: int, describe: Callable[[RootCause], Incident], *, is_new: bool
    ) -> str:
        """Open an incident and return its key; unless it `is_new`, it may be the return of a closed one."""
        if len(self._open) >= MAX_OPEN:
            self.left_out += 1
            return ""
        told = describe(cause)
        before = () if is_new else self.closed
        again = next((one for one in before if _is_again(one, told, now_ns)), None)
        after_ns = again.until_ns if again is not None else self._over_ns(cause.root.key)
        since_ns = max(after_ns, min(cause.root.since_ns, now_ns))
        key, worst, most = f"{cause.root.key}@{since_ns}", told.severity, len(told.subjects)
        is_before = told.began_before and not after_ns
        told = dataclasses.replace(told, key=key, origin=key, since_ns=since_ns, began_before=is_before)
        if again is not None:  # its end was told, so it stays over
            worst, most = min(worst, again.severity), max(most, len(again.subjects))
            if told.code.id == _OVER:
                told = _with_cause_of(again, told)
            told = dataclasses.replace(told, origin=again.origin, times=again.times + 1, rises=again.rises)
        root, brought = cause.root.key, cause.brought
        self._open[key] = _Open(
            told, root, now_ns, cause.keys, worst, most, brought, now_ns, told.severity, after_ns
        )
        return key

    def _over_ns(self, root: str) -> int:
        """Return the end of the last incident of a root, which stays over; 0 without one."""
        return max((one.until_ns for one in self._closed if one.key.rpartition("@")[0] == root), default=0)

    def _go_on(
        self, key: str, cause: RootCause, now_ns: int, describe: Callable[[RootCause], Incident]
    ) -> None:
        known = self._open[key]
        before = known.incident
        told = _continued(before, describe(cause))
        since_ns = max(known.after_ns, _beginning(before, cause.root))
        is_before = (told if since_ns == told.since_ns else before).began_before and not known.after_ns
        is_same = told.code == before.code
        known.bring(cause.brought, now_ns, is_same=is_same)
        severity = min(cause.root.urgency, known.brought)
        urgent = next((one.what for one in cause.signs if one.urgency == severity), "")
        known.incident = told = dataclasses.replace(
            told,
            key=key,
            origin=before.origin,
            since_ns=since_ns,
            began_before=is_before,
            times=before.times,
            severity=severity,
            rises=before.rises + (severity < known.worst or len(told.subjects) > known.most),
            worse=urgent if severity < before.severity else before.worse,
        )
        known.root, known.seen_ns, known.keys = cause.root.key, now_ns, cause.keys
        known.is_assumed, known.known_ns = False, 0
        known.gravest = min(known.gravest, told.severity)
        known.worst, known.most = min(known.worst, told.severity), max(known.most, len(told.subjects))

    def _merge(self, seen: set[str], domain: RootCause) -> None:
        """Close the incidents that were there for long when the domain was lost, whose loss contains them."""
        for key, one in [item for item in self._open.items() if item[0] not in seen]:
            until_ns = domain.root.since_ns
            if one.root in domain.keys and one.incident.since_ns <= until_ns - APART_NS:
                self._part(key, until_ns, "then part of the loss of the domain")

    def _part(self, key: str, until_ns: int, how: str) -> None:
        """Close an incident that goes on as part of another one; `how` says so."""
        one = self._open.pop(key)
        what = f"{one.incident.what}, {how}"
        self._closed.append(
            dataclasses.replace(
                one.incident, what=what, until_ns=until_ns, severity=one.gravest, is_part=True
            )
        )

    def _close(self, key: str, until_ns: int) -> None:
        """Close an incident that is over since a moment."""
        one = self._open.pop(key)
        ended = dataclasses.replace(one.incident, until_ns=until_ns, severity=one.gravest)
        self._closed.append(dataclasses.replace(ended, ended_before=one.is_assumed))

    def _end(self, key: str, now_ns: int, taken: set[str], lost: set[str]) -> None:
        """End an incident that is not seen any more, after a while; drop it if another one contains it.

        What only a node itself can tell ends at once when that node is `lost` (ids).
        """
        known = self._open[key]
        if known.root in taken:
            del self._open[key]
        elif now_ns - known.seen_ns >= LINGER_NS or (
            known.incident.code.cause in _TOLD_BY_NODE and lost.issuperset(known.incident.nodes)
        ):
            self._close(key, known.seen_ns)
        else:
            known.incident = _as_it_runs(known.incident)


# Chosen: an incident that comes and goes is one trouble. Longer hides that it had ended.
AGAIN_NS: Final = 10 * SECOND_NS
"""An incident that begins within this time after the end of one like it counts as a return of it."""

_OVER: Final = "DUL-NODE-RESTARTED"
"""The form of a loss that is over; any other loss within that time is a new one, with a cause of its own."""

_STALLED: Final = "DUL-NODE-STALLED"
"""The form of a loss that is over without a restart: the advice on its cause holds."""

_CONTINUE: Final = f" {STILL_STOPPED.partition('{}')[0]}"
"""Beginning of the part of an advice that is about processes that are stopped."""


def _is_back(before: Incident, root: Sign) -> bool:
    """Return whether a node was heard again, of which an open incident tells, and is lost once more."""
    is_back = before.code.id in (_OVER, _STALLED) and root.code not in (_OVER, _STALLED)
    return is_back and root.kind.cause == before.code.cause and before.since_ns < root.since_ns


def _beginning(before: Incident, root: Sign) -> int:
    """Return when an incident began: not before a cause of another kind that came long after it.

    Consequences are seen a moment sooner than some causes; what lasted longer had another cause till then.
    That a node runs again tells only when this watch lost it, and fellows may have lost it later.
    """
    if root.code == _OVER and before.code.cause == root.kind.cause:
        return before.since_ns
    is_other = root.kind.cause != before.code.cause and root.since_ns - before.since_ns > AGAIN_NS
    return root.since_ns if is_other else min(before.since_ns, root.since_ns)


def _is_later(before: Incident, root: Sign) -> bool:
    """Return whether a node is lost for its fellows that only the watch had lost before."""
    return root.is_later and before.code != root.kind and before.since_ns < root.since_ns


def _was_alive(before: Incident, root: Sign) -> bool:
    """Return whether an incident tells that a node lived that is lost now: its loss begins after that."""
    return before.code.cause == "late" and root.kind.cause == "node"


def _is_restore(before: Incident, root: Sign) -> bool:
    """Return whether the loss of a node turns out to be part of putting its store back from a copy.

    The node begins a new run as soon as it knows that, which hides the restart that rules would see.
    """
    is_of_loss = before.code.cause == "node" and before.who == root.who
    return is_of_loss and root.code == "DUL-STORE-RESTORED"


def _is_kin(before: Incident, root: Sign) -> bool:
    """Return whether one is about a pair with a node of the other, or both about one node with two names."""
    if " and " in before.who + root.who:
        return not set(before.nodes).isdisjoint(root.nodes)
    return bool(root.subjects) and before.subjects == root.subjects


def _continued(before: Incident, told: Incident) -> Incident:
    """Return the present account of an incident, with what stays of the former one."""
    return _with_all_of(before, _with_subject_of(before, _with_cause_of(before, told)))


def _with_subject_of(before: Incident, told: Incident) -> Incident:
    """Keep the node that several did not hear while the last of them comes to hear it again."""
    is_rest = " and " in told.who and before.code == told.code and len(before.subjects) == 1
    if is_rest and {*before.subjects} < {*told.nodes} <= {*before.nodes}:
        return dataclasses.replace(told, who=before.who, subjects=before.subjects, nodes=before.nodes)
    return told


def _with_all_of(before: Incident, told: Incident) -> Incident:
    """Keep all nodes that stood still together until what the last of them told is over."""
    if before.code == told.code and told.code.id == _STALLED and {*told.nodes} < {*before.nodes}:
        return dataclasses.replace(
            told, who=before.who, what=before.what, nodes=before.nodes, subjects=before.subjects
        )
    return told


def _with_cause_of(before: Incident, told: Incident) -> Incident:
    """Keep the known cause of an incident whose present form does not tell it, as of a node that is back."""
    # A node that stood still went on: what it is lost by now is something else.
    is_new = before.code.id == _STALLED != told.code.id
    if not before.is_cause_known or is_new or told.code.cause != before.code.cause:
        return told
    is_cut = told.why.startswith(CUT) and not before.why.startswith((UNANNOUNCED, CUT))
    is_own = told.code.id == _STALLED and not before.why.startswith((UNANNOUNCED, CUT))
    is_guess = is_cut or is_own or told.why.startswith(UNANNOUNCED)
    if not told.is_cause_known or is_guess or told.why in before.why:
        is_for_why = told.code.id == _STALLED and told.next == told.code.next
        is_of_before = is_for_why and before.next != before.code.next
        advice = _as_it_runs(before).next if is_of_before else told.next
        return dataclasses.replace(told, why=before.why, is_cause_known=True, next=advice)
    is_next = told.code.id == _OVER and told.code != before.code
    return dataclasses.replace(told, why=f"{before.why}; {told.why}") if is_next else told


def _as_it_runs(before: Incident) -> Incident:
    """Return the account of a node that was stopped and runs again: nothing is left to continue."""
    return dataclasses.replace(before, next=before.next.partition(_CONTINUE)[0])


def _is_again(before: Incident, told: Incident, now_ns: int) -> bool:
    """Return whether a trouble is back that was over a moment ago.

    A node that is lost by a cut link of this watch is another trouble than one that is lost by anything else.
    """
    is_same = (before.code.cause, before.who) == (told.code.cause, told.who)
    return is_same and _is_cut(before) == _is_cut(told) and now_ns - before.until_ns < AGAIN_NS


def _is_cut(one: Incident) -> bool:
    return one.is_cause_known and (one.why.startswith(CUT) or OF_WATCH in one.why)
