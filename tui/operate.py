"""The one place from which the console changes anything: it asks first, and shows the command."""

from __future__ import annotations

import dataclasses
import socket
import subprocess
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from ospltool.live.model import Node
from tui import text
from tui.cells import Line, Span, Tone
from tui.commands import Command, CommandFault, find_node
from tui.widgets.lines import Lines

if TYPE_CHECKING:
    from tui.app import ConsoleApp

TIMEOUT_S: Final = 120.0


@dataclasses.dataclass(frozen=True, slots=True)
class Operation:
    """Something that will be done: `command` is what a person would type for it."""

    title: str
    consequences: tuple[str, ...]
    command: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Operator:
    """How commands are carried out: `program` stands for the word `ospltool`."""

    program: tuple[str, ...]
    host: str = dataclasses.field(default_factory=socket.gethostname)

    def stop(self, node: Node) -> Operation:
        """End a node in order.

        Raises:
            CommandFault: the node is not on this machine.
        """
        self._require_here(node)
        snapshot = node.snapshot
        held = [space.name for space in snapshot.name_spaces if space.master == node.id]
        return Operation(
            title=f"Stop node {snapshot.name}?",
            consequences=(
                f"It is pid {snapshot.pid} on {snapshot.host}, in state {snapshot.state}.",
                f"It is master of {', '.join(held)}." if held else "It is master of nothing.",
                "It finishes what it does, writes what it holds to its store, and ends.",
            ),
            command=("ospltool", "stop", snapshot.configuration),
        )

    def start(self, node: Node) -> Operation:
        """Start a node that is gone.

        Raises:
            CommandFault: the node was not on this machine, or it is there.
        """
        self._require_here(node)
        snapshot = node.snapshot
        if not node.gone_ns:
            raise CommandFault(f"{snapshot.name} is running")
        return Operation(
            title=f"Start node {snapshot.name}?",
            consequences=(f"It last ran as pid {snapshot.pid} on {snapshot.host}.",),
            command=("ospltool", "start", snapshot.configuration),
        )

    def carry_out(self, operation: Operation) -> str:
        """Run the command and wait; what it said last, and how it ended."""
        command = [*self.program, *operation.command[1:]]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{' '.join(operation.command)}: {error}"
        said = (ended.stderr or ended.stdout).strip().splitlines()
        return f"exit code {ended.returncode}: {said[-1] if said else 'nothing said'}"

    def _require_here(self, node: Node) -> None:
        if node.snapshot.host != self.host:
            raise CommandFault(f"{node.snapshot.name} is on {node.snapshot.host}, not on this machine")


class AskScreen(ModalScreen[bool]):
    """Says what will be done and by which command; only `y` does it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes", show=False),
        Binding("n,escape,q,enter", "answer(False)", "no", show=False),
    ]

    def __init__(self, operation: Operation) -> None:
        super().__init__()
        self._operation = operation

    def compose(self) -> ComposeResult:
        """One block of text."""
        yield Lines()

    def on_mount(self) -> None:
        """As high as the text."""
        lines = question_lines(self._operation)
        widget = self.query_one(Lines)
        widget.styles.height = len(lines) + 2
        widget.show(lines)

    def action_answer(self, answer: bool) -> None:
        """Close with the answer."""
        self.dismiss(answer)


def question_lines(operation: Operation) -> list[Line]:
    """The question, what it means, the command, and the keys."""
    lines: list[Line] = [(Span(operation.title, Tone.STRONG),), ()]
    for sentence in operation.consequences:
        lines += [(Span(part),) for part in text.wrap(sentence, 66, 3)]
    lines += [(), (Span("the same as: ", Tone.DIM), Span(shell_line(operation.command)))]
    lines += [(), (Span("y", Tone.ACCENT), Span(" does it, "), Span("n", Tone.ACCENT), Span(" does not"))]
    return lines


def shell_line(words: Sequence[str]) -> str:
    """The words as they are typed."""
    import shlex  # only questions need it

    return shlex.join(words)


def commands() -> tuple[Command, ...]:
    """The commands that only exist with `--operate`."""
    return (
        Command("stop", "NODE", "end a node in order, after a question", lambda app, w: _ask(app, "stop", w)),
        Command("start", "NODE", "start a node that is gone", lambda app, w: _ask(app, "start", w)),
    )


def _ask(app: ConsoleApp, verb: str, words: list[str]) -> None:
    operator = app.operator
    if operator is None or app.feed.mode != "live":
        raise CommandFault("this console only watches; start it with --operate")
    if not words:
        raise CommandFault(f"{verb} which node?")
    node = app.model.nodes[find_node(app, words[0])]
    operation = operator.stop(node) if verb == "stop" else operator.start(node)

    def answered(yes: bool | None) -> None:
        if yes:
            app.run_worker(carry_out, thread=True, exit_on_error=False)

    def carry_out() -> None:
        app.call_from_thread(app.say, f"{operation.title.rstrip('?')}: under way")
        said = operator.carry_out(operation)
        app.call_from_thread(app.say, f"{shell_line(operation.command)}: {said}")

    app.push_screen(AskScreen(operation), answered)
