from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
import uuid
from datetime import UTC, timedelta

import pytest

from windlass._system import seams
from windlass._system.seams import (
    SYSTEM_CLOCK,
    Seams,
    chance,
    monotonic,
    new_job_id,
    new_job_ids,
    new_worker_id,
)

# --- ids --------------------------------------------------------------------------------------


def test_job_ids_do_not_repeat() -> None:
    made = [*new_job_ids(20_000), *(new_job_id() for _ in range(5_000))]
    assert len(set(made)) == len(made) == 25_000


@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_as_many_job_ids_are_made_as_are_asked_for(count: int) -> None:
    assert len(new_job_ids(count)) == count


def test_a_job_id_is_a_version_7_uuid_in_32_hex_digits() -> None:
    for made in [new_job_id(), *new_job_ids(200)]:
        assert re.fullmatch(r"[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}", made)
        read = uuid.UUID(made)
        assert (read.version, read.variant) == (7, uuid.RFC_4122)


def test_a_job_id_begins_with_the_millisecond_it_was_made_in() -> None:
    before = time.time_ns() // 1_000_000
    made = new_job_id()
    after = time.time_ns() // 1_000_000
    assert before <= int(made[:12], 16) <= after


def test_job_ids_sort_by_the_millisecond_they_were_made_in() -> None:
    made: dict[str, str] = {}  # the last id of each millisecond
    while len(made) < 4:
        fresh = new_job_id()
        made[fresh[:12]] = fresh
    assert sorted(made.values()) == list(made.values())


def test_all_other_bits_of_a_job_id_are_chance() -> None:
    ids = [int(made, 16) for made in new_job_ids(400)]
    random_bits = [*range(62), *range(64, 76)]
    stuck = [bit for bit in random_bits if len({made >> bit & 1 for made in ids}) == 1]
    assert stuck == []


def test_threads_do_not_repeat_each_others_ids() -> None:
    made: list[str] = []

    def make() -> None:
        for _ in range(100):
            made.extend(new_job_ids(20))

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == len(made) == 8_000


def test_a_worker_id_is_short_and_does_not_repeat() -> None:
    made = {new_worker_id() for _ in range(2_000)}
    assert len(made) == 2_000
    assert all(re.fullmatch(r"w[0-9a-f]{12}", worker) for worker in made)


FORKED = """
import os
from windlass._system.seams import chance, new_job_id, new_worker_id
chance()
read, write = os.pipe()
if os.fork() == 0:
    os.write(write, repr([new_job_id()[13:], new_worker_id(), chance()]).encode())
    os._exit(0)
os.wait()
print([new_job_id()[13:], new_worker_id(), chance()])
print(os.read(read, 1000).decode())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform does not fork")
def test_a_forked_child_does_not_repeat_the_ids_of_its_parent() -> None:
    # In a process of its own: forking is safe only before any thread has started.
    printed = subprocess.run(
        [sys.executable, "-c", FORKED], check=True, capture_output=True, text=True, timeout=30
    )
    parent, child = printed.stdout.splitlines()
    assert parent.startswith("['")
    assert all(mine != theirs for mine, theirs in zip(parent.split(), child.split(), strict=True))


# --- chance and time --------------------------------------------------------------------------


def test_chance_is_drawn_from_zero_up_to_but_not_including_one() -> None:
    drawn = [chance() for _ in range(2_000)]
    assert all(0 <= draw < 1 for draw in drawn)
    assert min(drawn) < 0.05
    assert max(drawn) > 0.95


def test_the_wall_clock_is_aware_and_in_utc() -> None:
    now = SYSTEM_CLOCK.now()
    assert now.tzinfo is UTC
    assert abs(now.timestamp() - time.time()) < 60


def test_the_clocks_that_must_not_step_do_not_run_backwards() -> None:
    assert SYSTEM_CLOCK.boot() <= SYSTEM_CLOCK.boot()
    assert SYSTEM_CLOCK.boot() > timedelta(0)
    assert monotonic() <= monotonic()


def test_a_thread_has_a_name_and_keeps_no_dying_process_alive() -> None:
    ran = threading.Event()
    thread = seams.start_thread("heartbeat", ran.set)
    thread.join(10)
    assert ran.is_set()
    assert (thread.name, thread.daemon) == ("windlass-heartbeat", True)


def test_the_seams_can_be_replaced_as_one_value() -> None:
    assert Seams().new_job_ids is new_job_ids
    fixed = Seams(chance=lambda: 0.25)
    assert fixed.chance() == 0.25
    assert fixed.new_worker_id is new_worker_id
