"""Carried out, and the answer lost: whoever asks again finds one effect, not two."""

from __future__ import annotations

from typing import cast

import pytest

from tests.chaos.fixtures import Rig, Step, everything
from tests.chaos.operations import (
    NOTE,
    OUTCOMES,
    READS,
    RUNNING,
    WRITES,
    Operation,
    claimed,
    ending,
    inserting,
    new,
    transitions,
)
from windlass._core.job.unique import UniqueKey
from windlass._storage.memory import MemoryDatabase, MemoryStorage
from windlass._storage.protocol.jobs import Inserted, Verdict
from windlass._storage.protocol.storage import Storage
from windlass.errors import StorageUnavailable

pytestmark = pytest.mark.chaos


async def again(operation: Operation, storage: Storage) -> object:
    """As a caller would: what could not be answered is asked once more."""
    try:
        return await operation.act(storage)
    except StorageUnavailable:
        return await operation.act(storage)


async def play(operation: Operation, storage: Storage) -> object:
    for step in operation.before:
        await step(storage)
    return await operation.act(storage)


async def reference(rig: Rig, operation: Operation) -> dict[str, object]:
    memory = MemoryStorage(MemoryDatabase(rig.clock))
    await play(operation, memory)
    return await everything(memory, rig.clock.now())


@pytest.mark.parametrize("name", WRITES)
async def test_a_write_has_one_effect(rig: Rig, name: str) -> None:
    operation = WRITES[name]
    await rig.teach(*operation.before, operation.act)
    storage, beside = await rig.behind(), await rig.beside()
    for step in operation.before:
        await step(beside)
    loss = rig.lose_next(operation.at)
    await again(operation, storage)
    assert loss.happened, f"{name} asked nothing"
    assert await everything(beside, rig.clock.now()) == await reference(rig, operation)


@pytest.mark.parametrize("name", READS)
async def test_a_read_is_answered_by_the_second_try(rig: Rig, name: str) -> None:
    operation = Operation(RUNNING, READS[name])
    await rig.teach(*operation.before, operation.act)
    storage, beside = await rig.behind(), await rig.beside()
    for step in operation.before:
        await step(beside)
    loss = rig.lose_next()
    answer = await again(operation, storage)
    assert loss.happened, f"{name} asked nothing"
    assert answer == await READS[name](beside)


@pytest.mark.parametrize("name", OUTCOMES)
async def test_an_end_is_applied_once_and_then_known_as_repeated(rig: Rig, name: str) -> None:
    await rig.teach(*RUNNING, ending(OUTCOMES[name]))
    storage, beside = await rig.behind(), await rig.beside()
    for step in RUNNING:
        await step(beside)
    ends = await transitions(beside, OUTCOMES[name])
    loss = rig.lose_next()
    try:
        applied = await storage.jobs.apply(ends)
    except StorageUnavailable:
        applied = await storage.jobs.apply(ends)
    assert loss.happened
    assert [answer.verdict for answer in applied.answers] == [Verdict.REPEATED] * 2
    memory = MemoryStorage(MemoryDatabase(rig.clock))
    for step in RUNNING:
        await step(memory)
    await memory.jobs.apply(await transitions(memory, OUTCOMES[name]))
    now = rig.clock.now()
    assert await everything(beside, now) == await everything(memory, now)


@pytest.mark.parametrize("more", [{}, {"tags": ("a",)}, {"unique": UniqueKey("k")}], ids=str)
async def test_jobs_that_a_lost_try_has_stored_are_not_called_stored_before(
    rig: Rig, more: dict[str, object]
) -> None:
    ask = inserting(new(1, **more))
    order: Step = lambda storage: storage.orders.insert([new(2)], NOTE)  # noqa: E731
    await rig.teach(ask, order)
    storage = await rig.behind()
    for step in (ask, order):
        loss = rig.lose_next()
        answers = [await step(storage) for _ in range(2)]
        assert loss.happened
        told = [one.repeated for (one,) in cast("list[list[Inserted]]", answers)]
        assert told == [False, True]


async def test_a_lost_claim_is_found_by_the_next_heartbeat_and_given_out_once(rig: Rig) -> None:
    await rig.teach(*RUNNING)
    storage = await rig.behind()
    for step in RUNNING[:-1]:
        await step(storage)
    loss = rig.lose_next()
    try:
        told = await claimed(storage)
    except StorageUnavailable:
        told = []
    assert loss.happened
    beat = await storage.workers.beat("w1")
    assert [claim.number for claim in beat.holding] == [1, 1]
    assert {one.claim.job for one in told} <= {claim.job for claim in beat.holding}
    assert not (await claimed(storage)), "nothing is left to claim"
