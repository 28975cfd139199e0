"""Schedules of a plugin that was uninstalled: held in the store, with all that is known of them."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from windlass.errors import StoreBusy
from windlass.schedules import UNINSTALLED, Known, Schedules, write_of
from windlass.storage.protocol import ScheduleStore, Written

__all__ = ["hold"]

_TRIES = 20


async def hold(book: Schedules, store: ScheduleStore, names: Collection[str]) -> None:
    """Fire none of these, in any process, until somebody installs their plugin again."""
    for _ in range(_TRIES):
        writes = [
            write_of(
                known,
                msgspec.structs.replace(known.state, problem=UNINSTALLED, held=known.row.next_at),
                None,
            )
            for known in await book.all()
            if isinstance(known, Known)
            and known.row.name in names
            and known.state.fires
            and known.row.next_at is not None  # what is only ever triggered fires nothing
        ]
        answers = await store.write(writes) if writes else ()
        if all(answer.what is not Written.STALE for answer in answers):
            return
    message = "the plugin's schedules changed again and again while being stopped: try again"
    raise StoreBusy(message)
