"""Waiting for the end of a flow."""

from __future__ import annotations

import asyncio

from windlass._core.flows.flow import FlowRecord, FlowState
from windlass._core.job.job import FlowId
from windlass._storage.protocol.storage import Storage
from windlass.errors import FlowNotFound

__all__ = ["wait_for_flow"]

_POLL = 1.0
"""Behind the wake-ups: a lost one costs this long."""
_PAUSE = 0.02
"""A busy store changes all the time; reading more often than this does not help."""


async def wait_for_flow(storage: Storage, flow: FlowId) -> FlowRecord:
    """Return the flow when it has ended, or FlowNotFound."""
    changed = asyncio.Event()
    undo = storage.wakeups.subscribe(changed.set)
    try:
        while True:
            changed.clear()
            found = await storage.flows.graph(flow)
            if found is None:
                raise FlowNotFound(flow)
            if found.flow.state is not FlowState.RUNNING:
                return found.flow
            await asyncio.sleep(_PAUSE)
            try:
                async with asyncio.timeout(_POLL):
                    await changed.wait()
            except TimeoutError:
                continue
    finally:
        undo()
