"""The plugin inside an application: ``pytest`` in this folder."""

import asyncio
from collections.abc import Sequence

import pytest
from windlass_reminders import Reminders

from windlass import Grants, Windlass
from windlass.errors import NotGranted
from windlass.testing import Drained, drain, isolated

GRANTS = Grants(tasks=True, schedules=True, queues=["default"], services=["notifier"])


class Host:
    """What an application would attach."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def open_tasks(self) -> Sequence[tuple[str, str]]:
        return [("ada", "the engine"), ("bob", "the bridge")]

    async def notify(self, user: str, text: str) -> None:
        self.told.append((user, text))


def a_morning(app: Windlass) -> Drained:
    """Everything that comes of one morning."""

    async def live() -> Drained:
        with isolated(app):
            await app.tasks["reminders.morning"].enqueue()
            return await drain(app)

    return asyncio.run(live())


def test_everybody_is_reminded() -> None:
    app, host = Windlass("memory://"), Host()
    app.install(Reminders(), grants=GRANTS)
    app.services.attach("notifier", host)
    assert a_morning(app).raise_errors().succeeded == 3
    assert host.told == [
        ("ada", "Do not forget: the engine"),
        ("bob", "Do not forget: the bridge"),
    ]


def test_without_its_host_the_morning_passes_quietly() -> None:
    app = Windlass("memory://")
    app.install(Reminders(), grants=GRANTS)
    assert a_morning(app).raise_errors().ran == 1


def test_it_says_what_it_needs() -> None:
    with pytest.raises(NotGranted, match="notifier"):
        Windlass("memory://").install(
            Reminders(), grants=Grants(tasks=True, schedules=True, queues=["default"])
        )
