"""Commands against a storage of their own, run in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from windlass import Limit, Rate, Throttled, Windlass
from windlass._app.parts import parts_of
from windlass._cli.main import main
from windlass._core.limits.breaker import Breaker

API = Limit("api", rate=Rate(10, per=60, burst=5))
TENANT = Limit("tenant", concurrency=2, key="{tenant}")
PRINTER = Limit("printer", concurrency=1)


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        assert self.out.count("\n") == 1
        return json.loads(self.out)

    @property
    def rows(self) -> list[list[str]]:
        """Of a table, without its head; cells are set apart by two spaces or more."""
        assert self.code == 0, self.err
        lines = [line for line in self.out.splitlines() if line.strip()]
        return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines[2:]]


def empty_file(folder: Path) -> str:
    """A storage without anything in it; a file that is not there at all is refused."""
    (folder / "jobs.db").touch()
    return f"sqlite:///{folder}/jobs.db"


class Desk:
    """Call it with the words of a command; ``app`` has the same storage, and jobs in it."""

    def __init__(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.url = url
        self._capsys = capsys
        self.app = Windlass(url)

        @self.app.task(name="fetch", limits=[API])
        async def fetch(page: str) -> None: ...

        @self.app.task(name="serve", queue="mail", limits=[TENANT, PRINTER])
        async def serve(tenant: str) -> None: ...

        @self.app.task(name="pay", queue="bank", breaker=True)
        async def pay(order: int) -> None: ...

        @self.app.task(name="refuse", queue="api")
        async def refuse() -> None:
            raise Throttled(60)

        @self.app.task(name="break", breaker=Breaker(failures=1))
        async def broken() -> None:
            raise ConnectionError("down")

        self.fetch, self.serve, self.pay = fetch, serve, pay
        self.refuse, self.broken = refuse, broken

    def __call__(self, *words: str) -> Said:
        self._capsys.readouterr()
        code = main([*words, "--url", self.url])
        return Said(code, *self._capsys.readouterr())

    def work(self) -> None:
        """Run what is ready, until nothing is."""

        async def until_empty() -> None:
            async with self.app.worker(until_empty=True) as worker:
                await worker.wait()

        self.run(until_empty())

    def run(self, question: Any) -> Any:
        return self.app.blocking.run(question)

    def close(self) -> None:
        self.run(self.app.close())
        parts_of(self.app).blocking_loop.stop()
