"""Services: objects that an application lends to handlers, by name, through weak references."""

from __future__ import annotations

import inspect
import logging
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeVar, overload

from windlass._core.job.control import Snooze
from windlass._core.values.names import check_name, shown
from windlass.errors import InvalidArgument, NotGranted, ServiceMissing, suggestion

__all__ = ["AttachedServices", "Services"]

log = logging.getLogger("windlass")
T = TypeVar("T")
Kind = Callable[..., T]
"""A class. A type alias, because type checkers do not accept a protocol as ``type[T]``."""

_Find = Callable[[], Any]
"""Returns the object, or None when the host no longer holds it."""
_LATER = 5.0
"""Seconds until a skipped run is tried again: the host may be up by then."""


def _at_work() -> bool:
    return False


class Services:
    """Objects that the application lends to handlers, by name: ``ctx.services``."""

    __slots__ = ("_found", "_granted", "_stopping", "_whose")

    def __init__(
        self,
        found: Mapping[str, _Find],
        *,
        stopping: Callable[[], bool] = _at_work,
        granted: Collection[str] | None = None,
        whose: str = "",
    ) -> None:
        """Keep the services. ``found`` may still grow. ``granted``: None for the host's own
        handlers, which may use all.
        """
        self._found = found
        self._stopping = stopping
        self._granted = granted
        self._whose = whose

    @property
    def names(self) -> list[str]:
        """The names of the services that are attached now and may be used."""
        there = [name for name in self._found if self._object(name) is not None]
        return sorted(name for name in there if self._allowed(name))

    @overload
    def get(self, name: str) -> Any: ...
    @overload
    def get(self, name: str, kind: Kind[T]) -> T | None: ...
    def get(self, name: str, kind: Kind[Any] = object) -> Any:
        """Return the service, or None if it is not attached.

        ``kind``: the class or protocol it must have; ServiceMissing if it has another.
        """
        service = self._asked(name)
        if service is None:
            log.debug("service %r is not attached: %s gets None", name, self._asker)
            return None
        return self._checked(name, service, kind)

    @overload
    def need(self, name: str) -> Any: ...
    @overload
    def need(self, name: str, kind: Kind[T]) -> T: ...
    def need(self, name: str, kind: Kind[Any] = object) -> Any:
        """Return the service, or raise ServiceMissing.

        ``kind``: the class or protocol it must have. While the host shuts down, the run is
        postponed instead of failed: it uses no attempt, and no breaker counts it.
        """
        service = self._asked(name)
        if service is not None:
            return self._checked(name, service, kind)
        if name in self._found or self._stopping():
            log.debug("service %r is gone, its host shuts down: the job runs again later", name)
            raise Snooze(_LATER)
        near = suggestion(name, self.names)
        raise ServiceMissing(
            f"No service {name!r} is attached, and {self._asker} needs it.{near} Call "
            f"app.services.attach({name!r}, …) in the program that runs the worker, in a lifespan "
            f"for example, or use services.get({name!r}), which returns None without it."
        )

    def only(self, granted: Collection[str], whose: str) -> Services:
        """Return these services, limited to the granted names."""
        allowed = [name for name in granted if self._allowed(name)]
        return Services(self._found, stopping=self._stopping, granted=allowed, whose=whose)

    def _asked(self, name: str) -> Any:
        if not self._allowed(name):
            raise NotGranted(
                f"{self._asker} asks for service {name!r}, which its host has not granted. Grant "
                f"it: app.install(…, grants=Grants(services=[{name!r}], …))."
            )
        return self._object(name)

    def _object(self, name: str) -> Any:
        find = self._found.get(name)
        return None if find is None else find()

    def _allowed(self, name: str) -> bool:
        return self._granted is None or name in self._granted

    @property
    def _asker(self) -> str:
        return f"plugin {self._whose!r}" if self._whose else "the handler"

    def _checked(self, name: str, service: Any, kind: Any) -> Any:
        try:
            fits = isinstance(service, kind)
        except TypeError:
            message = (
                f"service {name!r} cannot be compared with {shown(kind)}: decorate the protocol "
                f"with @typing.runtime_checkable, or ask for a class"
            )
            raise InvalidArgument(message) from None
        if not fits:
            raise ServiceMissing(
                f"Service {name!r} is a {type(service).__name__}, and {self._asker} needs a "
                f"{kind.__name__}. Attach one of that kind."
            )
        return service


class AttachedServices(Services):
    """``app.services``: the host attaches its services here."""

    __slots__ = ("_refs",)

    def __init__(self) -> None:
        self._refs: dict[str, _Find] = {}
        super().__init__(self._refs)

    def attach(self, name: str, service: object) -> bool:
        """Lend ``service`` to handlers for as long as you hold a reference to it.

        It is held weakly, so that jobs do not keep your application alive. While a service of the
        same name is attached, another one is ignored and the answer is False.
        """
        check_name(name, "a service's name")
        if self._object(name) is not None:
            log.debug("service %r is attached already: the second one is ignored", name)
            return False
        if service is None or inspect.ismethod(service):
            # A bound method is a new object each time: a weak reference to it would be dead at
            # once.
            message = f"attach the object itself as service {name!r}, got {shown(service)}"
            raise InvalidArgument(message)
        try:
            self._refs[name] = weakref.ref(service)
        except TypeError:
            message = (
                f"service {name!r} is a {type(service).__name__}, which allows no weak references: "
                f"attach an object of your own class that holds it"
            )
            raise InvalidArgument(message) from None
        return True

    def with_own(self, own: Mapping[str, object], stopping: Callable[[], bool]) -> Services:
        """Return these services and a worker's own. ``stopping`` tells whether the worker shuts
        down.
        """
        return Services(_Chained(self._refs, own), stopping=stopping)


class _Chained(Mapping[str, _Find]):
    """The host's services, which may still grow, and a worker's own."""

    def __init__(self, refs: Mapping[str, _Find], own: Mapping[str, object]) -> None:
        self._refs = refs
        self._own = own

    def __getitem__(self, name: str) -> _Find:
        if name in self._own:
            service = self._own[name]
            return lambda: service
        return self._refs[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._refs, **self._own})

    def __len__(self) -> int:
        return len({**self._refs, **self._own})
