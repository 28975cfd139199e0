"""How busy the storage is: the time that workers wait for it, and the jobs that share a call.

Both rise when a storage is full. While a worker waits, more of its jobs end, so its next call
carries more of them. The worker that leads measures both, once a minute.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from statistics import fmean

from windlass._admin.doctor.finding import Finding, bad, ok, warn
from windlass._admin.doctor.work_checks import LiveWorkers
from windlass._core.stats.gauges import Gauge, GaugeRow, add_gauges
from windlass._observe.log import brief

__all__ = ["LOAD_SPAN", "check_load"]

LOAD_SPAN = timedelta(minutes=10)
_LATE = (0.25, 2.0)
"""Seconds within which 95 % of the writes are answered."""
_LARGE = 0.5
"""A claim is large if it fills this share of a worker's slots."""
_TELLING = 10
"""With fewer slots the size of a claim says nothing: one job is the smallest and fills most."""
_FEW = f"With fewer than {_TELLING} slots, batches do not tell whether the storage is full"
_MEANINGS = {  # whether waits are long and batches large: the table in docs/operating/doctor.md
    (False, False): "The storage has room: more workers bring more throughput.",
    (False, True): "The workers are the limit, not the storage: add slots or workers.",
    (True, False): "The storage is slow, not full.",
    (True, True): "The storage is full: more workers bring little.",
}


def check_load(rows: Sequence[GaugeRow], crew: LiveWorkers) -> Iterator[Finding]:
    """Yield the waits and the sizes of batches. ``rows``: the storage's gauges of `LOAD_SPAN`."""
    gauges = add_gauges(row.gauges for row in rows)
    slots = fmean([one.start.slots for one in crew.live]) if crew.live else None
    batch = _mean(gauges, "jobs_per_claim")
    few = slots is not None and slots < _TELLING
    large = None if batch is None or slots is None or few else batch >= slots * _LARGE
    yield from _waits(gauges, large=large, few=few)
    yield from _batches(gauges, slots, large=large, few=few)


def _waits(gauges: Mapping[str, Gauge], *, large: bool | None, few: bool) -> Iterator[Finding]:
    writes, reads = _mean(gauges, "write_p95"), _mean(gauges, "read_p95")
    if writes is None:
        return
    text = (
        f"In the last 10 minutes the storage answered 95 % of a worker's writes within "
        f"{_time(writes)}, in the worst minute within {_time(gauges['write_p95'].peak)}"
        + (f", and its reads within {_time(reads)}." if reads is not None else ".")
    )
    fix = (
        "Check the storage's processor, disk and network, and the batches below: large ones mean "
        "that it is full"
    )
    if few:
        fix = f"Check the storage's processor, disk and network. {_FEW}"
    elif large:
        fix = (
            "The storage is full, as workers claim in large batches already: give it a faster disk "
            "or processor, keep fewer ended jobs (keep_succeeded), or move some queues to another "
            "storage"
        )
    elif large is False:
        fix = (
            "The storage is slow, not full, as batches are small: check its disk, the network, and "
            "other programs on its machine"
        )
    if writes >= _LATE[1]:
        yield bad("waits", text, fix)
    elif writes >= _LATE[0]:
        yield warn("waits", text, fix)
    else:
        yield ok("waits", text)


def _batches(
    gauges: Mapping[str, Gauge], slots: float | None, *, large: bool | None, few: bool
) -> Iterator[Finding]:
    parts = [
        f"{verb} {size:,.1f} jobs"
        for verb, size in (
            ("a claim took", _mean(gauges, "jobs_per_claim")),
            ("a write ended", _mean(gauges, "jobs_per_finish")),
        )
        if size is not None
    ]
    if not parts:
        return
    text = " and ".join(parts)
    beside = ""
    if slots is not None:
        beside = f", with {slots:,.0f} slot{'' if round(slots) == 1 else 's'} for each worker"
    writes = _mean(gauges, "write_p95")
    meaning = "Batches grow with the load."
    if few:
        meaning = f"{_FEW}."
    elif large is not None and writes is not None:
        meaning = _MEANINGS[writes >= _LATE[0], large]
    yield ok("batches", f"{text[0].upper()}{text[1:]} on average{beside}. {meaning}")


def _mean(gauges: Mapping[str, Gauge], name: str) -> float | None:
    gauge = gauges.get(name)
    return None if gauge is None else gauge.total / gauge.samples


def _time(seconds: float) -> str:
    return brief(timedelta(seconds=seconds))
