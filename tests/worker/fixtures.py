"""Workers to test: stepped by hand, in virtual time, or for real, over stores that misbehave."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any, Final, TypeVar, cast

import msgspec

from tests.simulation.framework.loop import SimLoop, run
from windlass import Windlass
from windlass._app.parts import parts_of
from windlass._core.job.job import Attempt, JobRecord
from windlass._core.job.outcome import SOLO_AFTER
from windlass._core.job.state import Verb
from windlass._core.job.transition import Transition
from windlass._storage.protocol.jobs import Want
from windlass._storage.protocol.storage import Storage
from windlass._storage.protocol.wakeups import Topic, WorkHints
from windlass._storage.protocol.workers import WorkerStart
from windlass._storage.shared.heartbeat_channel import SharedHeartbeatChannel
from windlass._storage.shared.subscribers import SharedWorkHints
from windlass._system.seams import Seams
from windlass._tasks.task import Call
from windlass._worker.engine import Engine
from windlass._worker.periodic import BackgroundLoop, Main
from windlass._worker.worker import StopReason, Worker
from windlass.errors import StorageUnavailable
from windlass.testing._clock import LoopClock, VirtualClock

T = TypeVar("T")
Hook = Callable[..., Awaitable[Any]]

MIDDLE = Seams(chance=lambda: 0.5)
"""Chance that bends nothing: a spread of a quarter either way is exactly none."""


# --- stores that misbehave ---------------------------------------------------------------------


class Tampered:
    """A storage seen through a glass: calls are counted, and some go through hooks first.

    A hook gets the real operation and the arguments: it may call it, or not, or twice.
    """

    def __init__(self, inner: Storage, *, deaf: bool = False) -> None:
        self.inner = inner
        self.hooks: dict[str, Hook] = {}
        self.calls: Counter[str] = Counter()
        self.down = False
        """While set, nothing can be reached."""
        self.deaf = deaf
        """No hint ever arrives."""
        self.exact: ExactHints | None = None
        """The hints of its worker, if they come by hand."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if name == "wakeups":
            return _Deaf(self.exact) if self.deaf else found
        return found if callable(found) or isinstance(found, bool) else _Part(self, name, found)

    @property
    def storage(self) -> Storage:
        """Itself, as what it stands for."""
        return cast("Storage", self)

    def on(self, operation: str, hook: Hook) -> None:
        """Let ``hook`` answer for ``operation``, such as ``jobs.claim``."""
        self.hooks[operation] = hook


class _Part:
    def __init__(self, whole: Tampered, name: str, inner: object) -> None:
        self._whole = whole
        self._name = name
        self._inner = inner

    def pulse(self) -> SharedHeartbeatChannel:
        return SharedHeartbeatChannel(cast("Any", self))

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        return functools.partial(self._call, f"{self._name}.{name}", method)

    async def _call(self, operation: str, method: Hook, *args: Any, **options: Any) -> Any:
        self._whole.calls[operation] += 1
        if self._whole.down:
            raise StorageUnavailable("the store is away")
        hook = self._whole.hooks.get(operation)
        if hook is not None:
            return await hook(method, *args, **options)
        return await method(*args, **options)


class ExactHints:
    """Hints that a test gives one worker by hand."""

    exact: Final = True

    def __init__(self) -> None:
        self.give: Callable[[], bool] = lambda: False
        """Give a hint; the answer is the worker's."""
        self.wanted: Collection[str] = ()
        self.about: Collection[str] = ()

    def want(self, queues: Collection[str]) -> None:
        self.wanted = queues

    def close(self) -> None:
        self.give = lambda: False


class _Deaf:
    def __init__(self, exact: ExactHints | None) -> None:
        self._exact = exact

    def subscribe(
        self, callback: Callable[[], None], topic: Topic = Topic.ANY
    ) -> Callable[[], None]:
        return lambda: None

    def work(self, callback: Callable[[], bool], queues: Collection[str]) -> WorkHints:
        if self._exact is None:
            return SharedWorkHints(lambda: None)
        self._exact.give = callback
        return self._exact


# --- by hand -----------------------------------------------------------------------------------


class Bench:
    """An engine that moves only when it is stepped, on a store whose clock stands still."""

    def __init__(self, app: Windlass, clock: VirtualClock, engine: Engine, store: Tampered) -> None:
        self.app = app
        self.clock = clock
        self.engine = engine
        self.store = store

    async def run(self, call: Call[Any]) -> JobRecord:
        """Enqueue a call, run what is claimed with it, and answer with the stored job."""
        job = await parts_of(self.app).producer.enqueue_call(call)
        await self.engine.step()
        return await job.refresh()

    async def again(self, job: JobRecord, after: timedelta | float = 0) -> JobRecord:
        """Let time pass and run what is due; the job as it is then."""
        self.clock.advance(after)
        await self.engine.step()
        return await parts_of(self.app).producer.refresh(job.id)

    async def history(self, job: JobRecord) -> list[Attempt]:
        """The ended claims of a job."""
        return list(await self.app.admin.jobs.history(job.id))


@asynccontextmanager
async def bench(*, slots: int = 10, state: object = None, **settings: Any) -> AsyncIterator[Bench]:
    """A bench on an empty memory store."""
    clock = VirtualClock()
    async with Windlass("memory://", clock=clock, seams=MIDDLE, **settings) as app:
        app.state = state
        around = await parts_of(app).workers.dependencies()
        store = Tampered(around.storage)
        around = msgspec.structs.replace(around, storage=store.storage)
        engine = Engine(around, parts_of(app).workers.settings(slots=slots))
        await engine.identity.register()
        yield Bench(app, clock, engine, store)
        engine.runner.close()


# --- in virtual time ---------------------------------------------------------------------------


class OnThisLoop:
    """What runs beside the worker, run on the worker's own loop."""

    def __init__(self, name: str, main: Main) -> None:
        self._stop = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(main(self._stop), name=name)

    async def stop(self) -> None:
        self._stop.set()
        await asyncio.wait([self._task])


def on_this_loop(name: str, main: Main) -> BackgroundLoop:
    return OnThisLoop(name, main)


class SleepyClock(LoopClock):
    """The loop's seconds, and those the machine slept: they count since boot, and for no loop."""

    suspended = timedelta()

    def boot(self) -> timedelta:
        return super().boot() + self.suspended


class World:
    """One app on a simulated loop; its store counts the loop's seconds."""

    def __init__(self, loop: SimLoop, **settings: Any) -> None:
        self.loop = loop
        self.clock = clock = SleepyClock(loop)
        seams = msgspec.structs.replace(MIDDLE, boot=lambda: clock.boot().total_seconds())
        self.app = Windlass("memory://", clock=self.clock, seams=seams, **settings)
        self.seen: list[tuple[float, str]] = []
        """What handlers said, and when."""

    def say(self, word: str) -> None:
        """Note a word with the second it was said at."""
        self.seen.append((round(self.loop.time(), 2), word))

    @property
    def words(self) -> list[str]:
        return [word for _, word in self.seen]

    async def tampered(self, *, deaf: bool = False) -> Tampered:
        """The app's storage behind glass."""
        return Tampered(await parts_of(self.app).storage(), deaf=deaf)

    async def until(self, second: float) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(max(second - self.loop.time(), 0))


def simulate(main: Callable[[World], Coroutine[Any, Any, T]], **settings: Any) -> T:
    """Run a scenario in virtual time, an hour of it at most; the answer is its own."""

    async def play(loop: SimLoop) -> T:
        world = World(loop, **settings)
        async with world.app:
            return await main(world)

    return run(play, seed=1, limit=200_000).value


async def make_worker(
    app: Windlass,
    *,
    store: Tampered | None = None,
    simulated: bool = True,
    on_live: Callable[[], None] | None = None,
    **settings: Any,
) -> Worker:
    """A worker of ``app`` that is not running yet, over ``store`` if one is given."""
    around = await parts_of(app).workers.dependencies()
    if store is not None:
        around = msgspec.structs.replace(around, storage=store.storage)
    parts: dict[str, Any] = {"aside": on_this_loop, "watch_loop": False} if simulated else {}
    if on_live is not None:
        parts["on_live"] = on_live
    return Worker(around, parts_of(app).workers.settings(**settings), **parts)


class Shift:
    """A worker at work, and the task that runs it."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.running = asyncio.get_running_loop().create_task(worker.run())

    async def ended(self) -> StopReason:
        return await self.running


@asynccontextmanager
async def working(
    app: Windlass,
    *,
    store: Tampered | None = None,
    simulated: bool = True,
    on_live: Callable[[], None] | None = None,
    **settings: Any,
) -> AsyncIterator[Shift]:
    """A running worker, stopped at the end."""
    worker = await make_worker(app, store=store, simulated=simulated, on_live=on_live, **settings)
    shift = Shift(worker)
    started = asyncio.ensure_future(shift.worker.started.wait())
    await asyncio.wait({started, shift.running}, return_when=asyncio.FIRST_COMPLETED)
    started.cancel()
    try:
        yield shift
    finally:
        shift.worker.stop()
        await shift.running


# --- others ------------------------------------------------------------------------------------


async def until(condition: Callable[[], object], *, seconds: float = 30.0) -> None:
    """Wait for something that other threads or tasks bring about; fail when they do not."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not condition():
        assert loop.time() < deadline, f"it did not happen within {seconds} s"
        await asyncio.sleep(0.001)


async def eventually(look: Callable[[], Awaitable[object]], seconds: float = 20) -> None:
    """Wait for something that can be read, and that another worker or process brings about."""
    async with asyncio.timeout(seconds):
        while not await look():  # noqa: ASYNC110 -- other processes set no events
            await asyncio.sleep(0.01)


async def register(storage: Storage, worker: str, *, lease: float = 30.0) -> None:
    """The row of a worker that is nobody."""
    await storage.workers.register(
        WorkerStart(
            id=worker,
            host="elsewhere",
            pid=1,
            version="0",
            queues=("default",),
            slots=1,
            lease=timedelta(seconds=lease),
        )
    )


def watch_locks(store: Tampered, held: list[str]) -> None:
    """Note which locks are held."""

    def hold(worker: str) -> tuple[str, int, int]:
        held.append(worker)
        return "boot", 1, 2

    def release(worker: str) -> None:
        if worker in held:
            held.remove(worker)

    vars(store).update(hold_worker_lock=hold, release_worker_lock=release)


async def make_suspect(storage: Storage, job: str, *, delay: float = 0, lost: int = 2) -> None:
    """Give the only waiting job a history of lost claims; it is due again after ``delay``."""
    await register(storage, f"doomed by {job}")
    reply = await storage.jobs.claim(f"doomed by {job}", [Want("default", 1)], total=1)
    (claimed,) = reply.jobs
    assert claimed.claim.job == job
    after = timedelta(seconds=delay)
    solo = lost >= SOLO_AFTER
    marked = Transition(Verb.RETRY, claimed.claim, "reaper", delay=after, lost=lost, solo=solo)
    await storage.jobs.apply([marked])
    await storage.workers.leave(f"doomed by {job}", [])


class Lines(logging.Handler):
    """What Windlass logs, level by level."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def having(self, words: str) -> list[str]:
        """The lines these words stand in."""
        return [r.getMessage() for r in self.records if words in r.getMessage()]


@contextmanager
def logged(name: str = "windlass") -> Iterator[Lines]:
    """Listen to the log of the library, or another one."""
    lines = Lines()
    log = logging.getLogger(name)
    before = log.level
    log.addHandler(lines)
    log.setLevel(logging.DEBUG)
    try:
        yield lines
    finally:
        log.removeHandler(lines)
        log.setLevel(before)
