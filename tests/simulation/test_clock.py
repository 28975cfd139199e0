from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone

import pytest

from tests.simulation.framework.loop import SimLoop, run
from windlass._system.seams import Clock
from windlass.testing._clock import START, LoopClock, VirtualClock

HOUR = timedelta(hours=1)


def test_a_virtual_clock_stands_still_until_it_is_moved() -> None:
    clock = VirtualClock()
    assert clock.now() == clock.now() == datetime(2030, 1, 1, tzinfo=UTC)
    assert clock.boot() == timedelta()


def test_time_passes_by_a_duration_or_by_seconds() -> None:
    clock = VirtualClock()
    clock.advance(HOUR)
    clock.advance(0.5)
    assert clock.now() == START + HOUR + timedelta(milliseconds=500)
    assert clock.boot() == HOUR + timedelta(milliseconds=500)


def test_setting_a_later_instant_lets_time_pass_until_then() -> None:
    clock = VirtualClock()
    clock.set(START + HOUR)
    assert clock.now() == START + HOUR
    assert clock.boot() == HOUR


def test_time_does_not_pass_backwards() -> None:
    clock = VirtualClock()
    with pytest.raises(ValueError, match=r"use jump\(\)"):
        clock.advance(-1)
    with pytest.raises(ValueError, match=r"use jump\(\)"):
        clock.set(START - HOUR)
    assert clock.now() == START


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_a_jump_moves_the_wall_clock_and_no_time_passes(step: timedelta) -> None:
    clock = VirtualClock()
    clock.advance(HOUR)
    clock.jump(START + step)
    assert clock.now() == START + step
    assert clock.boot() == HOUR


def test_instants_without_a_time_zone_are_refused() -> None:
    naive = datetime(2031, 1, 1)  # noqa: DTZ001 -- the point of the test
    clock = VirtualClock()
    for refused in (VirtualClock, clock.set, clock.jump):
        with pytest.raises(ValueError, match="has no time zone"):
            refused(naive)


def test_instants_of_other_time_zones_are_shown_in_utc() -> None:
    clock = VirtualClock(datetime(2030, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))))
    assert clock.now() == START
    assert clock.now().tzinfo is UTC


def test_listeners_hear_of_every_move_after_it_in_the_order_of_subscription() -> None:
    clock = VirtualClock()
    heard: list[tuple[str, datetime]] = []
    stop = clock.subscribe(lambda: heard.append(("first", clock.now())))
    clock.subscribe(lambda: heard.append(("second", clock.now())))

    clock.advance(HOUR)
    stop()
    stop()
    clock.jump(START)

    assert heard == [("first", START + HOUR), ("second", START + HOUR), ("second", START)]


def test_a_listener_that_unsubscribes_while_it_is_called_silences_nobody_else() -> None:
    clock = VirtualClock()
    heard: list[str] = []

    def once() -> None:
        heard.append("once")
        stop()

    stop = clock.subscribe(once)
    clock.subscribe(lambda: heard.append("always"))
    clock.advance(1)
    clock.advance(1)
    assert heard == ["once", "always", "always"]


def test_a_listener_that_joins_during_a_move_hears_of_the_next_one() -> None:
    clock = VirtualClock()
    heard: list[datetime] = []
    clock.subscribe(lambda: clock.subscribe(lambda: heard.append(clock.now())))
    clock.advance(HOUR)
    assert heard == []
    clock.advance(HOUR)
    assert heard == [START + 2 * HOUR]


def test_a_loop_clock_shows_virtual_seconds_as_instants() -> None:
    async def main(loop: SimLoop) -> None:
        clock = LoopClock(loop)
        await asyncio.sleep(3600)
        assert (clock.now(), clock.boot()) == (START + HOUR, HOUR)
        clock.jump(START)
        assert (clock.now(), clock.boot()) == (START, HOUR)
        await asyncio.sleep(3600)
        assert (clock.now(), clock.boot()) == (START + HOUR, 2 * HOUR)

    run(main, seed=1, limit=7200)


def test_both_clocks_are_clocks_for_a_storage() -> None:
    loop = SimLoop()
    clocks: list[Clock] = [VirtualClock(), LoopClock(loop)]
    assert [clock.now() for clock in clocks] == [START, START]
    loop.close()
