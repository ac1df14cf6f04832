"""Processes that share the work of a command, and end with it."""

from __future__ import annotations

import concurrent.futures
import signal
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


class WorkerProcesses(concurrent.futures.ProcessPoolExecutor):
    """A pool of processes that Ctrl-C ends at once and without a word.

    An exception in its context, as at the early end of a generator, kills the workers: nobody wants their
    results any more. Use `submit`, not `map`, which cancels what waits: at that the pool's own thread fails
    when the workers are gone (CPython 3.11).
    """

    def submit(
        self, fn: Callable[_Given, _Result], /, *args: _Given.args, **kwargs: _Given.kwargs
    ) -> concurrent.futures.Future[_Result]:
        """Hand work to the workers; this starts them.

        Args:
            fn: a function that the workers can import.
            args: its arguments.
            kwargs: its named arguments.
        """
        # A terminal sends Ctrl-C to all processes; workers inherit that they do not hear it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().submit(fn, *args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        """Wait for the workers, or after an exception kill them."""
        if kind is not None:
            for process in list((self._processes or {}).values()):
                process.kill()
        return super().__exit__(kind, value, traceback)
