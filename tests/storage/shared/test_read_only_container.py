"""A container that can write nowhere: PostgreSQL and Redis need no file of ours."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

import pytest

from windlass import Windlass
from windlass._storage.shared import worker_locks


@pytest.mark.parametrize("backend", ["postgres", "redis"])
async def test_workers_run_without_a_writable_folder_and_say_so_once(
    backend: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    postgres = backend == "postgres"
    url, own = request.getfixturevalue("postgres_schema" if postgres else "redis_prefix")
    app = Windlass(url, **({"schema": own} if postgres else {"prefix": own}))

    @app.task
    async def double(number: int) -> int:
        return 2 * number

    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "missing")])
    worker_locks._say_once.cache_clear()
    async with app:
        job = await double.enqueue(21)
        assert not caplog.records  # a program that only enqueues lacks nothing
        for _ in range(2):
            async with app.worker(until_empty=True) as worker:
                await worker.wait()
        assert await job.result(timeout=30) == 42
    said = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(said) == 1
    assert "Set XDG_RUNTIME_DIR or TMPDIR to a writable folder" in said[0]
