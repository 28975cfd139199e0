"""A server that is restarted and killed while it works: nothing it has acknowledged is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.crash.harness.backends import on_prefix, on_schema
from tests.crash.harness.processes import Processes, stand_still, until
from tests.crash.harness.roles import UNKNOWN
from tests.crash.harness.scene import Scene
from tests.servers.postgres import PostgresServer
from tests.servers.valkey import ValkeyServer

pytestmark = pytest.mark.chaos

RESTARTS = 5
JOBS = 2500
SOON = 2.0
"""Seconds after the server's return in which workers must go on claiming."""

Server = PostgresServer | ValkeyServer


@pytest.fixture(params=["postgres", "redis"])
def shaken(
    request: pytest.FixtureRequest, tmp_path: Path, processes: Processes
) -> Iterator[tuple[Server, Scene]]:
    """A server of this test's own that writes down what it acknowledges, and a scene on it."""
    server: Server
    if request.param == "postgres":
        server = request.getfixturevalue("own_postgres")(durable=True)
        place = on_schema(server.url, "windlass")
    else:
        server = request.getfixturevalue("own_valkey")(appendfsync="always")
        place = on_prefix(server.url, "windlass")
    scene = Scene(tmp_path, processes, place)
    yield server, scene
    scene.open_gate()
    processes.end_all()
    scene.store.close()


def how(server: Server, number: int) -> Callable[[], None]:
    """In order and not, by turns."""
    return server.crash if number % 2 else server.stop


def test_five_restarts_under_load_lose_nothing(shaken: tuple[Server, Scene]) -> None:
    server, scene = shaken
    scene.enqueue("work", 0.001, count=JOBS)
    known = scene.folder / "known"
    workers = [scene.worker("--slots", "4") for _ in range(2)]
    producer = scene.start("producer", known=str(known), seed=1, count=300)
    until(lambda: known.exists() and known.stat().st_size > 0, "the producer is heard")
    returns = []
    for number in range(RESTARTS):
        began = len(scene.effects.read())
        until(lambda began=began: len(scene.effects.read()) > began + 50, "the load is on")  # type: ignore[misc]
        how(server, number)()
        stand_still(0.3 * number)
        server.start()
        returns.append(_goes_on(scene))
    assert producer.wait() == 0, producer.text
    unknown = [line.split()[0] for line in producer.text.splitlines() if line.endswith(UNKNOWN)]
    scene.known += known.read_text(encoding="ascii").split()
    scene.settle(*workers, seconds=60)
    scene.audit(unknown=sum(map(int, unknown)))
    assert max(returns) <= SOON, returns


def _goes_on(scene: Scene) -> float:
    """How long it takes until jobs run that were claimed after now."""
    before = {effect.run for effect in scene.effects.read()}
    held = 2 * 2 * 4  # what two workers of four slots may have claimed before: running and ahead
    return until(lambda: len({e.run for e in scene.effects.read()} - before) > held, "work goes on")
