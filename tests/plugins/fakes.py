"""Plugins for tests: one that says whatever a test wants it to say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from windlass import Grants, Registrar, Windlass
from windlass._app.parts import parts_of

EVERYTHING = Grants(
    tasks=True,
    schedules=True,
    chores=True,
    middleware="all",
    queues=["default", "mail"],
    services=["mailer"],
)


class Some:
    """Says what a test wants.

    And has a second paragraph.
    """

    def __init__(self, say: Callable[[Registrar], Any], name: str = "some") -> None:
        self.name = name
        self._say = say

    def register(self, registrar: Registrar) -> None:
        self._say(registrar)


class Mailer:
    """A service."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def send(self, to: str) -> None:
        self.sent.append(to)


def untouched(app: Windlass) -> bool:
    """Whether nothing but our own plugin is part of an app."""
    schedules, _ = parts_of(app).schedules.plans(app.settings)
    return (
        list(app.plugins) == ["windlass"]
        and not len(app.tasks)
        and not parts_of(app).hooks.layers
        and sorted(schedules)
        == sorted(parts_of(app).plugins.chores)
        == ["windlass.retention", "windlass.tidy"]
    )
