from __future__ import annotations

import gc

from tests.worker.fixtures import MIDDLE
from windlass import Windlass
from windlass._worker.run.execution import Execution


async def test_a_finished_run_leaves_nothing_for_the_garbage_collector() -> None:
    app = Windlass("memory://", seams=MIDDLE)

    @app.task
    async def greet(name: str) -> str:
        return f"hello {name}"

    async with app, app.worker():
        jobs = await app.enqueue_many([greet.call(str(number)) for number in range(50)])
        gc.collect()
        gc.disable()
        try:
            for job in jobs:
                await job.result(timeout=30)
            # By type alone: isinstance asks objects that answer for others, and wake them up.
            runs = [thing for thing in gc.get_objects() if type(thing) is Execution]
        finally:
            gc.enable()
    ids = {job.id for job in jobs}
    assert [run for run in runs if run.job.claim.job in ids] == []
