"""A process that has imported everything and makes others by forking.

Starting Python and importing the package takes half a second, a fork takes a few milliseconds:
that is the difference between ten kills a minute and ten a second. It opens no database and
starts no thread, so a fork of it is as good as a fresh process.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NoReturn

_PRELOADED = (
    "uvloop",
    "windlass._cli.worker_process.messages",
    "windlass._cli.worker_process.process",
    "windlass._cli.commands.worker",
    "windlass._storage.sqlite",
    "windlass._storage.postgres",
    "windlass._storage.redis",
    "tests.crash.harness.roles",
)
_PR_SET_PDEATHSIG = 1


class Zygote:
    """Takes orders, one JSON object per line, and reports what becomes of its children."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._orders = b""
        self._living: set[int] = set()
        self._woken, self._waker = socket.socketpair()
        self._selector = selectors.DefaultSelector()

    def run(self) -> None:
        """Until the other end of the line is closed; then everything that was started ends."""
        for end in (self._woken, self._waker):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        self._selector.register(self._line, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._tell("ready", os.getpid())
        while self._obey():
            self._selector.select()
            self._look_after_children()
        for pid in self._living:
            os.kill(pid, signal.SIGKILL)

    def _obey(self) -> bool:
        """Carry out what was ordered; False when nobody is left to give orders."""
        with suppress(BlockingIOError):
            received = self._line.recv(65536, socket.MSG_DONTWAIT)
            if not received:
                return False
            self._orders += received
        *orders, self._orders = self._orders.split(b"\n")
        for order in orders:
            self._carry_out(json.loads(order))
        return True

    def _carry_out(self, order: Mapping[str, Any]) -> None:
        if "signal" in order:
            # Only what has not been waited for: its number cannot be anybody else's.
            if order["pid"] in self._living:
                os.kill(order["pid"], order["signal"])
            return
        pid = os.fork()
        if pid == 0:
            self._become(order)
        self._living.add(pid)
        self._tell("started", pid)

    def _look_after_children(self) -> None:
        with suppress(BlockingIOError):
            while self._woken.recv(4096):
                pass
        flags = os.WNOHANG | os.WUNTRACED | os.WCONTINUED
        while self._living:
            pid, state = os.waitpid(-1, flags)
            if pid == 0:
                return
            if os.WIFSTOPPED(state):
                self._tell("stopped", pid)
            elif os.WIFCONTINUED(state):
                self._tell("continued", pid)
            else:
                self._living.discard(pid)
                self._tell("ended", pid, code=os.waitstatus_to_exitcode(state))

    def _tell(self, what: str, pid: int, **more: int) -> None:
        self._line.sendall(json.dumps({"what": what, "pid": pid, **more}).encode() + b"\n")

    # --- in the child -------------------------------------------------------------------------

    def _become(self, order: Mapping[str, Any]) -> NoReturn:
        """Play a role to its end. Nothing of the zygote is left but what it has imported."""
        code = 70
        try:
            os.setsid()
            _die_with_parent()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._selector.close()
            for end in (self._line, self._woken, self._waker):
                end.close()
            _write_to(order["log"])
            os.environ.update(order["env"])
            role = getattr(importlib.import_module("tests.crash.harness.roles"), order["role"])
            code = role(**order["given"]) or 0
        except BaseException:  # noqa: BLE001 -- it must not return into the zygote's loop
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def _die_with_parent() -> None:
    """Where the kernel can: nothing is left behind even if the zygote itself is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _write_to(path: str) -> None:
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number in (1, 2):
        os.dup2(log, number)
    os.close(log)
    # Its last words must be in the file when it is killed.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def main() -> None:
    for module in _PRELOADED:
        with suppress(ImportError):  # uvloop is an extra
            importlib.import_module(module)
    gc.freeze()  # what is shared stays shared
    Zygote(socket.socket(fileno=int(sys.argv[1]))).run()


if __name__ == "__main__":
    main()
