"""The small protocol through which every job system is measured, Windlass included.

A module of `benchmarks.peers.systems` has

- the tasks ``noop``, ``nap`` and ``pick_up``, which call `benchmarks.peers.probe.ran`,
- a class ``Client``, as below, which stores calls of them,
- a function ``worker(load, number)``, which returns the `Command` that starts one worker process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, Protocol

__all__ = ["NAP_SECONDS", "Call", "Client", "Command", "Load", "chunks", "nap", "noop", "pick_up"]

Load = Literal["noops", "naps"]
"""The jobs that a worker runs: jobs that do nothing, or jobs that sleep, 100 at once."""

NAP_SECONDS = 0.010


class Call(NamedTuple):
    """A job to store: the name of a task, and its arguments."""

    task: str
    arguments: dict[str, Any]


class Command(NamedTuple):
    """A worker's command line, and how many jobs that worker runs at once."""

    words: list[str]
    slots: int


class Client(Protocol):
    """The side of a job system that stores jobs. Synchronous systems block in these methods."""

    async def open(self) -> None:
        """Connect, and make the tables where there are any."""
        ...

    async def enqueue(self, call: Call) -> None:
        """Store one job; return when the server has it."""
        ...

    async def enqueue_many(self, calls: Sequence[Call]) -> None:
        """Store jobs by the fastest way that the documentation names."""
        ...

    async def is_drained(self) -> bool:
        """Say whether no job is waiting or running, as far as the system keeps account of it."""
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...


def noop(number: int) -> Call:
    """Call a task that does nothing, with arguments of an ordinary size."""
    return Call(
        "noop",
        {
            "recipient": f"{number}@example.com",
            "subject": "Your order is on its way",
            "template_name": "shipped",
            "user": number,
        },
    )


def nap(number: int) -> Call:
    """Call a task that sleeps."""
    return Call("nap", {"seconds": NAP_SECONDS, "number": number})


def pick_up(asked_at: float) -> Call:
    """Call a task that tells when it was started."""
    return Call("pick_up", {"asked_at": asked_at})


def chunks(calls: Sequence[Call], size: int) -> Iterator[Sequence[Call]]:
    """Divide calls into portions."""
    for start in range(0, len(calls), size):
        yield calls[start : start + size]
