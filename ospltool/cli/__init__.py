"""The command line: one thin module per verb. Heavy imports happen inside the command that needs them."""

from __future__ import annotations

import signal


def main() -> int:
    """Run the command of this process; Ctrl-C ends it without a traceback, whenever it comes."""
    is_heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not so after `nohup`
    if is_heard:  # nobody could catch KeyboardInterrupt during imports, and during the end of the process
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from ospltool.cli import app

    if is_heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    code = app.main()
    if is_heard:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return code
