"""The one place from which the console changes anything: it asks first, and shows the command."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from ospltool.live.nodes import Node
from tui import text
from tui.cells import Line, Span, Tone
from tui.commands import find_node
from tui.console import Command, CommandFault, Console
from tui.operator import Operation, OperationFault, Operator
from tui.widgets.lines import Lines

WIDTH: Final = 68


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
        """Return one block of text."""
        yield Lines()

    def on_mount(self) -> None:
        """Fit the height to the text."""
        lines = question_lines(self._operation)
        widget = self.query_one(Lines)
        widget.styles.height = len(lines) + 2
        widget.show(lines)

    def action_answer(self, answer: bool) -> None:
        """Close with the answer."""
        self.dismiss(answer)


def question_lines(operation: Operation) -> list[Line]:
    """Return the question, what it means, the command, and the keys."""
    lines: list[Line] = [(Span(operation.title, Tone.STRONG),), ()]
    for sentence in operation.consequences:
        lines += [(Span(part),) for part in text.wrap(sentence, WIDTH, 3)]
    lines += [(), (Span("the same as", Tone.DIM),)]
    lines += [(Span(f"  {part}"),) for part in text.wrap(operation.shell_line, WIDTH - 2, 4)]
    lines += [(), (Span("y", Tone.ACCENT), Span(" does it, "), Span("n", Tone.ACCENT), Span(" does not"))]
    return lines


def commands() -> tuple[Command, ...]:
    """Return the commands that only exist with `--operate`."""

    def command(verb: str, help_: str, make: Callable[[Operator, Node], Operation]) -> Command:
        return Command(verb, "[NODE]", help_, lambda app, words: _ask(app, verb, make, words))

    return (
        command("stop", "end a node in order, after a question", Operator.stop),
        command("restart", "end a node in order and start it again, after a question", Operator.restart),
        command("start", "start a node that is gone, after a question", Operator.start),
    )


def _ask(app: Console, verb: str, make: Callable[[Operator, Node], Operation], words: list[str]) -> None:
    operator = app.operator
    if app.systems.past is not None:
        raise CommandFault("this is the past: L returns to live")
    if operator is None or app.feed.mode != "live":
        raise CommandFault("this console only watches; start it with --operate")
    node = app.model.nodes.get(find_node(app, words[0]) if words else app.under_cursor().node)
    if node is None:
        raise CommandFault(f"{verb} which node?")
    try:
        operation = make(operator, node)
    except OperationFault as fault:
        raise CommandFault(str(fault)) from fault

    def answered(yes: bool | None) -> None:
        if yes:
            app.run_worker(carry_out, thread=True, exit_on_error=False)

    def carry_out() -> None:
        app.call_from_thread(app.say, f"{operation.shell_line}: under way")
        said = operator.carry_out(operation)
        app.call_from_thread(app.say, f"{operation.shell_line}: {said}")

    app.push_screen(AskScreen(operation), answered)
