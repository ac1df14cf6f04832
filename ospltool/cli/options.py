"""Groups of options: a dataclass for what belongs together, used by every command that has it.

The fields of a group are declared as the parameters of a command are. A command takes a keyword parameter of
the class; `grouped` shows Typer the fields in its place, so that they stand there in the help, and makes the
instance when the command runs.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command for Typer, in which each group of options is the options themselves."""
    hints = typing.get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if dataclasses.is_dataclass(kind)}
    parameters: list[inspect.Parameter] = []
    for each in inspect.signature(command).parameters.values():
        if each.name not in groups:
            parameters.append(each.replace(annotation=hints[each.name]))
            continue
        own = typing.get_type_hints(groups[each.name], include_extras=True)
        parameters += [
            inspect.Parameter(one.name, each.KEYWORD_ONLY, default=one.default, annotation=own[one.name])
            for one in dataclasses.fields(groups[each.name])
        ]

    @functools.wraps(command)
    def flat(**given: Any) -> None:
        made = {
            name: kind(**{one.name: given.pop(one.name) for one in dataclasses.fields(kind)})
            for name, kind in groups.items()
        }
        command(**given, **made)

    keyword = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    flat.__signature__ = inspect.Signature(keyword)  # type: ignore[attr-defined]  # what Typer reads
    flat.__annotations__ = {each.name: each.annotation for each in keyword}
    return flat
