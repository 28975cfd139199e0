"""Settings that operators change while workers run."""

from __future__ import annotations

import asyncio

from windlass._core.limits.backoff import Backoff
from windlass._core.limits.queue_settings import QueueSettings
from windlass._storage.protocol.queues import QueueRecord
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    HOUR,
    INSTANT,
    MINUTE,
    a_job,
    add,
    claim,
    enlist,
    ids,
    queue_record,
    started,
    throttled,
)
from windlass.testing.conformance.storage import woken

__all__ = ["QueueSettingsConformance"]

PLAIN = QueueSettings()
CURVE = Backoff.exponential(1.5, factor=3.0, cap=MINUTE, jitter="full")
FULL = QueueSettings(
    max_running=3,
    backoff=CURVE,
    cool_down=Backoff.waits([1, 60, 3600]),
    keep_succeeded=0 * HOUR,
    keep_failed=HOUR + INSTANT,
)


async def settle(storage: Storage, new: QueueSettings, queue: str = "default") -> None:
    """Change a queue's settings, with any stored ones."""
    old = (await queue_record(storage, queue)).settings
    assert await storage.queues.change(queue, new, old=old)


class QueueSettingsConformance:
    """`QueueStore`: stored, compared before they change, live at the next claim."""

    async def test_nothing_is_listed_of_queues_without_anything_special(
        self, storage: Storage
    ) -> None:
        await started(storage)
        await add(storage, a_job(), a_job(queue="b"))
        await storage.admin.resume("c")
        assert list(await storage.queues.queues()) == []

    async def test_every_setting_comes_back_as_it_was_stored(self, storage: Storage) -> None:
        assert await storage.queues.change("default", FULL, old=PLAIN)
        (record,) = await storage.queues.queues()
        assert record == QueueRecord(queue="default", settings=FULL)

    async def test_each_setting_alone_comes_back_and_leaves_the_others_unset(
        self, storage: Storage
    ) -> None:
        alone = [
            QueueSettings(max_running=1_000_000),
            QueueSettings(backoff=Backoff.none()),
            QueueSettings(backoff=Backoff.linear(2, step=0.000001)),
            QueueSettings(cool_down=Backoff.fixed(INSTANT, jitter="spread")),
            QueueSettings(keep_succeeded=INSTANT),
            QueueSettings(keep_failed=0 * HOUR),
        ]
        for settings in alone:
            await settle(storage, settings)
            (record,) = await storage.queues.queues()
            assert record.settings == settings

    async def test_settings_that_changed_meanwhile_are_not_overwritten(
        self, storage: Storage
    ) -> None:
        theirs, ours = QueueSettings(max_running=1), QueueSettings(max_running=2)
        assert await storage.queues.change("default", theirs, old=PLAIN)
        assert not await storage.queues.change("default", ours, old=PLAIN)
        assert not await storage.queues.change("default", ours, old=ours)
        assert (await queue_record(storage)).settings == theirs
        assert await storage.queues.change("default", ours, old=theirs)
        assert (await queue_record(storage)).settings == ours

    async def test_settings_are_compared_by_what_they_say(self, storage: Storage) -> None:
        again = QueueSettings(
            keep_failed=HOUR + INSTANT,
            keep_succeeded=0 * HOUR,
            cool_down=Backoff.waits([1.0, 60.0, 3600.0]),
            backoff=Backoff.exponential(1.5, factor=3, cap=60, jitter="full"),
            max_running=3,
        )
        await settle(storage, FULL)
        assert await storage.queues.change("default", PLAIN, old=again)

    async def test_unset_settings_are_not_stored_ones(self, storage: Storage) -> None:
        assert not await storage.queues.change("default", PLAIN, old=FULL)
        assert await storage.queues.change("default", FULL, old=PLAIN)
        assert not await storage.queues.change("default", PLAIN, old=PLAIN)
        assert (await queue_record(storage)).settings == FULL

    async def test_a_queue_whose_settings_are_taken_back_is_not_listed(
        self, storage: Storage
    ) -> None:
        await settle(storage, FULL)
        await settle(storage, PLAIN)
        assert list(await storage.queues.queues()) == []

    async def test_of_many_concurrent_changes_one_wins(self, storage: Storage) -> None:
        wanted = [QueueSettings(max_running=most) for most in range(1, 21)]
        calls = [storage.queues.change("default", new, old=PLAIN) for new in wanted]
        won = await asyncio.gather(*calls)
        assert won.count(True) == 1
        assert (await queue_record(storage)).settings == wanted[won.index(True)]

    async def test_queues_are_listed_by_name_with_all_that_is_known_of_them(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await add(storage, a_job(queue="e"))
        await storage.admin.pause("d")
        await settle(storage, FULL, "b")
        await settle(storage, QueueSettings(max_running=1), "a")
        await storage.admin.pause("a")
        await enlist(storage)
        await add(storage, a_job(queue="c"))
        (running,) = await claim(storage, queue="c")
        await throttled(storage, running, HOUR)
        assert list(await storage.queues.queues()) == [
            QueueRecord(queue="a", settings=QueueSettings(max_running=1), paused=True),
            QueueRecord(queue="b", settings=FULL),
            QueueRecord(queue="c", cool_until=clock.now() + HOUR, cool_downs=1),
            QueueRecord(queue="d", paused=True),
        ]

    async def test_a_pause_is_shown_until_it_is_undone(self, storage: Storage) -> None:
        await storage.admin.pause("default")
        assert (await queue_record(storage)).paused
        await storage.admin.resume("default")
        assert list(await storage.queues.queues()) == []

    async def test_neither_a_pause_nor_a_rest_touches_the_settings(self, storage: Storage) -> None:
        running = await started(storage)
        await settle(storage, FULL)
        await throttled(storage, running, HOUR)
        await storage.admin.pause("default")
        await storage.admin.resume("default")
        await storage.queues.warm("default")
        assert await queue_record(storage) == QueueRecord(queue="default", settings=FULL)

    async def test_new_settings_touch_neither_a_pause_nor_a_rest(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        running = await started(storage)
        await throttled(storage, running, HOUR)
        await storage.admin.pause("default")
        await settle(storage, FULL)
        assert await queue_record(storage) == QueueRecord(
            queue="default",
            settings=FULL,
            paused=True,
            cool_until=clock.now() + HOUR,
            cool_downs=1,
        )

    async def test_settings_of_one_queue_are_not_those_of_another(self, storage: Storage) -> None:
        await settle(storage, FULL, "a")
        assert await queue_record(storage, "b") == QueueRecord(queue="b")
        assert await storage.queues.change("b", FULL, old=PLAIN)

    async def test_a_changed_setting_holds_at_the_next_claim(self, storage: Storage) -> None:
        await enlist(storage)
        wanted = await add(storage, *(a_job() for _ in range(5)))
        await settle(storage, QueueSettings(max_running=1))
        assert ids(await claim(storage, 10)) == wanted[:1]
        await settle(storage, QueueSettings(max_running=3))
        assert ids(await claim(storage, 10)) == wanted[1:3]
        await settle(storage, QueueSettings(backoff=CURVE))
        assert ids(await claim(storage, 10)) == wanted[3:]

    async def test_a_change_wakes(self, storage: Storage) -> None:
        await settle(storage, QueueSettings(max_running=1))
        async with woken(storage):
            await settle(storage, QueueSettings(max_running=2))
