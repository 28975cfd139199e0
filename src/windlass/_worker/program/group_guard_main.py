"""A script that ends process groups once its worker is gone: started by its path, alone.

Each line of standard input adds a group, ``+ 4711``, or takes one away, ``- 4711``. Standard input
ends when the worker does, however it does.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress

__all__ = ["main"]


def main() -> None:
    """Read lines to their end, then end the groups that are left."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # Service managers send them to every process. The worker decides about its programs.
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        sign, _, number_text = line.partition(" ")
        if sign == "+":
            groups.add(int(number_text))
        else:
            groups.discard(int(number_text))
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
