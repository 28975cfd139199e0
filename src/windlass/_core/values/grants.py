"""What a host lets a plugin do: nothing, until it says otherwise."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

import msgspec

from windlass._core.values.names import check_name, check_queue, shown
from windlass.errors import InvalidArgument

__all__ = ["Grants", "MiddlewareGrant"]

MiddlewareGrant = Literal["own", "all"]


class Grants(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The capabilities of one plugin. Whatever is left out is not granted.

    ``max_running``: so many of its jobs run at once in the whole cluster; None: no bound of the
    host's. ``queues``: where its jobs may wait; those of tasks that name none wait in the first.
    ``middleware``: around its own jobs, or around all. ``services``: what its handlers may ask for.
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
    # A single text is refused: its letters are hardly what was meant.
    if isinstance(given, str) or not isinstance(given, Iterable):
        message = f"{what} is a list of names such as {what}=['mail'], got {shown(given)}"
        raise InvalidArgument(message)
    return tuple(given)
