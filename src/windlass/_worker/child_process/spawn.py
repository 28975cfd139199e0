"""Starting a child process, and knowing that one is one."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import socket
import subprocess
import sys

from windlass.errors import ConfigError

__all__ = ["exit_with_descendants", "prepare_child", "refuse_in_child", "spawn"]

_MAIN = "windlass._cli.worker_process.child_main"
"""Where a child begins. A name, because this layer knows neither the app nor its loading."""
_PR_SET_PDEATHSIG = 1


def spawn(line: socket.socket) -> subprocess.Popen[bytes]:
    """Start a child that talks over ``line``, by exec: a fork would copy locks that other threads
    hold, and connections that are not its own.
    """
    return subprocess.Popen(
        [sys.executable, "-m", _MAIN, str(line.fileno())],
        stdin=subprocess.DEVNULL,
        pass_fds=[line.fileno()],
        # A separate session: a Ctrl+C in the terminal is for the worker, which decides about its
        # jobs; and processes that a handler started can be ended together with it.
        start_new_session=True,
    )


def prepare_child() -> None:
    """Make a child die with the worker, and leave signals to it. Called first."""
    if sys.platform == "linux":
        # The line's end says the same, but not to code that never lets go of the interpreter.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    faulthandler.enable()  # the stack of a crash in native code goes to standard error
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # Service managers signal every process of a service. The worker hears it, too, and lets
        # its jobs end. Not SIG_IGN: programs that a handler starts would inherit that.
        signal.signal(number, _left_to_the_worker)


def _left_to_the_worker(_number: int, _frame: object) -> None:
    pass


def refuse_in_child() -> None:
    """Refuse a worker in a child: it would start children, and so on."""
    begun_as = getattr(sys.modules.get("__main__"), "__spec__", None)
    if begun_as is not None and begun_as.name == _MAIN:
        message = (
            "importing this module starts a worker, and a child process of a worker has just "
            'imported it. Put what starts the worker under `if __name__ == "__main__":`'
        )
        raise ConfigError(message)


def exit_with_descendants() -> None:
    """End this child, and what its handlers have started, without another word."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
