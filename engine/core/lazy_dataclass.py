"""Dataclasses whose methods are compiled at their first use.

`dataclasses.dataclass` compiles five methods for each class, which takes 0.4 ms. A node has 240 such classes
and uses a third of them: a third of the time of its imports went there. Classes made here are the same, but
for `__dataclass_params__`, and frozen instances are made a little faster. For `order` and `InitVar`, which
are not supported, take the original.
"""

from __future__ import annotations

import dataclasses
import reprlib
import types
from typing import TYPE_CHECKING, Any

__all__ = ["lazy_dataclass"]

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from dataclasses import dataclass as lazy_dataclass

    _Method = Callable[..., Any]
else:

    def lazy_dataclass(
        *, eq: bool = True, frozen: bool = False, slots: bool = False
    ) -> Callable[[type], type]:
        """Make a dataclass; the options are those of `dataclasses.dataclass`."""

        def decorate(cls: type) -> type:
            own = dict(cls.__dict__)
            made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
            fields = dataclasses.fields(made)
            compared = [field.name for field in fields if field.compare]
            hashed = [field.name for field in fields if (field.compare if field.hash is None else field.hash)]
            methods = {"__repr__": _repr, "__init__": _later(made, "__init__", _init, fields, frozen)}
            has_hash = own.get("__hash__") is not None
            if eq:
                methods["__eq__"] = _later(made, "__eq__", _eq, compared)
                if not has_hash:
                    own.pop("__hash__", None)
                    methods["__hash__"] = _later(made, "__hash__", _hash, hashed) if frozen else None
            if frozen:
                methods |= {"__setattr__": _refuse_set(made), "__delattr__": _refuse_delete(made)}
                if slots:
                    methods |= {"__getstate__": _state, "__setstate__": _set_state}
            for name, method in methods.items():
                if name not in own:
                    setattr(made, name, method)
            return made

        return decorate


def _later(cls: type, name: str, make: Callable[..., _Method], *arguments: object) -> _Method:
    """Return a method that puts the real one in its own place when it is called first."""

    def method(self: object, /, *given: object, **named: object) -> object:
        real = make(*arguments, cls=cls)
        real.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, real)
        return real(self, *given, **named)

    return method


def _compiled(name: str, parameters: str, lines: Sequence[str], scope: dict[str, Any]) -> _Method:
    body = "\n ".join(lines)
    exec(f"def {name}({parameters}):\n {body}", scope)  # noqa: S102  # as dataclasses does, of names of fields
    made: _Method = scope[name]
    return made


def _init(fields: Sequence[dataclasses.Field[Any]], frozen: bool, cls: type) -> _Method:
    scope: dict[str, Any] = {"_missing": dataclasses.MISSING, "_set": object.__setattr__}
    plain, named, lines = ["self"], ["*"], []
    for field in fields:
        name = value = field.name
        scope[f"_default_{name}"] = field.default
        has_factory = field.default_factory is not dataclasses.MISSING
        if has_factory:
            scope[f"_default_{name}"] = dataclasses.MISSING
            scope[f"_factory_{name}"] = field.default_factory
            value = (
                f"_factory_{name}() if {name} is _missing else {name}" if field.init else f"_factory_{name}()"
            )
        elif not field.init:
            if field.default is dataclasses.MISSING:
                continue
            value = f"_default_{name}"
        if field.init:
            has_default = has_factory or field.default is not dataclasses.MISSING
            (named if field.kw_only else plain).append(f"{name}=_default_{name}" if has_default else name)
        if not frozen:
            lines.append(f"self.{name} = {value}")
        elif isinstance(slot := getattr(cls, name, None), types.MemberDescriptorType):
            scope[f"_set_{name}"] = slot.__set__
            lines.append(f"_set_{name}(self, {value})")
        else:
            lines.append(f"_set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    return _compiled("__init__", ", ".join(plain + named * (len(named) > 1)), lines or ["pass"], scope)


def _values(owner: str, names: Sequence[str]) -> str:
    return "(" + "".join(f"{owner}.{name}, " for name in names) + ")"


def _eq(names: Sequence[str], cls: type) -> _Method:
    lines = [
        "if other.__class__ is not self.__class__: return NotImplemented",
        f"return {_values('self', names)} == {_values('other', names)}",
    ]
    return _compiled("__eq__", "self, other", lines, {})


def _hash(names: Sequence[str], cls: type) -> _Method:
    return _compiled("__hash__", "self", [f"return hash({_values('self', names)})"], {})


@reprlib.recursive_repr()
def _repr(self: Any) -> str:
    shown = (
        f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr
    )
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _names(cls: Any) -> frozenset[str]:
    return frozenset(field.name for field in dataclasses.fields(cls))


def _refuse_set(cls: Any) -> _Method:
    def __setattr__(self: object, name: str, value: object) -> None:  # noqa: N807  # becomes the method
        if type(self) is cls or name in _names(cls):
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    return __setattr__


def _refuse_delete(cls: Any) -> _Method:
    def __delattr__(self: object, name: str) -> None:  # noqa: N807  # becomes the method
        if type(self) is cls or name in _names(cls):
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return __delattr__


def _state(self: Any) -> list[object]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: Sequence[object]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
