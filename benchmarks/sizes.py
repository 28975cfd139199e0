"""How much of everything: enough to be sure of a figure, or enough to see that it is right."""

from __future__ import annotations

import msgspec

__all__ = ["FULL", "QUICK", "TINY", "Sizes"]


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is made of."""

    name: str
    rounds: int
    drain_jobs: int
    insert_jobs: int
    single_enqueues: int
    latency_samples: int
    warm_samples: int
    idle_seconds: float
    few_rows: int
    many_rows: int
    claims: int
    lanes: int
    sleeping_jobs: int
    memory_jobs: int
    endurance_jobs: int
    closed_jobs: int
    page_jobs: int
    list_failed: int
    list_waiting: int
    list_schedules: int
    list_rounds: int
    page_rounds: int
    action_jobs: int
    action_rows: int
    pings: int
    closed_seconds: float
    rate_seconds: float
    misfits: int
    flow_jobs: int
    against_jobs: int
    against_lone: int
    against_rounds: int


FULL = Sizes(
    name="full",
    rounds=7,
    drain_jobs=50_000,
    insert_jobs=50_000,
    single_enqueues=3_000,
    latency_samples=120,
    warm_samples=500,
    idle_seconds=2.0,
    few_rows=10_000,
    many_rows=1_000_000,
    claims=38,
    lanes=10_000,
    sleeping_jobs=40_000,
    memory_jobs=300_000,
    endurance_jobs=500_000,
    closed_jobs=100_000,
    page_jobs=2_000_000,
    list_failed=12_000,
    list_waiting=1_000_000,
    list_schedules=3_000,
    list_rounds=15,
    page_rounds=5,
    action_jobs=100_000,
    action_rows=666_000,
    pings=150,
    closed_seconds=30.0,
    rate_seconds=20.0,
    misfits=50_000,
    flow_jobs=100_000,
    against_jobs=50_000,
    against_lone=500,
    against_rounds=9,
)
QUICK = Sizes(
    name="quick",
    rounds=3,
    drain_jobs=20_000,
    insert_jobs=20_000,
    single_enqueues=500,
    latency_samples=10,
    warm_samples=200,
    idle_seconds=2.0,
    few_rows=10_000,
    many_rows=100_000,
    claims=38,
    lanes=1_000,
    sleeping_jobs=40_000,
    memory_jobs=30_000,
    endurance_jobs=50_000,
    closed_jobs=20_000,
    page_jobs=50_000,
    list_failed=12_000,
    list_waiting=100_000,
    list_schedules=3_000,
    list_rounds=15,
    page_rounds=5,
    action_jobs=100_000,
    action_rows=200_000,
    pings=150,
    closed_seconds=10.0,
    rate_seconds=10.0,
    misfits=50_000,
    flow_jobs=20_000,
    against_jobs=10_000,
    against_lone=200,
    against_rounds=5,
)
TINY = Sizes(
    name="tiny",
    rounds=1,
    drain_jobs=400,
    insert_jobs=1_000,
    single_enqueues=20,
    latency_samples=2,
    warm_samples=2,
    idle_seconds=0.0,
    few_rows=2_000,
    many_rows=4_000,
    claims=5,
    lanes=50,
    sleeping_jobs=200,
    memory_jobs=500,
    endurance_jobs=1_000,
    closed_jobs=300,
    page_jobs=3_000,
    list_failed=60,
    list_waiting=200,
    list_schedules=20,
    list_rounds=1,
    page_rounds=1,
    action_jobs=300,
    action_rows=400,
    pings=8,
    closed_seconds=0.5,
    rate_seconds=0.2,
    misfits=100,
    flow_jobs=600,
    against_jobs=400,
    against_lone=20,
    against_rounds=1,
)
