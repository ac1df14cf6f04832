"""A lazy dataclass behaves as the original does, before and after its methods are compiled."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest

from engine.core.lazy_dataclass import lazy_dataclass

OPTIONS = [
    {"frozen": True, "slots": True},
    {"frozen": True},
    {"slots": True},
    {},
    {"eq": False, "frozen": True, "slots": True},
    {"eq": False},
]


def both(options: dict[str, bool], body: Callable[[], type]) -> tuple[Any, Any]:
    """One class made by either, with the same fields."""
    return dataclasses.dataclass(**options)(body()), lazy_dataclass(**options)(body())


def point() -> type:
    class Point:
        """A class with each kind of field."""

        x: int
        y: int = dataclasses.field(default=2, compare=False)
        names: list[str] = dataclasses.field(default_factory=list, hash=False)
        hidden: str = dataclasses.field(default="h", repr=False)
        made: int = dataclasses.field(default=7, init=False)
        built: list[int] = dataclasses.field(default_factory=list, init=False, hash=False)
        last: int = dataclasses.field(default=9, kw_only=True)

        @property
        def double(self) -> int:
            return 2 * self.x

    return Point


def outcome(act: Callable[[], Any]) -> Any:
    """What a call gives, or the error that it raises."""
    try:
        return act()
    except Exception as error:
        return type(error), str(error)


def assigned(one: Any) -> Any:
    one.x = 3
    return one


def deleted(one: Any) -> Any:
    del one.x
    return one


def acts(cls: Any) -> list[Callable[[], Any]]:
    """Everything that the two must do alike; each result says nothing about the class."""
    return [
        lambda: repr(cls(1)),
        lambda: repr(cls(1, 3, ["a"], "z", last=4)),
        lambda: cls(1) == cls(1, 5),
        lambda: cls(1) == cls(2),
        lambda: cls(1) != cls(1, names=["b"]),
        lambda: cls(1) == 1,
        lambda: cls(1).__eq__(1),
        lambda: cls(1).built is cls(1).built,
        lambda: cls(1).names is cls(1).names,
        lambda: cls(4).double,
        lambda: cls(),
        lambda: cls(1, 2, [], "h", 5),
        lambda: cls(1, made=3),
        lambda: cls(1, unknown=3),
        lambda: assigned(cls(1)).x,
        lambda: hasattr(deleted(cls(1)), "x"),
        lambda: len({hash(one) for one in (cls(1), cls(1, 8))}),  # both live: an address is not used again
        lambda: len({cls(1), cls(1, 8), cls(2)}),
        lambda: repr(dataclasses.replace(cls(1), x=5)),
        lambda: dataclasses.asdict(cls(1)),
        lambda: dataclasses.astuple(cls(1)),
        lambda: [field.name for field in dataclasses.fields(cls)],
        lambda: cls.__match_args__,
        lambda: repr(copy.copy(cls(1, 2, ["a"]))),
        lambda: repr(copy.deepcopy(cls(1, 2, ["a"]))),
        lambda: copy.copy(one := cls(1, 2, ["a"])).names is one.names,
        lambda: hasattr(cls(1), "__dict__"),
        lambda: cls.__hash__ is None,
    ]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("number", range(len(acts(int))))
def test_it_does_what_the_original_does(options: dict[str, bool], number: int) -> None:
    original, lazy = both(options, point)
    wanted = outcome(acts(original)[number])
    assert outcome(acts(lazy)[number]) == wanted, "at first use"
    assert outcome(acts(lazy)[number]) == wanted, "compiled"


def of_its_own() -> type:
    class Own:
        """A class with methods that must stay."""

        x: int

        def __post_init__(self) -> None:
            object.__setattr__(self, "x", self.x + 1)

        def __eq__(self, other: object) -> bool:
            return isinstance(other, str)

        def __hash__(self) -> int:
            return 5

        def __repr__(self) -> str:
            return f"own {self.x}"

    return Own


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_methods_of_the_class_stay(options: dict[str, bool]) -> None:
    for cls in both(options, of_its_own):
        assert (repr(cls(1)), cls(1) == "equal", cls(1) == cls(1), hash(cls(1))) == ("own 2", True, False, 5)


@lazy_dataclass(frozen=True, slots=True)
class Base:
    """A class at module level, which pickle finds."""

    x: int
    text: str = "t"


@lazy_dataclass(frozen=True, slots=True)
class Derived(Base):
    """A class with fields of two."""

    y: int = 3


class Plain(Base):
    """A subclass that is not a dataclass."""


def test_classes_can_be_derived_and_pickled() -> None:
    one = Derived(1, y=4)
    assert repr(one) == "Derived(x=1, text='t', y=4)"
    assert pickle.loads(pickle.dumps(one)) == one != Derived(1)
    assert one != Base(1)
    assert Plain(1) == Plain(1) != Base(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        Plain(1).x = 2  # type: ignore[misc]  # it is frozen


def test_threads_may_use_a_class_first_at_the_same_time() -> None:
    for _ in range(20):
        _, cls = both({"frozen": True, "slots": True}, point)
        barrier = threading.Barrier(4)
        found: list[Any] = []

        def use(cls: Any = cls, barrier: threading.Barrier = barrier, found: list[Any] = found) -> None:
            barrier.wait()
            found.append((repr(cls(1)), cls(1) == cls(1), cls(1) == cls(2)))

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 4
        assert len(set(found)) == 1
