"""The acknowledgements of a durable subscription: a state that replicas can merge in any order.

Sets of single numbers, not intervals: numbers of a writer need not be adjacent, and between two acknowledged
ones there may be a sample that only one replica has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Annotated, Final

from msgspec import Meta, Struct

from engine.persistence.core.sequences import HIGHEST

MAX_QUORUM: Final = 1_000_000
"""A greater number is a mistake: no system has that number of readers."""
# Chosen: in order it is empty, since numbers without a gap are one interval.
MAX_ACKNOWLEDGED: Final = 100_000
"""Numbers of one writer that a ledger remembers as acknowledged. The lowest are forgotten, and counted.

A forgotten sample is sent again only if a replica still holds it and never heard of the acknowledgement.
"""

# Chosen: a thousand readers of one durable subscription are a mistake.
MAX_MEMBERS: Final = 1_000
"""Members with acknowledgements of their own; those of further members are refused, and counted."""

MAX_NAME_CHARS: Final = 255
"""As long as the names of topics may be in DDS."""
MAX_KEY_CHARS: Final = 4096
"""Name of a durable subscription with its topic and partitions, as replicas register it."""
_PRINTABLE: Final = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]+\Z"

Text = Annotated[str, Meta(max_length=MAX_NAME_CHARS, pattern=_PRINTABLE)]
"""A name that applications choose; it can be shown."""
Name = Annotated[str, Meta(max_length=128, pattern=_PRINTABLE)]
"""The name of a writer or replica."""
Numbers = tuple[tuple[Name, tuple[Annotated[int, Meta(ge=1)], ...]], ...]
"""Numbers of samples by original writer, in order."""


Id = tuple[str, int]
"""A sample: its writer, and its number there."""


def numbers_of(ids: Iterable[Id]) -> Numbers:
    """Return the numbers by writer, in order."""
    found: dict[str, list[int]] = {}
    for writer, number in ids:
        found.setdefault(writer, []).append(number)
    return _in_order(found)


def ids_of(numbers: Numbers) -> Iterator[Id]:
    """Yield (writer, number) for all numbers."""
    return ((writer, number) for writer, each in numbers for number in each)


def check_numbers(numbers: Numbers) -> None:
    """Refuse numbers that are too high for the store.

    Raises:
        ValueError: one of them is.
    """
    for writer, each in numbers:
        if max(each, default=1) > HIGHEST:
            raise ValueError(f"a number of writer {writer} is too high")


class SubscriptionTerms(Struct, frozen=True):
    """The registration of a name; a higher one replaces a lower one with all its acknowledgements.

    Attributes:
        generation: how often the name has been registered after a deletion, from 1.
        is_deleted: whether it was deleted since.
    """

    generation: Annotated[int, Meta(ge=1, lt=1 << 62)] = 1
    is_deleted: bool = False

    @property
    def order(self) -> tuple[int, bool]:
        """The sort key: a deletion comes after its registration, and before the next one."""
        return self.generation, self.is_deleted


class LedgerState(Struct, frozen=True):
    """A ledger, or a part of one, in a message or on disk.

    Attributes:
        name: of the durable subscription (role_name).
        terms: its registration.
        quorum: members that must acknowledge a sample, from 1.
        done: numbers that the quorum has acknowledged.
        members: by member, numbers that it has acknowledged and the quorum has not.
    """

    name: Annotated[str, Meta(max_length=MAX_KEY_CHARS, pattern=_PRINTABLE)]
    terms: SubscriptionTerms
    quorum: Annotated[int, Meta(ge=1, le=MAX_QUORUM)]
    done: Numbers = ()
    members: tuple[tuple[Text, Numbers], ...] = ()

    def __post_init__(self) -> None:
        for numbers in (self.done, *(each for _, each in self.members)):
            check_numbers(numbers)


class SubscriptionLedger:
    """The acknowledgements of one durable subscription.

    `join` is commutative, associative and idempotent below all bounds: of two quorums of one registration
    the smaller counts, and an acknowledgement is final.

    Args:
        state: what is known of it at first.

    Attributes:
        forgotten: acknowledgements that were forgotten at the bound.
        refused: acknowledgements of members beyond the bound.
    """

    def __init__(self, state: LedgerState) -> None:
        if state.quorum < 1:
            raise ValueError(
                f"the quorum of durable subscription '{state.name}' is {state.quorum}; the least is 1"
            )
        self.name, self.quorum, self.terms = state.name, state.quorum, state.terms
        self.forgotten = 0
        self.refused = 0
        self._done: dict[str, set[int]] = {}
        self._members: dict[str, dict[str, set[int]]] = {}
        self._just_forgotten: list[tuple[str, tuple[int, ...]]] = []
        self.join(state)

    def is_done(self, writer: str, number: int) -> bool:
        """Whether the quorum has acknowledged a sample."""
        return number in self._done.get(writer, ())

    def has(self, member: str, writer: str, number: int) -> bool:
        """Whether a member, or the quorum, has acknowledged a sample, so that the member need not get it.

        The sample is the one with this number of its writer.
        """
        return self.is_done(writer, number) or number in self._members.get(member, {}).get(writer, ())

    def members(self) -> dict[str, int]:
        """Return how many samples each member has acknowledged and the quorum has not."""
        return {name: sum(map(len, each.values())) for name, each in sorted(self._members.items())}

    def acknowledge(self, member: str, writer: str, numbers: Iterable[int]) -> LedgerState | None:
        """Note that a member acknowledges samples.

        Args:
            member: its name.
            writer: of the samples.
            numbers: of the samples.

        Returns:
            The new part, for others to join; None if nothing is new.
        """
        new = set(numbers) - self._done.get(writer, set())
        known = self._members.get(member)
        if known is None:
            if self.quorum > 1 and len(self._members) >= MAX_MEMBERS:
                self.refused += len(new)
                return None
            known = self._members[member] = {}
        new -= known.get(writer, set())
        if not new:
            self._tidy()
            return None
        known.setdefault(writer, set()).update(new)
        done = self._settle(writer, new)
        rest = tuple(sorted(new - done))
        self._tidy()
        return LedgerState(
            self.name,
            self.terms,
            self.quorum,
            ((writer, tuple(sorted(done))),) if done else (),
            ((member, ((writer, rest),)),) if rest else (),
        )

    def join(self, state: LedgerState) -> LedgerState | None:
        """Merge the state of another replica; return the new part, None if nothing is new."""
        if state.terms.order < self.terms.order:
            return None
        is_new = state.terms.order > self.terms.order
        done: list[tuple[str, tuple[int, ...]]] = []
        if is_new:
            self.terms, self.quorum = state.terms, state.quorum
            self._done.clear()
            self._members.clear()
        elif state.quorum < self.quorum:
            self.quorum, is_new = state.quorum, True
            for writer in sorted(set().union(*(lines.keys() for lines in self._members.values()))):
                in_doubt = set().union(*(lines.get(writer, ()) for lines in self._members.values()))
                done.append((writer, tuple(sorted(self._settle(writer, in_doubt)))))
        for writer, numbers in state.done:
            new = set(numbers) - self._done.get(writer, set())
            self._finish(writer, new)
            done.append((writer, tuple(sorted(new))))
        members = [
            part
            for member, lines in state.members
            for writer, numbers in lines
            if (part := self.acknowledge(member, writer, numbers)) is not None
        ]
        self._tidy()
        done = [(writer, numbers) for writer, numbers in done if numbers]
        if not (is_new or done or members):
            return None
        return LedgerState(
            self.name,
            self.terms,
            self.quorum,
            tuple(done) + tuple(line for part in members for line in part.done),
            tuple(line for part in members for line in part.members),
        )

    def _settle(self, writer: str, numbers: set[int]) -> set[int]:
        """Finish the numbers that the quorum has acknowledged by now, and return them."""
        lines = [each[writer] for each in self._members.values() if writer in each]
        done = {number for number in numbers if sum(number in line for line in lines) >= self.quorum}
        self._finish(writer, done)
        return done

    def _finish(self, writer: str, numbers: set[int]) -> None:
        if not numbers:
            return
        done = self._done.setdefault(writer, set())
        done |= numbers  # final: nothing but the bound below takes a number out again
        for lines in self._members.values():
            if writer in lines:
                lines[writer] -= numbers
        excess = len(done) - MAX_ACKNOWLEDGED
        if excess > 0:
            lowest = sorted(done)[: excess + MAX_ACKNOWLEDGED // 10]
            done.difference_update(lowest)
            self.forgotten += len(lowest)
            self._just_forgotten.append((writer, tuple(lowest)))

    def just_forgotten(self) -> list[tuple[str, tuple[int, ...]]]:
        """Take the (writer, numbers) that were forgotten since the last call."""
        found, self._just_forgotten = self._just_forgotten, []
        return found

    def _tidy(self) -> None:
        """Remove members and writers without numbers."""
        for member, lines in list(self._members.items()):
            for writer in [each for each, numbers in lines.items() if not numbers]:
                del lines[writer]
            if not lines:
                del self._members[member]

    def state(self) -> LedgerState:
        """Return the whole state."""
        return LedgerState(
            self.name,
            self.terms,
            self.quorum,
            _in_order(self._done),
            tuple((name, _in_order(lines)) for name, lines in sorted(self._members.items())),
        )


def _in_order(numbers: Mapping[str, Collection[int]]) -> Numbers:
    return tuple((writer, tuple(sorted(each))) for writer, each in sorted(numbers.items()) if each)
