"""Connections in use: one exchange after the other, and again after a failure."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ResponseError

from windlass._storage.redis.io.calls import ScriptCalls
from windlass._storage.redis.io.dialer import (
    CONNECTION_ERRORS,
    Argument,
    Dialer,
    disconnect,
    pack_command,
)
from windlass._storage.redis.io.errors import is_lost, is_transient, translate
from windlass._storage.redis.io.scripts import Script
from windlass._storage.shared.insert_rules import MAY_BE_STORED
from windlass._system.seams import chance
from windlass.errors import StorageError, StorageUnavailable

__all__ = ["RETRY_SECONDS", "LoopConnection", "retry_delay"]

RETRY_SECONDS = 5.0
"""Seconds for which a call waits for a server that is away."""
_CONFIRM_MS = 1000
"""How long replicas have to confirm a write."""
_FENCE = "redis.call('DEL', KEYS[1] .. ':none') return redis.call('INCR', KEYS[1])"
"""A write that a server without memory takes, too: see lua/shared/room.lua."""
_AT_ONCE = 128
"""Calls sent together at most."""
_FIRST_PAUSE, _LAST_PAUSE = 0.02, 1.0


def retry_delay(failures: int) -> float:
    """Seconds before the next try: doubled each time up to a second, and spread by chance, so
    that not everybody comes back in the same moment.
    """
    whole: float = min(_FIRST_PAUSE * 2 ** min(failures, 10), _LAST_PAUSE)
    return whole * (0.5 + chance() / 2)


class _PendingCall(msgspec.Struct, eq=False, kw_only=True):
    """Something asked and not yet answered."""

    script: Script | None
    arguments: Sequence[Argument]
    future: asyncio.Future[Any]
    deadline: float
    again: bool
    sent: bool = False
    tells: bool = False
    """Its answer comes with `unsure`."""
    unsure: bool = False
    """An earlier try may have been carried out: its answer was lost."""
    missing: bool = False
    """The server did not have the script: it must be loaded, or sent along."""
    at_once: bool = False
    """The last try was answered with how to ask better: the next one need not wait."""
    trouble: Exception | None = None

    def begin(self) -> None:
        """Try it, perhaps again."""
        self.trouble, self.at_once = None, False

    def note(self, trouble: Exception) -> None:
        """Record that it was not answered; the first reason stays."""
        self.trouble = self.trouble or trouble

    def note_missing(self, trouble: Exception) -> None:
        """Record that the server does not have the script: the next try brings it, at once."""
        self.missing = self.at_once = True
        self.trouble = trouble

    def note_form(self, trouble: Exception) -> None:
        """Record that the server wants another form of the call: the next try has it, at once."""
        self.at_once, self.trouble = True, trouble

    def note_sent(self) -> None:
        self.sent = True

    def doubt(self) -> None:
        """Record that it may have been carried out: its answer was lost."""
        self.unsure = True

    def command(self, calls: ScriptCalls) -> bytes:
        if self.script is None:
            return pack_command(self.arguments)
        return calls.command(self.script, self.arguments, with_text=self.missing)

    def answer(self, value: Any) -> None:
        if not self.future.done():  # else its caller was cancelled
            self.future.set_result((value, self.unsure) if self.tells else value)

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class LoopConnection:
    """One connection, on the event loop of its first use. Never used by two at a time.

    What is asked while an exchange is under way is sent together afterwards, and answered in
    order. Callers wait for their answer only: cancelling one leaves the connection in step.
    """

    def __init__(
        self, dialer: Dialer, calls: ScriptCalls, *, fence: tuple[str, int] | None = None
    ) -> None:
        """``fence``: a key to write to and the number of replicas that must confirm writes."""
        self._dialer, self._calls, self._fence = dialer, calls, fence
        self._connection: AbstractConnection | None = None
        self._waiting: deque[_PendingCall] = deque()
        self._serving: asyncio.Task[None] | None = None
        self._failures = 0
        self.patience = RETRY_SECONDS

    def run(
        self,
        script: Script,
        arguments: Sequence[Argument],
        *,
        again: bool = True,
        tells: bool = False,
    ) -> asyncio.Future[Any]:
        """Run a script whose only key is ``arguments[0]``.

        ``tells``: answer with a pair, what the script says and whether an earlier try of it may
        have been carried out.
        """
        return self._submit(script, arguments, again=again, tells=tells)

    def ask(self, *command: Argument) -> asyncio.Future[Any]:
        """Send a command that may be repeated."""
        return self._submit(None, command, again=True)

    def _submit(
        self,
        script: Script | None,
        arguments: Sequence[Argument],
        *,
        again: bool,
        tells: bool = False,
    ) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        call = _PendingCall(
            script=script,
            arguments=arguments,
            future=loop.create_future(),
            deadline=loop.time() + self.patience,
            again=again,
            tells=tells,
        )
        self._waiting.append(call)
        if self._serving is None or self._serving.done():  # cancelled before it could begin
            self._serving = loop.create_task(self._serve())
        return call.future

    # --- one exchange after the other ---------------------------------------------------------

    async def _serve(self) -> None:
        calls: list[_PendingCall] = []
        try:
            while self._waiting:
                calls = [self._waiting.popleft() for _ in range(min(len(self._waiting), _AT_ONCE))]
                await self._exchange(calls)
                await self._again(calls)
        except BaseException as error:
            # Only the end of the loop, or a bug, comes here: no caller may wait for ever. Answers
            # that were not read yet must not be taken for those of later requests.
            connection, self._connection = self._connection, None
            for call in (*calls, *self._waiting):
                call.fail(StorageUnavailable(f"{self._dialer.place} was let go of: {error!r}"))
            self._waiting.clear()
            if connection is not None:
                await disconnect(connection)
            raise
        finally:
            if self._serving is asyncio.current_task():
                self._serving = None

    async def _exchange(self, calls: Sequence[_PendingCall]) -> None:
        """Send all, read all. Calls without an answer have their trouble noted."""
        for call in calls:
            call.begin()
        new = self._connection is None
        try:
            if self._connection is None:
                self._connection = await self._dialer.connect()
            if self._calls.functions and any(call.missing for call in calls):
                await self._load(self._connection)
            await self._converse(self._connection, calls)
        except CONNECTION_ERRORS as error:
            # Servers and firewalls close what was idle: only where no new connection can be had
            # or used, the server is away.
            if new:
                self._dialer.note_lost(self, error)
            await self._drop()
            for call in calls:
                if not call.future.done():
                    call.note(error)
        else:
            lost = [call.trouble for call in calls if call.trouble and is_lost(call.trouble)]
            if lost:
                self._dialer.note_lost(self, lost[0])
                await self._drop()
            else:
                self._dialer.note_reached(self)

    async def _load(self, connection: AbstractConnection) -> None:
        """Load the library; a server that refuses it gets its scripts by EVAL."""
        await connection.send_packed_command(self._calls.load_command(), check_health=False)
        answer = await self._read(connection)
        if not isinstance(answer, ResponseError) or self._calls.is_loaded(answer):
            return
        if is_transient(answer):
            raise answer
        self._calls.use_eval(answer)

    async def _converse(
        self, connection: AbstractConnection, calls: Sequence[_PendingCall]
    ) -> None:
        fence = self._fence
        if fence is not None and not any(call.script and call.script.confirmed for call in calls):
            fence = None
        commands = [call.command(self._calls) for call in calls]
        if fence is not None:
            # WAIT confirms what this connection wrote last. A repeated operation may write nothing
            # because a lost connection did: so that its write is confirmed, too, this one writes.
            commands += [
                pack_command(("EVAL", _FENCE, 1, fence[0])),
                pack_command(("WAIT", fence[1], _CONFIRM_MS)),
            ]
        for call in calls:
            call.note_sent()
        await connection.send_packed_command(commands, check_health=False)
        answers: list[Any] = []
        try:
            while len(answers) < len(commands):
                answers.append(await self._read(connection))
            self._failures = 0
        finally:
            if fence is None or len(answers) == len(commands):
                self._deliver(calls, answers, fence)

    def _deliver(
        self, calls: Sequence[_PendingCall], answers: list[Any], fence: tuple[str, int] | None
    ) -> None:
        """To everybody whose answer came, though the connection may be lost by now."""
        for call, answer in zip(calls, answers, strict=False):
            if isinstance(answer, ResponseError):
                self._refused(call, answer)
            elif fence is not None and call.script is not None and call.script.confirmed:
                # Without the fence's own write nothing says what was confirmed.
                confirmed = answers[-1] if isinstance(answers[-2], int) else answers[-2]
                self._confirm(call, answer, confirmed, fence[1])
            else:
                call.answer(answer)

    async def _read(self, connection: AbstractConnection) -> Any:
        try:
            return await connection.read_response()
        except ResponseError as error:
            return error

    def _refused(self, call: _PendingCall, error: ResponseError) -> None:
        if self._calls.is_missing(error):
            if call.missing and self._calls.functions:
                self._calls.use_eval(error)  # loaded, and not there: a proxy with several servers
            call.note_missing(error)
        elif self._calls.is_refused(error):
            self._calls.use_eval(error)
            call.note_form(error)
        elif is_transient(error):
            call.note(error)
        else:
            call.fail(self._translated(call, error))

    def _confirm(self, call: _PendingCall, answer: Any, confirmed: Any, wanted: int) -> None:
        if isinstance(confirmed, int) and confirmed >= wanted:
            call.answer(answer)
            return
        got = f"{confirmed} of {wanted}" if isinstance(confirmed, int) else f"none ({confirmed})"
        call.fail(
            StorageUnavailable(
                f"The Redis server at {self._dialer.place} has stored it, but of the replicas "
                f'that durability="replicated" needs, {got} confirmed it within '
                f"{_CONFIRM_MS} ms. Bring a replica back. {MAY_BE_STORED}"
            )
        )

    def _translated(self, call: _PendingCall, error: BaseException) -> StorageError:
        doing = call.script.name if call.script else str(call.arguments[0])
        return translate(error, self._dialer.place, doing)

    # --- after a failure ----------------------------------------------------------------------

    async def _again(self, calls: Sequence[_PendingCall]) -> None:
        """Put those back in front that may still succeed; fail the others; wait a little."""
        now = asyncio.get_running_loop().time()
        waits = False
        for call in reversed(calls):
            error = call.trouble
            if error is None:
                continue
            lost_answer = call.sent and not call.again and not isinstance(error, ResponseError)
            hopeless = lost_answer or not is_transient(error) or now >= call.deadline
            if hopeless and not call.at_once:
                call.fail(self._translated(call, error))
                continue
            waits = waits or not call.at_once
            if call.sent and not isinstance(error, ResponseError):
                call.doubt()
            self._waiting.appendleft(call)
        if waits:
            await asyncio.sleep(retry_delay(self._failures))
            self._failures += 1

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await disconnect(connection)

    async def close(self) -> None:
        """Wait for what was asked, then let go. Safe to repeat, and after its loop has ended."""
        while self._serving is not None and not self._serving.done():
            if self._serving.get_loop() is not asyncio.get_running_loop():
                break
            with suppress(Exception):
                await asyncio.shield(self._serving)
        await self._drop()
