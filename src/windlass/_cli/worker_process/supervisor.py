"""Keeps N worker processes alive. Imports no user code and opens no storage.

So it has nothing that can break: an app can only break the process of a child.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from types import FrameType

from windlass._cli.exit_codes import (
    COULD_NOT_START,
    COULD_NOT_STOP,
    IN_ORDER,
    OUTDATED,
    UNSTORED,
    WORN_OUT,
)
from windlass._cli.output.run_summary import RunSummary
from windlass._cli.output.terminal import Terminal, log_to
from windlass._cli.worker_process.signals import STOPPING, TOGETHER, signal_name
from windlass._cli.worker_process.supervised_child import (
    GIVE_UP_AFTER,
    SupervisedChild,
    exit_in_words,
)
from windlass._cli.worker_process.worker_options import WorkerOptions
from windlass._system.seams import monotonic
from windlass._version import __version__
from windlass._worker.worker import StopReason

__all__ = ["Supervisor", "supervise"]

log = logging.getLogger("windlass.supervisor")

_TICK = 0.25
_UPGRADED = 30.0
"""When a child that was too old for its storage is tried again: it may have been upgraded."""
_PATIENCE = 15.0
"""After a second signal children end by themselves within ten seconds; then they are ended."""


def supervise(plan: WorkerOptions, processes: int, *, owner: int | None = None) -> int:
    """Run ``processes`` workers until stopped. Return the exit code.

    ``owner``: a descriptor whose end means that our parent is dead, and we exit too.
    """
    terminal = Terminal()
    log_to(terminal, level=plan.log_level, form=plan.log_format)
    return Supervisor(plan, processes, terminal).run(owner)


class Supervisor:
    """One thread, one loop: signals, deaths, reports, starts."""

    def __init__(self, plan: WorkerOptions, processes: int, terminal: Terminal) -> None:
        """Make it; no child is started before `run`."""
        self._plan = plan
        self._terminal = terminal
        self._children = [SupervisedChild(number) for number in range(1, processes + 1)]
        self._selector = selectors.DefaultSelector()
        self._signals: list[int] = []
        self._stops = 0
        self._stopped_at = 0.0
        self._orphaned = False
        self._rushed_at: float | None = None
        self._code = IN_ORDER
        self._any_ready = False
        self._introduced = False
        self._done: Counter[str] = Counter()
        self._tally = RunSummary()

    def run(self, owner: int | None = None) -> int:
        """Supervise until every child has ended for good."""
        self._listen()
        if owner is not None:
            os.set_inheritable(owner, False)  # noqa: FBT003 -- the children have their own
            self._selector.register(owner, selectors.EVENT_READ, owner)
        log.info(
            "windlass %s: supervisor, pid %d, %d workers for %s",
            __version__,
            os.getpid(),
            len(self._children),
            self._plan.target,
        )
        while True:
            self._start_due()
            if not any(child.pid or child.due is not None for child in self._children):
                break
            for key, _ in self._selector.select(self._wait()):
                self._attend(key)
            self._obey()
            self._reap()
            self._show()
        self._terminal.show("")
        log.info("all workers have ended: %s", self._tally.last())
        return self._code

    # --- signals ---

    def _listen(self) -> None:
        """Signals wake the loop through a socket, so that none can fall between two looks."""
        wanted = {*STOPPING, signal.SIGCHLD, signal.SIGHUP, signal.SIGUSR1}
        signal.pthread_sigmask(signal.SIG_UNBLOCK, wanted)
        self._woken, waker = socket.socketpair()
        self._woken.settimeout(0)
        waker.settimeout(0)
        self._waker = waker
        for number in wanted:
            # Caught, all of them: as PID 1 a signal without a handler would not arrive at all,
            # and what is ignored would be ignored by the children too.
            signal.signal(number, self._arrived)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        self._selector.register(self._woken, selectors.EVENT_READ, None)

    def _arrived(self, number: int, _frame: FrameType | None) -> None:
        if number in {*STOPPING, signal.SIGUSR1}:
            self._signals.append(number)

    def _obey(self) -> None:
        while self._signals:
            number = self._signals.pop(0)
            if number == signal.SIGUSR1:
                self._ask_for_stacks()
                continue
            if self._stops and monotonic() - self._stopped_at < TOGETHER and not self._orphaned:
                continue  # the same request, sent to a process and to its group
            self._stops, self._stopped_at = self._stops + 1, monotonic()
            if self._stops == 1:
                log.info(
                    "%s: the workers take no new jobs and stop when their running jobs have "
                    "finished. Send it again to interrupt them.",
                    signal_name(number),
                )
            elif self._stops == 2:
                log.info("%s again: the workers interrupt their jobs", signal_name(number))
                self._rushed_at = monotonic()
        if self._stops:
            self._stop_all(min(self._stops, 2))

    def _ask_for_stacks(self) -> None:
        for child in self._alive():
            if child.pid is not None and child.ready_at is not None:
                os.kill(child.pid, signal.SIGUSR1)

    def _stop_all(self, times: int) -> None:
        for child in self._children:
            child.start_at(None)
            child.stop(times)
        if self._rushed_at is not None and monotonic() - self._rushed_at > _PATIENCE:
            self._rushed_at = None
            for child in self._alive():
                log.warning("worker %d (pid %d) did not stop: killed", child.number, child.pid)
                child.interrupt()

    # --- children ---

    def _alive(self) -> Iterator[SupervisedChild]:
        return (child for child in self._children if child.pid is not None)

    def _start_due(self) -> None:
        now = monotonic()
        for child in list(self._waiting()):
            if child.due is not None and child.due <= now:
                self._start(child, now)

    def _start(self, child: SupervisedChild, now: float) -> None:
        extra = ["--child-colour"] if self._terminal.colour else []
        if not self._introduced:
            extra.append("--child-introduce")
        child.start([*self._plan.arguments(), *extra], now, own_output=self._terminal.live)
        for end in (child.line, child.output):
            if end is not None:
                self._selector.register(end, selectors.EVENT_READ, child)
        log.debug("worker %d started as pid %d", child.number, child.pid)

    def _wait(self) -> float:
        """Return how long nothing needs to be done: at most a tick, and only up to the
        next start.
        """
        now = monotonic()
        dues = [child.due - now for child in self._waiting() if child.due is not None]
        return max(min([_TICK, *dues]), 0.0)

    def _waiting(self) -> Iterator[SupervisedChild]:
        """Return the children to start. All but the first wait until one was ready, so that an
        error of the app is reported once, not N times.
        """
        startable = self._children if self._any_ready else self._children[:1]
        return (child for child in startable if child.due is not None)

    def _attend(self, key: selectors.SelectorKey) -> None:
        match key.data:
            case SupervisedChild() as child:
                self._read(child)
            case None:
                with suppress(BlockingIOError):
                    while self._woken.recv(4096):
                        pass
            case _:
                if not os.read(key.fd, 4096):
                    self._selector.unregister(key.fileobj)
                    self._orphaned = True
                    self._signals += [signal.SIGTERM, signal.SIGTERM]

    def _read(self, child: SupervisedChild) -> None:
        child.read(monotonic())
        if child.ready_at is not None:
            self._any_ready = self._introduced = True
        self._print(child)

    def _print(self, child: SupervisedChild) -> None:
        if text := child.printed():
            self._terminal.write(text.decode(errors="replace"))

    def _reap(self) -> None:
        """Collect every dead process; as PID 1 also orphans."""
        while True:
            try:
                pid, state = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for child in self._children:
                if child.pid == pid:
                    self._record_exit(child, os.waitstatus_to_exitcode(state))
                    break

    def _record_exit(self, child: SupervisedChild, code: int) -> None:
        now = monotonic()
        pid = child.pid
        self._read(child)  # its last words
        child.ended(code)
        self._print(child)
        for end in (child.line, child.output):
            if end is not None:
                self._selector.unregister(end)
        child.close()
        self._done += child.counts
        what = f"worker {child.number} (pid {pid}) {exit_in_words(code)} after {child.lived(now)}"
        if self._stops:
            self._ended_while_stopping(child, code, what)
        elif child.reason == StopReason.EMPTY:
            log.info("%s: %s", what, child.left)
        elif child.reason == StopReason.ORDERED:
            log.info("%s: an operator stopped it, so it is not replaced", what)
        elif code == WORN_OUT and child.counts:
            log.info("%s; the next one starts now", what)
            child.start_at(now)
        elif code == OUTDATED:
            self._outdated(child, what, now)
        else:
            self._start_again(child, code, what, now)
        child.counts.clear()

    def _ended_while_stopping(self, child: SupervisedChild, code: int, what: str) -> None:
        log.info("%s", what)
        before_it_began = code == -signal.SIGTERM and child.ready_at is None
        if code in {IN_ORDER, WORN_OUT} or before_it_began:
            return
        if self._code in {IN_ORDER, UNSTORED}:  # a crash says more than an outage
            self._code = UNSTORED if code == UNSTORED else COULD_NOT_STOP

    def _start_again(self, child: SupervisedChild, code: int, what: str, now: float) -> None:
        pause = child.restarts.died(ready_for=child.ready_for(now))
        error = child.last_error or exit_in_words(code)
        if child.hopeless and not self._any_ready:
            # A wrong name does not get right by trying; once it was right, a deploy may be at it.
            self._give_up(f"worker {child.number} cannot start: {error}")
        elif child.restarts.hopeless:
            self._give_up(
                f"worker {child.number} died {GIVE_UP_AFTER} times in a row before it was ready, "
                f"the last time with: {error}"
            )
        else:
            why = f" ({child.last_error})" if child.last_error else ""
            log.warning("%s%s; restarting it in %g s", what, why, pause)
            child.start_at(now + pause)

    def _outdated(self, child: SupervisedChild, what: str, now: float) -> None:
        """Restart once: a newer Windlass changed the storage, and an upgrade may follow."""
        if child.ready_at is None:
            self._give_up(f"{what}: {child.last_error}", OUTDATED)
            return
        log.error(
            "%s: upgrade windlass. Restarting it once in %g s, in case that has been done",
            what,
            _UPGRADED,
        )
        child.start_at(now + _UPGRADED)

    def _give_up(self, why: str, code: int = COULD_NOT_START) -> None:
        log.error("giving up: %s", why)
        self._code = code
        self._stops = max(self._stops, 1)
        self._stop_all(1)

    # --- the summary ---

    def _show(self) -> None:
        counts = self._done.copy()
        running = slots = 0
        for child in self._alive():
            counts += child.counts
            running += child.running
            slots += child.slots
        self._tally.take(counts, running=running, slots=slots)
        if not self._plan.summary:
            return
        alive = sum(child.ready_at is not None for child in self._alive())
        workers = "1 worker" if alive == 1 else f"{alive} workers"
        self._terminal.show(f"{workers} · {self._tally.live()}")
        if not self._terminal.live and (news := self._tally.news()):
            log.info("%s", news)
