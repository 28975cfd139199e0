"""`ScheduleStore`: the fence around a schedule, and when it is due."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from windlass._core.values.instants import LAST_INSTANT
from windlass._storage.protocol.schedules import ScheduleRow, ScheduleWrite, Written
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import HOUR, INSTANT, MINUTE, SECOND

__all__ = ["DueConformance", "ScheduleConformance"]

WRITTEN, STALE = Written.WRITTEN, Written.STALE

ODD_NAMES = (
    "",
    "a b",
    "a{b}:c",
    "A",
    "a",
    "%_*?[a]",
    "'; DROP TABLE schedules; --",
    '"\\',
    "line\nbreak\tand\x1funit",
    "é",
    "e\u0301",
    "夜",
    "\U0001f4a5",
    "\ufffd",
)


def a_write(name: str = "s", revision: int = 0, **asked: Any) -> ScheduleWrite:
    """Return a write with defaults, except for the given values."""
    return replace(ScheduleWrite(name=name, revision=revision, body=b"{}"), **asked)


async def written(storage: Storage, *writes: ScheduleWrite) -> list[Written]:
    """Return the results of several writes in one call."""
    return [answer.what for answer in await storage.schedules.write(writes)]


async def made(storage: Storage, name: str = "s", **asked: Any) -> ScheduleRow:
    """Return a new schedule."""
    assert await written(storage, a_write(name, **asked)) == [WRITTEN]
    return await stored(storage, name)


async def stored(storage: Storage, name: str = "s") -> ScheduleRow:
    """Return the stored schedule, which must be there."""
    found = {row.name: row for row in await storage.schedules.rows()}
    assert name in found, f"there is no schedule {name!r}"
    return found[name]


async def names_due(storage: Storage, limit: int = 100) -> list[str]:
    return [row.name for row in (await storage.schedules.due(limit)).rows]


class ScheduleConformance:
    """Rows by name, each behind its revision."""

    async def test_a_new_schedule_has_revision_one(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        due = clock.now() + HOUR + INSTANT
        assert await made(storage, body=b'{"a":1}', next_at=due) == ScheduleRow(
            name="s", revision=1, body=b'{"a":1}', next_at=due, declared_at=None
        )

    async def test_a_write_by_its_revision_replaces_body_and_due_time(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await made(storage, next_at=clock.now())
        for revision, due in ((1, clock.now() + HOUR), (2, None)):
            body = f'"{revision}"'.encode()
            write = a_write(revision=revision, body=body, next_at=due)
            assert await written(storage, write) == [WRITTEN]
            row = await stored(storage)
            assert (row.revision, row.body, row.next_at) == (revision + 1, body, due)

    async def test_a_write_by_another_revision_is_stale_and_changes_nothing(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await made(storage, next_at=clock.now())
        await written(storage, a_write(revision=1, body=b"second"))
        before = await stored(storage)
        for revision in (0, 1, 3, 4):
            assert await written(storage, a_write(revision=revision, body=b"late")) == [STALE]
        assert await stored(storage) == before

    async def test_a_change_of_what_is_not_there_is_stale(self, storage: Storage) -> None:
        assert await written(storage, a_write(revision=1), a_write(revision=7)) == [STALE, STALE]
        assert await storage.schedules.rows() == []

    async def test_a_repeated_write_is_answered_again_and_changes_nothing(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        first = a_write(next_at=clock.now())
        second = a_write(revision=1, body=b"second", next_at=clock.now())
        for write in (first, second):
            assert await written(storage, write) == [WRITTEN]
            before = await stored(storage)
            clock.advance(SECOND)
            assert await written(storage, write, write) == [WRITTEN, WRITTEN]
            assert await stored(storage) == before

    async def test_a_repeat_of_what_has_been_overwritten_is_stale(self, storage: Storage) -> None:
        same = [a_write(revision=revision, body=b"same") for revision in (0, 1)]
        assert await written(storage, *same) == [WRITTEN, WRITTEN]
        assert await written(storage, same[0]) == [STALE]

    async def test_a_delete_by_its_revision_removes_the_schedule(self, storage: Storage) -> None:
        await made(storage, "kept")
        await made(storage)
        assert await written(storage, a_write(revision=1, body=None)) == [WRITTEN]
        assert [row.name for row in await storage.schedules.rows()] == ["kept"]

    async def test_a_delete_of_what_is_not_there_is_written(self, storage: Storage) -> None:
        deletes = [a_write(revision=revision, body=None) for revision in (0, 1, 5)]
        assert await written(storage, *deletes) == [WRITTEN] * 3
        assert await storage.schedules.rows() == []

    async def test_a_delete_by_another_revision_is_stale(self, storage: Storage) -> None:
        row = await made(storage)
        for revision in (0, 2):
            assert await written(storage, a_write(revision=revision, body=None)) == [STALE]
        assert await storage.schedules.rows() == [row]

    async def test_a_name_that_was_deleted_begins_anew(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await made(storage, next_at=clock.now())
        await written(storage, a_write(revision=1, body=b"second"))
        await storage.schedules.declare(["s"])
        await written(storage, a_write(revision=2, body=None))
        row = await made(storage, body=b"another")
        assert (row.revision, row.next_at, row.declared_at) == (1, None, None)

    async def test_schedules_are_listed_by_name(self, storage: Storage) -> None:
        names = ["b", "a", "B", "ä", "10", "9", "\U0001f4a5", "\ufffd", "a b", "a-b"]
        await written(storage, *(a_write(name) for name in names))
        assert [row.name for row in await storage.schedules.rows()] == sorted(names)

    async def test_some_are_read_by_name_and_the_others_page_by_page(
        self, storage: Storage
    ) -> None:
        names = ["b", "a", "B", "ä", "ab"]
        await storage.schedules.write([a_write(name) for name in names])
        every = await storage.schedules.rows()
        some = await storage.schedules.rows(["ä", "a", "nobody", "\x00", "\ud800"])
        assert [row.name for row in some] == ["a", "ä"]
        assert {*(row.body for row in some)} <= {row.body for row in every}
        assert await storage.schedules.rows([]) == []
        paged, after = list[ScheduleRow](), ""
        while rows := await storage.schedules.page(after, 2):
            assert len(rows) <= 2
            paged += rows
            after = rows[-1].name
        assert paged == every

    async def test_every_name_is_a_separate_schedule(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        for name in ODD_NAMES:
            await made(storage, name, body=name.encode(), next_at=clock.now())
        await storage.schedules.declare(ODD_NAMES)
        rows = await storage.schedules.rows()
        assert {row.name: row.body for row in rows} == {n: n.encode() for n in ODD_NAMES}
        assert {row.declared_at for row in rows} == {clock.now()}
        assert sorted(await names_due(storage)) == sorted(ODD_NAMES)
        deletes = [a_write(name, 1, body=None) for name in ODD_NAMES]
        assert await written(storage, *deletes) == [WRITTEN] * len(ODD_NAMES)
        assert await storage.schedules.rows() == []

    async def test_a_body_is_kept_to_the_byte(self, storage: Storage) -> None:
        large = "".join(f'{{"{i}": "é夜\U0001f4a5\\n\' \x7f%s"}}' for i in range(2500))
        bodies = [b"", b" \n", b"null", b"0012", b"1e400", large.encode()]
        assert len(bodies[-1]) > 65_536
        for index, body in enumerate(bodies):
            row = await made(storage, f"s{index}", body=body)
            assert row.body == body
            write = a_write(f"s{index}", 1, body=body)
            assert await written(storage, write, write) == [WRITTEN, WRITTEN]

    async def test_a_due_time_beyond_the_calendar_becomes_its_last(self, storage: Storage) -> None:
        row = await made(storage, next_at=datetime(9999, 12, 31, tzinfo=UTC))
        assert row.next_at == LAST_INSTANT
        assert (await storage.schedules.due(1)).next_at == LAST_INSTANT

    async def test_writes_of_one_call_happen_in_order(self, storage: Storage) -> None:
        answers = await written(
            storage,
            a_write(body=b"first"),
            a_write(revision=1, body=b"second"),
            a_write(revision=1, body=b"late"),
            a_write(revision=2, body=None),
            a_write(body=b"anew"),
        )
        assert answers == [WRITTEN, WRITTEN, STALE, WRITTEN, WRITTEN]
        row = await stored(storage)
        assert (row.revision, row.body) == (1, b"anew")

    async def test_a_stale_write_does_not_stop_the_others(self, storage: Storage) -> None:
        await made(storage, "b", body=b"old")
        writes = [a_write(name, body=b"new") for name in "cba"]
        assert await written(storage, *writes) == [WRITTEN, STALE, WRITTEN]
        rows = await storage.schedules.rows()
        assert [(row.name, row.body) for row in rows] == [
            ("a", b"new"),
            ("b", b"old"),
            ("c", b"new"),
        ]

    async def test_of_many_who_write_by_one_revision_exactly_one_succeeds(
        self, storage: Storage
    ) -> None:
        await made(storage)
        for revision in range(1, 6):
            bodies = [f"{revision}/{writer}".encode() for writer in range(8)]
            answers = await asyncio.gather(
                *(written(storage, a_write(revision=revision, body=body)) for body in bodies)
            )
            assert Counter(answer for (answer,) in answers) == {WRITTEN: 1, STALE: 7}
            row = await stored(storage)
            assert (row.revision, row.body) == (revision + 1, bodies[answers.index([WRITTEN])])

    async def test_writers_of_the_very_same_are_all_answered_written(
        self, storage: Storage
    ) -> None:
        answers = await asyncio.gather(*(written(storage, a_write()) for _ in range(8)))
        assert answers == [[WRITTEN]] * 8
        assert (await stored(storage)).revision == 1

    async def test_writers_of_several_schedules_never_lock_each_other_out(
        self, storage: Storage
    ) -> None:
        names = [f"s{number}" for number in range(10)]
        await written(storage, *(a_write(name) for name in names))
        forwards = [a_write(name, 1, body=b"forwards") for name in names]
        backwards = [a_write(name, 1, body=b"backwards") for name in reversed(names)]
        calls = (forwards, backwards) * 3
        async with asyncio.timeout(20):
            await asyncio.gather(*(written(storage, *call) for call in calls))
        assert {row.revision for row in await storage.schedules.rows()} == {2}

    async def test_a_call_without_writes_is_answered_without_answers(
        self, storage: Storage
    ) -> None:
        await storage.schedules.declare([])
        assert await written(storage) == []

    async def test_declared_schedules_are_stamped_and_nothing_else_of_them(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        row = await made(storage, next_at=clock.now() + HOUR)
        other = await made(storage, "other")
        for _ in range(2):
            clock.advance(SECOND)
            await storage.schedules.declare(["s", "s"])
            assert await stored(storage) == replace(row, declared_at=clock.now())
        assert await stored(storage, "other") == other

    async def test_a_declared_schedule_that_is_not_stored_is_left_out(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await made(storage)
        await storage.schedules.declare(["unknown", "s"])
        assert [(r.name, r.declared_at) for r in await storage.schedules.rows()] == [
            ("s", clock.now())
        ]

    async def test_a_write_leaves_the_declaration_as_it_is(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await made(storage)
        await storage.schedules.declare(["s"])
        declared = clock.now()
        clock.advance(MINUTE)
        assert await written(storage, a_write(revision=1, body=b"second")) == [WRITTEN]
        assert (await stored(storage)).declared_at == declared


class DueConformance:
    """The due schedules, the longest overdue first, and the next instant."""

    async def test_a_schedule_is_due_from_the_very_instant(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        row = await made(storage, next_at=clock.now() + SECOND)
        clock.advance(SECOND - INSTANT)
        due = await storage.schedules.due(10)
        assert (due.at, due.rows, due.next_at) == (clock.now(), [], row.next_at)
        clock.advance(INSTANT)
        due = await storage.schedules.due(10)
        assert (due.at, due.rows, due.next_at) == (clock.now(), [row], None)

    async def test_the_longest_due_come_first_and_equals_by_name(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        now = clock.now()
        times = {"d": now, "b": now - HOUR, "c": now - INSTANT, "a": now, "B": now}
        await written(storage, *(a_write(name, next_at=at) for name, at in times.items()))
        assert await names_due(storage) == ["b", "c", "B", "a", "d"]

    async def test_no_more_than_asked_for_are_shown(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        now = clock.now()
        await written(storage, *(a_write(f"s{i}", next_at=now - i * SECOND) for i in range(4)))
        await made(storage, "later", next_at=now + HOUR)
        for limit in (0, 1, 3, 4, 5):
            due = await storage.schedules.due(limit)
            assert [row.name for row in due.rows] == ["s3", "s2", "s1", "s0"][:limit]
            assert due.next_at == now + HOUR

    async def test_the_next_is_the_first_that_is_not_due_yet(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        now = clock.now()
        assert (await storage.schedules.due(10)).next_at is None
        for name, at in (("b", now + MINUTE), ("a", now + HOUR), ("c", now), ("d", now - HOUR)):
            await made(storage, name, next_at=at)
        assert (await storage.schedules.due(10)).next_at == now + MINUTE
        clock.advance(MINUTE)
        assert (await storage.schedules.due(10)).next_at == now + HOUR

    async def test_one_without_a_due_time_is_never_due(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await made(storage)
        clock.advance(1000 * HOUR)
        due = await storage.schedules.due(10)
        assert (due.rows, due.next_at) == ([], None)

    async def test_a_due_schedule_is_shown_whole(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await made(storage, next_at=clock.now())
        await written(storage, a_write(revision=1, body=b"second", next_at=clock.now()))
        await storage.schedules.declare(["s"])
        assert (await storage.schedules.due(10)).rows == await storage.schedules.rows()

    async def test_one_that_was_moved_on_is_due_at_its_new_time(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await made(storage, next_at=clock.now())
        for revision in range(1, 4):
            clock.advance(SECOND)
            assert await names_due(storage) == ["s"]
            later = clock.now() + MINUTE
            await written(storage, a_write(revision=revision, next_at=later))
            due = await storage.schedules.due(10)
            assert (due.rows, due.next_at) == ([], later)
            clock.advance(MINUTE)
        await written(storage, a_write(revision=4, next_at=None))
        assert (await storage.schedules.due(10)).rows == []

    async def test_a_deleted_schedule_is_neither_due_nor_the_next(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        for name, at in (("now", clock.now()), ("later", clock.now() + HOUR)):
            await made(storage, name, next_at=at)
            await written(storage, a_write(name, 1, body=None))
        due = await storage.schedules.due(10)
        assert (due.rows, due.next_at) == ([], None)

    async def test_a_due_time_long_past_is_kept(self, storage: Storage) -> None:
        times = [datetime(year, 2, 3, 4, 5, 6, 7, tzinfo=UTC) for year in (1969, 1903, 2001)]
        await written(storage, *(a_write(f"s{at.year}", next_at=at) for at in times))
        due = await storage.schedules.due(10)
        assert [row.next_at for row in due.rows] == sorted(times)
