"""How long a worker has had the store without a gap, and whom it may therefore judge."""

from __future__ import annotations

from datetime import timedelta

from tests.worker.fixtures import World, simulate, working
from windlass._storage.protocol.workers import WorkerState
from windlass._worker.liveness.store_contact import StoreContact


class Watch:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def beating(presence: StoreContact, watch: Watch, seconds: int, *, every: float = 5) -> None:
    """Beats at their interval for a while."""
    for _ in range(int(seconds / every)):
        watch.seconds += every
        presence.reached()


def make() -> tuple[StoreContact, Watch]:
    watch = Watch()
    lease = timedelta(seconds=30)
    return StoreContact(beat=timedelta(seconds=5), lease=lease, clock=watch), watch


def test_nobody_is_judged_before_the_first_beat() -> None:
    presence, watch = make()
    assert not presence.may_judge
    watch.seconds += 1000
    assert not presence.may_judge
    assert presence.cut_off_for == 0


def test_nobody_is_judged_before_one_full_lease() -> None:
    presence, watch = make()
    presence.reached()
    beating(presence, watch, 25)
    assert not presence.may_judge
    beating(presence, watch, 5)
    assert presence.may_judge


def test_a_missed_beat_starts_the_lease_again() -> None:
    presence, watch = make()
    presence.reached()
    beating(presence, watch, 100)
    presence.missed()
    assert not presence.may_judge
    beating(presence, watch, 30)
    assert not presence.may_judge
    beating(presence, watch, 5)
    assert presence.may_judge


def test_a_gap_starts_the_lease_again_even_when_no_beat_failed() -> None:
    presence, watch = make()
    presence.reached()
    beating(presence, watch, 100)
    watch.seconds += 11  # stopped, or a beat that was answered very late
    presence.reached()
    assert not presence.may_judge
    beating(presence, watch, 25)
    assert not presence.may_judge
    beating(presence, watch, 5)
    assert presence.may_judge


def test_a_beat_that_is_merely_slow_is_no_gap() -> None:
    presence, watch = make()
    presence.reached()
    beating(presence, watch, 100)
    watch.seconds += 9
    presence.reached()
    assert presence.may_judge


def test_who_has_not_beaten_lately_judges_nobody() -> None:
    presence, watch = make()
    presence.reached()
    beating(presence, watch, 100)
    watch.seconds += 10.5
    assert not presence.may_judge


def test_it_knows_for_how_long_it_has_been_cut_off() -> None:
    presence, watch = make()
    presence.reached()
    watch.seconds += 7
    assert presence.cut_off_for == 7
    presence.missed()
    watch.seconds += 3
    assert presence.cut_off_for == 10
    presence.reached()
    assert presence.cut_off_for == 0


def test_after_a_suspend_nobody_is_judged_until_one_full_lease_later() -> None:
    presence, watch = make()
    presence.reached()
    beating(presence, watch, 100)
    watch.seconds += 3600
    assert not presence.may_judge
    presence.reached()
    assert not presence.may_judge
    beating(presence, watch, 25)
    assert not presence.may_judge
    beating(presence, watch, 5)
    assert presence.may_judge


def test_workers_that_slept_with_their_machine_do_not_bury_each_other() -> None:
    async def scenario(world: World) -> None:
        async with working(world.app) as one:
            await world.until(2.5)
            async with working(world.app) as other:
                names = [one.worker.id, other.worker.id]
                for turn in range(1, 12):
                    await world.until(turn * 60 + turn * 0.45)
                    world.clock.suspended += timedelta(hours=1)
                await world.until(800)
                assert [one.worker.id, other.worker.id] == names
                rows = await world.app.admin.workers.list()
                assert [row.state for row in rows] == [WorkerState.LIVE] * 2

    simulate(scenario)
