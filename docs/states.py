"""Makes docs/internals/states.md from the transition tables themselves: `python -m docs.states`.

A test fails when the page is not what this module makes of the tables.
"""

from __future__ import annotations

import itertools
import pathlib
from typing import TYPE_CHECKING

from engine.core.states import PHASES, SERVICE_ORDER, Phase, ServiceState, Trigger, service_state
from engine.dataset.instance_states import MOVES, InstanceEvent, InstanceState

if TYPE_CHECKING:
    import enum
    from collections.abc import Iterable

PAGE = pathlib.Path(__file__).parent / "internals" / "states.md"


def page() -> str:
    """The whole page."""
    return "\n".join(
        [
            "# State machines",
            "",
            "<!-- Made by `python -m docs.states` from the tables of engine.core and engine.dataset. -->",
            "",
            "To look up which state follows which: these tables have every transition; no other can happen.",
            "",
            *_service(),
            *_name_space(),
            *_instance(),
        ]
    )


def _service() -> list[str]:
    causes: dict[ServiceState, list[str]] = {}
    for phase in Phase:
        causes.setdefault(service_state([phase]), []).append(phase)
    rows = [(state, ", ".join(causes.get(state, ["-"]))) for state in SERVICE_ORDER]
    steps = [(str(a), str(b), "") for a, b in itertools.pairwise(SERVICE_ORDER)]
    return [
        "## The service",
        "",
        "The state in d_status and in every trace line. It only moves forward, with the slowest name-space.",
        "States without a phase are passed at once, or belong to start and end.",
        "",
        *_diagram(ServiceState.INIT, steps),
        *_table(("State", "while a name-space is in phase"), rows),
    ]


def _name_space() -> list[str]:
    steps = [(str(a), str(b), str(trigger)) for a in Phase for trigger, b in PHASES[a].items() if a is not b]
    rows = [
        (phase, trigger, PHASES[phase][trigger])
        for phase in Phase
        for trigger in Trigger
        if trigger in PHASES[phase]
    ]
    return [
        "## A name-space on a node",
        "",
        "Each name-space has its own phase, so that one does not wait for another.",
        "Transitions into the same phase are in the table only.",
        "",
        *_diagram(Phase.DISCOVER, steps),
        *_table(("Phase", "when", "then"), rows),
    ]


def _instance() -> list[str]:
    merged: dict[tuple[str, str], list[str]] = {}
    for state, moves in MOVES.items():
        for change, move in moves.items():
            if move.state is not state:
                merged.setdefault((state, move.state), []).append(change)
    steps = [(a, b, " / ".join(changes)) for (a, b), changes in merged.items()]
    rows = [
        (
            state,
            change,
            MOVES[state][change].state,
            MOVES[state][change].disposed_generations or "",
            MOVES[state][change].no_writers_generations or "",
        )
        for state in InstanceState
        for change in InstanceEvent
    ]
    header = ("State", "when", "then", "disposed generations", "no-writers generations")
    return [
        "## An instance in a reader",
        "",
        "`DurableReader` of the [client library](../client.md) shows instances in these states; ordinary",
        "[readers](../readers.md) follow their own DDS. A change is a fact if a writer announced it, and",
        "derived if it follows from the loss of a writer. The return of that writer reverts the latter.",
        "",
        *_diagram(InstanceState.NONE, steps),
        *_table(header, rows),
    ]


def _diagram(start: enum.StrEnum, steps: Iterable[tuple[str, str, str]]) -> list[str]:
    lines = [f"    {a} --> {b}" + (f": {label}" if label else "") for a, b, label in steps]
    return ["```mermaid", "stateDiagram-v2", f"    [*] --> {start}", *lines, "```", ""]


def _table(header: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> list[str]:
    lines = [header, tuple("---" for _ in header), *rows]
    return [*("| " + " | ".join(map(str, line)) + " |" for line in lines), ""]


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
