"""Something a person orders: asked first, done by a form, told afterwards.

GET shows the question, as a page or in a dialog; POST does it. Both stand in one line of the route
table, with the role they take.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import msgspec
from starlette.responses import Response

from windlass._observe.log import printable
from windlass._web.request import PageRequest
from windlass.errors import StorageError, WindlassError

__all__ = ["ActionNotice", "ActionPage", "Confirmation"]

log = logging.getLogger("windlass")


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """The question before an action."""

    title: str
    """Pause queue mail?"""
    sentence: str
    """The effects of the action, and its limits."""
    button: str
    """The verb: Pause queue."""
    back: str
    """The page to return to when it is not done."""
    danger: bool = False
    """It cannot be undone."""
    key: str = ""
    """Goes out with the form and comes back with it: a form that is sent twice says it twice."""


class ActionNotice(msgspec.Struct, frozen=True):
    """The completed action in words, and the page that shows it."""

    notice: str
    path: str


class ActionPage(msgspec.Struct, frozen=True, kw_only=True):
    """The page of one order."""

    ask: Callable[[PageRequest], Awaitable[Confirmation]]
    act: Callable[[PageRequest], Awaitable[ActionNotice]]
    template: str = "confirm.html"
    """One of your own may have fields; ``visit.form()`` has what was put there."""

    async def __call__(self, visit: PageRequest) -> Response:
        question = await self.ask(visit)
        if visit.method == "GET":
            return await visit.render(self.template, question=question)
        try:
            done = await self.act(visit)
        except StorageError:
            raise  # whether it was done is not known: the calm page says so
        except WindlassError as error:
            # Another user was faster, or a field is wrong: the page it came from says why.
            return visit.go(question.back, notice=str(error), bad=True)
        who = visit.person.name if visit.person is not None else "nobody"
        log.info("dashboard: %s", printable(f"{who}: {done.notice}"))
        return visit.go(done.path, notice=done.notice)
