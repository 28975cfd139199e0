"""Grants: what a host allows a plugin. The default is nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

import msgspec

from windlass._core.values.names import check_name, check_queue, shown
from windlass.errors import InvalidArgument

__all__ = ["Grants", "MiddlewareGrant"]

MiddlewareGrant = Literal["own", "all"]


class Grants(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The permissions of one plugin. A permission that you leave out is not granted.

    - ``tasks``, ``schedules``, ``chores``: True allows the plugin to add them.
    - ``middleware``: "own" runs its middleware around its own jobs, "all" around every job.
    - ``max_running``: how many of its jobs run at once in the whole cluster. None: no limit.
    - ``queues``: the queues its jobs may use. A task that names none uses the first.
    - ``services``: the services its handlers may ask for.
    """

    tasks: bool = False
    schedules: bool = False
    chores: bool = False
    middleware: MiddlewareGrant | None = None
    max_running: int | None = None
    queues: tuple[str, ...] = ()
    services: tuple[str, ...] = ()

    if TYPE_CHECKING:  # the record holds tuples and takes any collection of names

        def __init__(
            self,
            *,
            tasks: bool = False,
            schedules: bool = False,
            chores: bool = False,
            middleware: MiddlewareGrant | None = None,
            max_running: int | None = None,
            queues: Iterable[str] = (),
            services: Iterable[str] = (),
        ) -> None: ...

    def __post_init__(self) -> None:
        for name in ("tasks", "schedules", "chores"):
            given: object = getattr(self, name)
            if not isinstance(given, bool):
                message = f"{name} is granted or not, True or False, got {shown(given)}"
                raise InvalidArgument(message)
        layer: object = self.middleware
        if layer not in (None, "own", "all"):
            message = f"middleware is granted as 'own' or 'all', got {shown(layer)}"
            raise InvalidArgument(message)
        most: object = self.max_running
        whole = isinstance(most, int) and not isinstance(most, bool) and most >= 1
        if most is not None and not whole:
            message = f"max_running is a whole number, at least 1, got {shown(most)}"
            raise InvalidArgument(message)
        for name, what in (("queues", "a queue's name"), ("services", "a service's name")):
            check = check_queue if name == "queues" else check_name
            names = _names(getattr(self, name), name)
            msgspec.structs.force_setattr(
                self, name, tuple(dict.fromkeys(check(one, what) for one in names))
            )


def _names(given: object, what: str) -> tuple[str, ...]:
    # A single text is refused: its letters are hardly the names that were meant.
    if isinstance(given, str) or not isinstance(given, Iterable):
        message = f"{what} is a list of names such as {what}=['mail'], got {shown(given)}"
        raise InvalidArgument(message)
    return tuple(given)
