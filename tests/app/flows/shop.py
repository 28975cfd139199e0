"""The app and the tasks of the tests of flows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from windlass import Context, Limit, Results, Windlass
from windlass.testing import isolated

app = Windlass("memory://")
ran: list[str] = []


@app.task
async def double(number: int, *, times: int = 2) -> int:
    if number < 0:
        raise ValueError(number)
    return number * times


@app.task
async def add_up(numbers: Results[int]) -> int:
    return sum([number async for number in numbers])


@app.task
def add_up_on_a_thread(numbers: Results[int]) -> int:
    return sum(numbers)


@app.task
def add_up_on_its_own_loop(numbers: Results[int]) -> int:
    return sum(asyncio.run(numbers.list()))


@app.task(max_attempts=1)
async def blocks_the_loop(numbers: Results[int]) -> int:
    return sum(numbers)


@app.task
async def untyped(numbers) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001


@app.task(limits=[Limit("shop", concurrency=1, key="{shop}")])
async def per_shop(number: int, *, shop: int) -> int:
    return number * shop


@app.task(unique=True)
async def once(number: int) -> int:
    return number


@app.task
async def count_failures(numbers: Results[int]) -> list[bool]:
    return [done.ok async for done in numbers.outcomes()]


@app.task
async def describe(total: int | None, parts: list[int], title: str) -> str:
    return f"{title}: {total} of {parts}"


@app.task
async def tell(what: str) -> None:
    ran.append(what)


@app.task
async def split(ctx: Context, number: int) -> int:
    ctx.then(*[tell.call(f"part {part}") for part in range(number)])
    return number


@pytest.fixture(autouse=True)
def empty_store() -> Iterator[None]:
    """Give every test the app with an empty store."""
    ran.clear()
    with isolated(app):
        yield
