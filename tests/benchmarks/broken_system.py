"""Windlass with a fault for each thing that the harness of ``make bench-peers`` must notice.

The name of the database file chooses the fault.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.peers import probe
from benchmarks.peers.protocol import Call, Command, Load
from benchmarks.peers.systems import windlass

FAULTS = ("loses", "repeats", "dies", "idles")


def _fault() -> str:
    return probe.url().rpartition("/")[2].removesuffix(".db")


class Client(windlass.Client):
    async def enqueue_many(self, calls: Sequence[Call]) -> None:
        match _fault():
            case "loses":
                calls = calls[1:]
            case "repeats":
                calls = [calls[1], *calls[1:]]
        await super().enqueue_many(calls)


def worker(load: Load, number: int) -> Command:
    match _fault():
        case "dies":
            return Command(["python", "-c", "raise SystemExit('no such queue')"], 1)
        case "idles":
            return Command(["python", "-c", "import time; time.sleep(600)"], 1)
    return windlass.worker(load, number)
