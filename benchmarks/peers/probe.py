"""Runs inside a measured process: says where the store is, and records every run.

Each run appends 16 bytes to a file that all worker processes share. The kernel keeps such small
appends whole, also from forks and threads. A record costs about a microsecond, the same for every
system, and needs no server.
"""

from __future__ import annotations

import functools
import os
import struct
import time

__all__ = ["RECORD", "RUNS", "SLOTS", "URL", "ran", "slots", "url"]

URL, RUNS, SLOTS = "PEERS_URL", "PEERS_RUNS", "PEERS_SLOTS"
"""Environment variables: the store, the file of the runs, jobs at once."""

RECORD = struct.Struct("=dd")
"""A number that the caller gave the job, and the instant of the run."""


def url() -> str:
    """Return the URL of the store that is measured on."""
    return os.environ[URL]


def slots() -> int:
    """Return how many jobs this worker runs at once; a client does not care."""
    return int(os.environ.get(SLOTS, "1"))


def ran(number: float) -> None:
    """Record a run, on the monotonic clock that all processes of the machine share."""
    os.write(_runs(), RECORD.pack(number, time.monotonic()))


@functools.cache
def _runs() -> int:
    return os.open(os.environ[RUNS], os.O_WRONLY | os.O_APPEND)
