"""How a reader gets its history from the services: asked, counted, joined, asked again where need be.

Whoever is responsible answers: for each name-space its master. What is asked for is complete when every
name-space that some service names for it has been covered by an answer. If only services that are not
responsible have the set, because the master does not serve clients, one of those is addressed.

No clock and no DDS here: `Fetch` is told what happens and says what to send.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from engine.dataset.sample import is_end
from engine.dds.client_protocol.messages import Completeness, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from engine.dataset.sample import Sample
    from engine.dds.client_protocol.messages import Link
    from ospltool.client.samples import HistorySelection

HOLD_S: Final = 0.5
"""How long a service may hold a request; then it is asked again."""
GRACE_S: Final = 1.5
"""How much longer an answer may take to begin, and a pause between its parts; doubled if it was too short."""
MAX_GRACE_S: Final = 30.0
PAUSE_S: Final = 0.1
"""Pause before asking again."""
WILDCARDS: Final = "*?"
MAX_LIVING: Final = 10_000
_GUID_BYTES: Final = 16


def _guid(text: object) -> bytes | None:
    """A GUID in hexadecimal digits, None for what is none."""
    try:
        found = bytes.fromhex(str(text))
    except ValueError:
        return None
    return found if len(found) == _GUID_BYTES else None


def _names(told: object) -> list[str]:
    """Names of name-spaces as a service told them; none where it tells something else."""
    return [name for name in told if isinstance(name, str)] if isinstance(told, list | tuple) else []


@dataclasses.dataclass(frozen=True, slots=True)
class Send:
    """A request to send: for which partitions, under which number, to whom."""

    number: int
    partition: str
    servers: tuple[bytes, ...]


@dataclasses.dataclass(slots=True)
class _Answer:
    """What one service said in this round."""

    server: bytes
    code: ErrorCode
    name_spaces: dict[str, bool]
    parts: frozenset[str]


class Exchange:
    """The requests for one partition expression.

    A server of another product answers an expression for one group only, and calls that complete. So its
    answer only tells that there is such a server: the partitions are asked for one by one then.

    Args:
        partition: the expression.
        numbers: makes request numbers.
        is_resolved: it is a partition that discovery told of; that there is no such group is an answer.
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
        """When `turn` has something to do at the latest."""
        if self._running:
            return self._until_s
        return None if self.done or self._is_alone else self._next_s

    def turn(self, now: float, servers: frozenset[bytes]) -> Send | None:
        """Look at the answers and the time; returns what to send."""
        if not self.followed.keys() <= servers:
            self._is_lost = True  # also if it is back before this round ends: it told us nothing meanwhile
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
            # Where who kept us up to date is gone, another one will. Otherwise they know what we have got.
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
        """Ask those that keep us up to date for everything once more: something may have been missed."""
        self._lacks = True

    @property
    def is_to_be_resolved(self) -> bool:
        """Whether a server of another product has answered an expression."""
        return self.is_expression and self._foreign_done

    def part(self, service: bytes, number: int, sample: Sample, now: float, *, exact: bool) -> None:
        """A sample of the answer to a request arrived; `service` is the participant that sent it."""
        self._parts.setdefault((service, number), []).append((sample, exact))
        self._until_s = max(self._until_s, now + self._patience_s)

    def end(
        self, service: bytes, number: int, server: bytes, link: Link, added: dict[str, Any] | None
    ) -> list[tuple[Sample, bool]] | None:
        """The end of an answer; returns its samples, None if some are missing."""
        parts = self._parts.pop((service, number), [])
        code = ErrorCode(link.error) if link.error in set(ErrorCode) else ErrorCode.INVALID
        whole = len(parts) == link.count
        if added is not None and added.get("update"):
            if not whole:
                self.ask_again()
            return parts if whole else None
        if not whole and number != max(self.numbers):
            return None  # broken off, because we have asked again
        names = (added or {}).get("name_spaces", {})
        parts_only = frozenset(_names((added or {}).get("parts")))
        self._answers[service] = _Answer(server, code, names if isinstance(names, dict) else {}, parts_only)
        self.parts_only = frozenset().union(*(one.parts for one in self._answers.values())) - self._covered
        self.last_code = code if code is not ErrorCode.OK or self.last_code.is_refusal else self.last_code
        if code.is_refusal:
            self.refusal = code
        if code is not ErrorCode.OK or not whole:
            return parts if whole else None
        if added is None:
            self._foreign_done = self._foreign_done or link.completeness == Completeness.COMPLETE
        else:
            covers = _names(added.get("covers"))
            self._covered.update(covers)
            if covers:
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
        """Services that have what nobody who is responsible gave; one for each name-space."""
        found: dict[str, bytes] = {}
        for answer in self._answers.values():
            if answer.code is ErrorCode.NOT_RESPONSIBLE:
                for name, complete in answer.name_spaces.items():
                    if complete and name not in self._covered:
                        found.setdefault(name, answer.server)
        return tuple(sorted(set(found.values())))


class Fetch:
    """The history of one reader: an exchange for each of its partition expressions.

    Args:
        partitions: expressions of the reader.
        numbers: makes request numbers.
        selection: what is wanted.
        is_followed: the services keep the reader up to date afterwards.
        on_history: gets the whole history, once; each sample with whether its writer's GUID is exact.
        on_update: gets what came later.
        resolve: the partitions that discovery knows of an expression.

    Attributes:
        living: writers that the service knows that answered last.
        asked_s: when it was asked.
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
        self.exchanges = [Exchange(partition, numbers) for partition in partitions]
        self._numbers = numbers
        self._resolve = resolve
        self.selection = selection
        self.is_followed = is_followed
        self.done = False
        self.living: frozenset[bytes] = frozenset()
        self.asked_s = 0.0
        self._staged: list[tuple[Sample, bool]] = []
        self._on_history = on_history
        self._on_update = on_update

    @property
    def due_s(self) -> float | None:
        """When `turn` has something to do at the latest."""
        dues = [one.due_s for one in self.exchanges]
        return min((due for due in dues if due is not None), default=None)

    @property
    def refusal(self) -> ErrorCode:
        """Why a service refuses the request, OK if none does."""
        return next((one.refusal for one in self.exchanges if one.refusal.is_refusal), ErrorCode.OK)

    @property
    def last_code(self) -> ErrorCode:
        """The last reason that a service gave for not answering what is still missing."""
        return next((one.last_code for one in self.exchanges if not one.done), ErrorCode.OK)

    @property
    def parts_only(self) -> frozenset[str]:
        """The name-spaces of what is missing of which only parts can be reached, as services said last."""
        return frozenset().union(*(one.parts_only for one in self.exchanges if not one.done))

    def exchange(self, number: int) -> Exchange | None:
        """The exchange of a request number."""
        return next((one for one in self.exchanges if number in one.numbers), None)

    def ask_again(self) -> None:
        """Ask for everything once more; what comes is an update."""
        for one in self.exchanges:
            one.ask_again()

    def turn(self, now: float, servers: frozenset[bytes]) -> list[Send]:
        """Look at answers and time; returns what to send."""
        if self.refusal.is_refusal or (self.done and not self.is_followed):
            return []
        for one in [each for each in self.exchanges if each.is_to_be_resolved and not self.done]:
            asked = {each.partition for each in self.exchanges}
            new = sorted(set(self._resolve(one.partition)) - asked)
            self.exchanges += [Exchange(partition, self._numbers, is_resolved=True) for partition in new]
        sends = [send for one in self.exchanges if (send := one.turn(now, servers))]
        if not self.done and all(one.done for one in self.exchanges):
            self.done = True
            staged, self._staged = self._staged, []
            self._on_history(staged)
        return sends

    def end(
        self, service: bytes, number: int, server: bytes, link: Link, added: dict[str, Any] | None
    ) -> None:
        """An answer has ended."""
        exchange = self.exchange(number)
        living = (added or {}).get("living")
        if exchange and isinstance(living, list):
            self.asked_s = exchange.asked_s
            self.living = frozenset(guid for text in living[:MAX_LIVING] if (guid := _guid(text)))
        parts = exchange.end(service, number, server, link, added) if exchange else None
        if not parts:
            return
        if self.done:
            self._on_update(parts)
            return
        ended = {sample.key for sample, _ in parts if is_end(sample)}
        if ended:  # a merge took back some of what is not given yet
            self._staged = [part for part in self._staged if part[0].key not in ended]
        self._staged += [part for part in parts if not is_end(part[0])]
