"""`Results`: what the jobs of a part returned, read in pages while the handler runs."""

from __future__ import annotations

import contextvars
import typing
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from windlass._core.job.job import FlowId, JobId
from windlass._core.job.state import TERMINAL, State
from windlass.errors import JobCancelled, JobDiscarded, JobFailed, ResultError

__all__ = [
    "PAGE",
    "READER",
    "Done",
    "Outcome",
    "Outcomes",
    "Results",
    "ResultsReader",
    "done_of",
    "results_of",
]

T = TypeVar("T")

PAGE = 500
"""Results in one question to the store."""


class Outcome(Protocol):
    """An ended job, as the store has it."""

    @property
    def seq(self) -> int: ...
    @property
    def id(self) -> JobId: ...
    @property
    def state(self) -> State: ...
    @property
    def result(self) -> bytes | None: ...
    @property
    def error_kind(self) -> str: ...
    @property
    def error_message(self) -> str: ...
    @property
    def reason(self) -> str | None: ...


class ResultsReader(Protocol):
    """Reads the jobs of a part, for handlers on an event loop and for those on threads."""

    async def page(self, flow: FlowId, part: int, *, after: int, limit: int) -> Sequence[Outcome]:
        """Return the next jobs of a part, in order."""
        ...

    def page_here(self, flow: FlowId, part: int, *, after: int, limit: int) -> Sequence[Outcome]:
        """Do the same from a thread without an event loop."""
        ...


READER: contextvars.ContextVar[ResultsReader] = contextvars.ContextVar("windlass_results")
"""Set where arguments are decoded: `Results` made there read through it."""


class Done(msgspec.Struct, Generic[T], frozen=True):
    """A job that has ended, with its value or its error."""

    job: JobId
    state: State
    value: T | None = None
    """The result; None if it did not succeed."""
    error: str = ""
    """The kind and message of its last error."""

    @property
    def ok(self) -> bool:
        """Whether it succeeded."""
        return self.state is State.SUCCEEDED


class Results(Generic[T]):
    """The results of all jobs of a group, in the order in which the jobs were added.

    ``async for value in results`` in a coroutine, ``for value in results`` in a plain function.
    They are read in pages, so a group of any size fits into memory. Iterating raises the error of
    the first job that did not succeed; `outcomes` returns values and errors.
    """

    def __init__(
        self,
        flow: FlowId,
        parts: Sequence[int],
        reader: ResultsReader,
        decode: Callable[[bytes | None], T],
    ) -> None:
        self._pages = Pages(flow, tuple(parts), reader)
        self._decode = decode

    async def __aiter__(self) -> AsyncIterator[T]:
        async for one in self._pages:
            yield self._value(one)

    def __iter__(self) -> Iterator[T]:
        for one in self._pages:
            yield self._value(one)

    def outcomes(self) -> Outcomes[T]:
        """Return the jobs with their values or errors, for ``async for`` and ``for``."""
        return Outcomes(self._pages, self._decode)

    async def list(self) -> list[T]:
        """Return all values at once."""
        return [value async for value in self]

    def _value(self, one: Outcome) -> T:
        if one.state is State.SUCCEEDED:
            return self._decode(one.result)
        if one.state is State.FAILED:
            raise JobFailed(one.id, one.error_kind, one.error_message)
        if one.state is State.CANCELLED:
            raise JobCancelled(one.id, one.reason or "")
        if one.state is State.DISCARDED:
            raise JobDiscarded(one.id, one.reason or "discarded")
        raise _not_ended(one)


class Outcomes(Generic[T]):
    """The jobs of a group, each with its value or its error. Made by `Results.outcomes`."""

    def __init__(self, pages: Pages, decode: Callable[[bytes | None], T]) -> None:
        self._pages, self._decode = pages, decode

    async def __aiter__(self) -> AsyncIterator[Done[T]]:
        async for one in self._pages:
            yield done_of(one, self._decode)

    def __iter__(self) -> Iterator[Done[T]]:
        for one in self._pages:
            yield done_of(one, self._decode)


def done_of(one: Outcome, decode: Callable[[bytes | None], T]) -> Done[T]:
    """Return an ended job with its value or its error. ResultError if it has not ended."""
    if one.state not in TERMINAL:
        raise _not_ended(one)
    if one.state is State.SUCCEEDED:
        return Done(one.id, one.state, decode(one.result))
    error = f"{one.error_kind}: {one.error_message}" if one.error_kind else one.state.value
    return Done(one.id, one.state, None, error)


def _not_ended(one: Outcome) -> ResultError:
    message = (
        f"Job {one.id} has not ended, it is {one.state}: either the flow has not ended yet, and "
        f"you read results after run.wait(), or the job was requeued after its end, and you read "
        f"them when it has ended again."
    )
    return ResultError(one.id, message)


class Pages(msgspec.Struct, frozen=True):
    """The stored jobs of parts of a flow, read in pages, part by part."""

    flow: FlowId
    parts: tuple[int, ...]
    reader: ResultsReader

    async def __aiter__(self) -> AsyncIterator[Outcome]:
        for part in self.parts:
            after = 0
            while page := await self.reader.page(self.flow, part, after=after, limit=PAGE):
                for one in page:
                    yield one
                after = page[-1].seq

    def __iter__(self) -> Iterator[Outcome]:
        for part in self.parts:
            after = 0
            while page := self.reader.page_here(self.flow, part, after=after, limit=PAGE):
                yield from page
                after = page[-1].seq


def results_of(wanted: Any, value: object, hook: Callable[[type[Any], object], object]) -> object:
    """Return the `Results` of a stored argument. ``wanted`` is its annotation."""
    (kind,) = typing.get_args(wanted) or (Any,)
    source = msgspec.convert(value, dict[str, Any])

    def decode(result: bytes | None) -> Any:
        if result is None:
            return None
        return msgspec.json.decode(result, type=kind, dec_hook=hook)

    return Results(FlowId(source["flow"]), source["parts"], READER.get(), decode)
