"""Code that runs on something else than asyncio and OS threads: gevent, eventlet, trio.

gevent and eventlet replace ``threading``: a thread is then a greenlet of its maker's OS thread.
asyncio knows one running loop per OS thread, so a loop in a greenlet seems to run in all of them.
Windlass's own loop therefore gets a real thread, and greenlets wait for it without stopping others.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any, Literal, TypeVar

from windlass.errors import WrongEventLoop

__all__ = [
    "GreenExecutor",
    "green_threads",
    "native_lock",
    "on_trio",
    "refuse_eventlet",
    "refuse_green_files",
    "run_native",
    "running_loop",
    "wait_green",
]

R = TypeVar("R")


def green_threads() -> Literal["gevent", "eventlet"] | None:
    """Return the library that has replaced the threads of this process, if one has."""
    monkey: Any = sys.modules.get("gevent.monkey")
    if monkey is not None and monkey.is_module_patched("threading"):
        return "gevent"
    patcher: Any = sys.modules.get("eventlet.patcher")
    if patcher is not None and patcher.is_monkey_patched("thread"):
        return "eventlet"
    return None


def refuse_eventlet() -> None:
    """Raise WrongEventLoop where eventlet has replaced the threads."""
    if green_threads() == "eventlet":
        message = (
            "Blocking calls do not work where eventlet has replaced the threads. Use gevent "
            "(gunicorn -k gevent) or threads (gunicorn -k gthread) instead; eventlet is deprecated."
        )
        raise WrongEventLoop(message)


def refuse_green_files() -> None:
    """Raise WrongEventLoop where SQLite's threads would be greenlets."""
    library = green_threads()
    if library is not None:
        message = (
            f"sqlite:// does not work where {library} has replaced the threads: a write would stop "
            f"all greenlets. Use postgresql:// or redis:// with gevent, or keep the file and serve "
            f"with threads (gunicorn -k gthread)."
        )
        raise WrongEventLoop(message)


# --- trio -----------------------------------------------------------------------------------


def on_trio() -> bool:
    """Return whether trio runs this code."""
    trio: Any = sys.modules.get("trio")
    if trio is None:
        return False
    try:
        trio.lowlevel.current_task()
    except (AttributeError, RuntimeError):
        return False
    return True


def running_loop() -> asyncio.AbstractEventLoop:
    """asyncio's running loop, or WrongEventLoop with what to do instead."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        pass
    if on_trio():
        message = (
            "Windlass runs on asyncio, and trio runs this code. Call the blocking form on a "
            "thread: `await trio.to_thread.run_sync(task.enqueue_sync, ...)`; for everything else "
            "`await trio.to_thread.run_sync(lambda: app.blocking.run(...))`."
        )
    else:
        message = (
            "No asyncio event loop runs here. Await this in a coroutine that asyncio runs "
            "(asyncio.run), or use the blocking form: task.enqueue_sync(...) or "
            "app.blocking.run(...)."
        )
    raise WrongEventLoop(message)


# --- gevent ---------------------------------------------------------------------------------


def native_lock() -> threading.Lock:
    """Return a lock between OS threads, under gevent too. No greenlet may wait for anything else
    while it holds one: the others of its thread could not run.
    """
    if green_threads() != "gevent":
        return threading.Lock()
    made: threading.Lock = _gevent("monkey").get_original("_thread", "allocate_lock")()
    return made


def run_native(target: Callable[[], None]) -> None:
    """Run ``target`` on an OS thread under gevent. It may use all of the patched library: its
    greenlets are of that thread.
    """

    def run() -> None:
        try:
            target()
        finally:
            _gevent().get_hub().destroy()

    _gevent("monkey").get_original("_thread", "start_new_thread")(run, ())


class GreenExecutor(ThreadPoolExecutor):
    """Runs what an event loop gives to threads, such as name look-ups, as greenlets of its thread.

    Python waits for the threads of an ordinary pool at its exit; these would be greenlets of a
    thread that has already ended.
    """

    def submit(self, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> Future[R]:
        """Start ``fn`` when the loop next waits."""
        future: Future[R] = Future()

        def run() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 -- handed to the caller
                future.set_exception(error)

        _gevent().spawn(run)
        return future


def wait_green(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, R]) -> R:
    """Run ``work`` on ``loop``, in another OS thread, while the other greenlets of this one run."""
    done = _gevent("event").Event()
    watcher = _gevent().get_hub().loop.async_()
    ended: list[asyncio.Task[R]] = []

    def arrived() -> None:
        watcher.stop()
        watcher.close()
        done.set()

    def finish(task: asyncio.Task[R]) -> None:
        ended.append(task)
        watcher.send()  # the one call that a hub takes from other threads

    def begin() -> None:
        loop.create_task(work).add_done_callback(finish)

    # Started before anything can send. It ends with the answer, even if this greenlet is gone.
    watcher.start(arrived)
    try:
        loop.call_soon_threadsafe(begin)
    except BaseException:
        arrived()
        raise
    done.wait()
    if ended[0].cancelled():
        raise CancelledError
    return ended[0].result()


def _gevent(part: str | None = None) -> Any:
    """gevent or a module of it; it has been imported, or nothing would be patched."""
    return __import__("gevent" if part is None else f"gevent.{part}", fromlist=["x"])
