"""Fetches the history of a reader from the services: asks, counts, joins, and asks again if necessary.

The master of each name-space answers. The history is complete when an answer has covered every name-space
that a service names for the request. If the master does not serve clients, another service with the set
is addressed.

No clock and no DDS here: `HistoryFetch` is told what happens and says what to send.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from engine.dataset.sample import is_end
from engine.dds.client_protocol.extensions import LinkAddition
from engine.dds.client_protocol.messages import Completeness, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from engine.dataset.sample import Sample
    from engine.dds.client_protocol.messages import Link
    from ospltool.client.samples import HistorySelection

HOLD_S: Final = 0.5
"""Most seconds that a service holds a request; then it is asked again."""
GRACE_S: Final = 1.5
"""Further seconds until an answer begins, and between its parts; doubled if they were too short."""
MAX_GRACE_S: Final = 30.0
PAUSE_S: Final = 0.1
"""Seconds before the next request."""
WILDCARDS: Final = "*?"


@dataclasses.dataclass(frozen=True, slots=True)
class Send:
    """A request to send, with its number, partition expression and addressees (empty for all)."""

    number: int
    partition: str
    servers: tuple[bytes, ...]


@dataclasses.dataclass(slots=True)
class _Answer:
    """The answer of one service in this round."""

    server: bytes
    code: ErrorCode
    name_spaces: dict[str, bool]
    parts: frozenset[str]


class _PartitionFetch:
    """The requests for one partition expression.

    A server of another product answers an expression for one group only, and calls that complete. Its answer
    only reveals such a server, and the partitions are then requested one by one.

    Args:
        partition: the expression.
        numbers: makes request numbers.
        is_resolved: the partition was discovered, so that "no such group" is a valid answer.
    """

    def __init__(self, partition: str, numbers: Iterator[int], *, is_resolved: bool = False) -> None:
        self.partition = partition
        self.is_expression = any(char in partition for char in WILDCARDS)
        self._is_resolved = is_resolved
        self.done = False
        self.numbers: set[int] = set()
        self.asked_s = 0.0
        self.followed: dict[bytes, bytes] = {}
        self._is_lost = self._lacks = False
        self.refusal = ErrorCode.OK
        self.last_code = ErrorCode.OK
        self.parts_only: frozenset[str] = frozenset()
        self._make_number = numbers
        self._answers: dict[bytes, _Answer] = {}
        self._covered: set[str] = set()
        self._foreign_done = False
        self._running = False
        self._until_s = 0.0
        self._next_s = 0.0
        self._is_alone = False
        self._addressed: tuple[bytes, ...] = ()
        self._patience_s = GRACE_S
        self._parts: dict[tuple[bytes, int], list[tuple[Sample, bool]]] = {}

    @property
    def due_s(self) -> float | None:
        """Latest time of the next `turn`."""
        if self._running:
            return self._until_s
        return None if self.done or self._is_alone else self._next_s

    def turn(self, now: float, servers: frozenset[bytes]) -> Send | None:
        """Evaluate the answers and the time; return a request to send, or None."""
        if not self.followed.keys() <= servers:
            self._is_lost = (
                True  # also if it is back before this round ends: its updates were missed meanwhile
            )
        if self._running:
            if self._is_covered(servers, is_over=now >= self._until_s):
                self._running, self.done = False, True
                newest = max(self.numbers)
                self._parts = {key: parts for key, parts in self._parts.items() if key[1] == newest}
            elif now >= self._until_s or (servers <= self._answers.keys() and not self.is_to_be_resolved):
                self._running = False
                self._next_s = now + PAUSE_S
                self._addressed = self._whom_to_address()
                if not servers <= self._answers.keys():
                    self._patience_s = min(2 * self._patience_s, MAX_GRACE_S)
            return None
        if self.done and (self._is_lost or self._lacks):
            # If the service that sent updates is gone, another one takes over; else the same ones are asked.
            self._addressed = () if self._is_lost else tuple(sorted(self.followed.values()))
            self.done = self._is_lost = self._lacks = False
            self.followed.clear()
            self._covered.clear()
            self._foreign_done = False
        self._is_alone = not servers
        if self.done or not servers or now < self._next_s:
            return None
        self._running = True
        self._until_s = now + HOLD_S + self._patience_s
        self._answers.clear()
        number = next(self._make_number)
        self.numbers.add(number)
        self.asked_s = now
        return Send(number, self.partition, self._addressed)

    def ask_again(self) -> None:
        """Ask the services that send updates for everything again, since updates may have been missed."""
        self._lacks = True

    @property
    def is_to_be_resolved(self) -> bool:
        """Whether a service of another product has answered an expression."""
        return self.is_expression and self._foreign_done

    def part(self, service: bytes, number: int, sample: Sample, now: float, *, exact: bool) -> None:
        """Take in a sample of an answer; `service` is the participant that sent it."""
        self._parts.setdefault((service, number), []).append((sample, exact))
        self._until_s = max(self._until_s, now + self._patience_s)

    def end(
        self, service: bytes, number: int, server: bytes, link: Link, added: LinkAddition | None
    ) -> list[tuple[Sample, bool]] | None:
        """Take in the end of an answer; return its samples, or None if some are missing."""
        parts = self._parts.pop((service, number), [])
        code = ErrorCode(link.error) if link.error in set(ErrorCode) else ErrorCode.INVALID
        whole = len(parts) == link.count
        if added is not None and added.update:
            if not whole:
                self.ask_again()
            return parts if whole else None
        if not whole and number != max(self.numbers):
            return None  # aborted by a newer request
        told = added or LinkAddition()
        self._answers[service] = _Answer(server, code, told.name_spaces, frozenset(told.parts))
        self.parts_only = frozenset().union(*(one.parts for one in self._answers.values())) - self._covered
        self.last_code = code if code is not ErrorCode.OK or self.last_code.is_refusal else self.last_code
        if code.is_refusal:
            self.refusal = code
        if code is not ErrorCode.OK or not whole:
            return parts if whole else None
        if added is None:
            self._foreign_done = self._foreign_done or link.completeness == Completeness.COMPLETE
        else:
            self._covered.update(added.covers)
            if added.covers:
                self.followed[service] = server
        return parts

    def _is_covered(self, servers: frozenset[bytes], *, is_over: bool) -> bool:
        if self._foreign_done:
            return is_over or not self.is_expression  # discovery has had time to tell of all groups
        everybody = servers <= self._answers.keys()
        codes = {answer.code for answer in self._answers.values()}
        if everybody and self._is_resolved and ErrorCode.GROUP_NOT_FOUND in codes:
            return True
        touched = {name for answer in self._answers.values() for name in answer.name_spaces}
        return (everybody or is_over) and bool(self._covered) and touched <= self._covered

    def _whom_to_address(self) -> tuple[bytes, ...]:
        """Return a service for each name-space that a master has not covered."""
        found: dict[str, bytes] = {}
        for answer in self._answers.values():
            if answer.code is ErrorCode.NOT_RESPONSIBLE:
                for name, complete in answer.name_spaces.items():
                    if complete and name not in self._covered:
                        found.setdefault(name, answer.server)
        return tuple(sorted(set(found.values())))


class HistoryFetch:
    """A fetch of the history of one reader, with an exchange for each of its partition expressions.

    Args:
        partitions: partition expressions of the reader.
        numbers: makes request numbers.
        selection: wanted part of the history.
        is_followed: the services send updates afterwards.
        on_history: receives the whole history once; each sample with whether its writer's GUID is exact.
        on_update: receives later updates.
        resolve: returns the discovered partitions that match an expression.

    Attributes:
        living: living writers according to the last answer.
        disposing: lost writers with autodispose according to it.
        asked_s: when that was requested.
    """

    def __init__(
        self,
        partitions: tuple[str, ...],
        numbers: Iterator[int],
        selection: HistorySelection,
        *,
        is_followed: bool,
        on_history: Callable[[list[tuple[Sample, bool]]], None],
        on_update: Callable[[list[tuple[Sample, bool]]], None],
        resolve: Callable[[str], Iterable[str]] = lambda _: (),
    ) -> None:
        self.exchanges = [_PartitionFetch(partition, numbers) for partition in partitions]
        self._numbers = numbers
        self._resolve = resolve
        self.selection = selection
        self.is_followed = is_followed
        self.done = False
        self.living: frozenset[bytes] = frozenset()
        self.disposing: frozenset[bytes] = frozenset()
        self.asked_s = 0.0
        self._staged: list[tuple[Sample, bool]] = []
        self._on_history = on_history
        self._on_update = on_update

    @property
    def due_s(self) -> float | None:
        """Latest time of the next `turn`."""
        dues = [one.due_s for one in self.exchanges]
        return min((due for due in dues if due is not None), default=None)

    @property
    def refusal(self) -> ErrorCode:
        """Reason of a service to refuse the request; OK if none refuses."""
        return next((one.refusal for one in self.exchanges if one.refusal.is_refusal), ErrorCode.OK)

    @property
    def last_code(self) -> ErrorCode:
        """Last reason of a service not to answer an open exchange."""
        return next((one.last_code for one in self.exchanges if not one.done), ErrorCode.OK)

    @property
    def parts_only(self) -> frozenset[str]:
        """Name-spaces of open exchanges of which, by the last answers, only parts can be reached."""
        return frozenset().union(*(one.parts_only for one in self.exchanges if not one.done))

    def exchange(self, number: int) -> _PartitionFetch | None:
        """Return the exchange of a request number; None if it is unknown."""
        return next((one for one in self.exchanges if number in one.numbers), None)

    def ask_again(self) -> None:
        """Ask for everything again; the answers are updates."""
        for one in self.exchanges:
            one.ask_again()

    def turn(self, now: float, servers: frozenset[bytes]) -> list[Send]:
        """Evaluate answers and time; return the requests to send."""
        if self.refusal.is_refusal or (self.done and not self.is_followed):
            return []
        for one in [each for each in self.exchanges if each.is_to_be_resolved and not self.done]:
            asked = {each.partition for each in self.exchanges}
            new = sorted(set(self._resolve(one.partition)) - asked)
            self.exchanges += [
                _PartitionFetch(partition, self._numbers, is_resolved=True) for partition in new
            ]
        sends = [send for one in self.exchanges if (send := one.turn(now, servers))]
        if not self.done and all(one.done for one in self.exchanges):
            self.done = True
            staged, self._staged = self._staged, []
            self._on_history(staged)
        return sends

    def end(self, service: bytes, number: int, server: bytes, link: Link, added: LinkAddition | None) -> None:
        """Take in the end of an answer.

        `service` sent it as `server`, in answer to the request `number`; `added` are the extensions of
        ospltool.
        """
        exchange = self.exchange(number)
        if exchange and added is not None and added.living is not None:
            self.asked_s = exchange.asked_s
            self.living = added.living
            self.disposing = added.disposing
        parts = exchange.end(service, number, server, link, added) if exchange else None
        if not parts:
            return
        if self.done:
            self._on_update(parts)
            return
        ended = {sample.key for sample, _ in parts if is_end(sample)}
        if ended:  # a merge took back some of the staged samples
            self._staged = [part for part in self._staged if part[0].key not in ended]
        self._staged += [part for part in parts if not is_end(part[0])]
