"""An app with a job that takes its whole worker along, for `test_poison`."""

from __future__ import annotations

import asyncio
import os
import signal

from windlass import Backoff, Failure, Windlass

PLACE = "POISON_URL"
"""The variable that says where its jobs live."""


def build(url: str) -> Windlass:
    """The app, with settings that notice a death soon."""
    app = Windlass(url, heartbeat=0.3, lease=1, reap_every=0.2, poll=0.1)

    @app.task(name="mourn")
    async def mourn(failure: Failure) -> str:
        return failure.error_kind

    @app.task(name="poison", backoff=Backoff.none(), on_failure=mourn)
    async def poison() -> None:
        await asyncio.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)

    @app.task(name="innocent", backoff=Backoff.none())
    async def innocent(number: int) -> int:
        await asyncio.sleep(0.4)
        return number

    return app


app = build(os.environ.get(PLACE, "memory://"))
