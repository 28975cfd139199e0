"""``unique=``: which jobs share a key, how long it is held, and the effect of a conflict."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from windlass._core.job.unique import OnConflict, Window, compose_key
from windlass._core.job.unique import UniqueKey as StoredUnique
from windlass._core.values.instants import duration
from windlass._core.values.names import check_text, shown
from windlass._tasks.key_template import KeyTemplate, parse_template
from windlass.errors import InvalidArgument

__all__ = [
    "Conflict",
    "Scope",
    "Unique",
    "UniqueBinding",
    "UniqueUntil",
    "unique_of",
    "unique_of_call",
]

Conflict = Literal["reuse", "replace", "replace_arguments", "replace_due", "raise"]
Scope = Literal["task", "global"]
UniqueUntil = Literal["until_started", "until_finished"]


class Unique(msgspec.Struct, frozen=True):
    """A rule for unique jobs: one job at a time for each key.

    - ``key``: made from arguments, such as ``"{user_id}"``. Default: all given arguments.
    - ``until``: hold the key until the job has "finished" (default), or until it has "started".
    - ``for_``: hold the key for this long instead, even if the job has not ended.
    - ``scope``: "global" shares the key with other tasks. Default: "task".
    - ``on_conflict``: what a call does while another job holds the key.

    ``on_conflict`` is one of these:

    - "reuse" (default): return the job that holds the key.
    - "replace": give that job the new arguments and the new due time, if it is still waiting. Use
      it to debounce.
    - "replace_arguments", "replace_due": replace one of the two.
    - "raise": raise KeyConflict.

    A running job cannot take new arguments. So the replacing kinds hold the key until the job has
    started, unless ``until`` or ``for_`` is given.
    """

    key: str | None = None
    until: Literal["finished", "started"] | None = None
    for_: timedelta | None = None
    scope: Scope = "task"
    on_conflict: Conflict = "reuse"

    if TYPE_CHECKING:  # the record holds one kind of duration and takes both

        def __init__(
            self,
            key: str | None = None,
            until: Literal["finished", "started"] | None = None,
            for_: timedelta | float | str | None = None,
            scope: Scope = "task",
            on_conflict: Conflict = "reuse",
        ) -> None: ...

    def __post_init__(self) -> None:
        if self.key is not None:
            parse_template(self.key, "a unique key", "user_id")
        _one_of(self.until, ("finished", "started", None), "until")
        _one_of(self.scope, get_args(Scope), "scope")
        _one_of(self.on_conflict, get_args(Conflict), "on_conflict")
        if self.for_ is not None:
            if self.until is not None:
                message = (
                    f"until={self.until!r} and for_= both say when a key is free again: "
                    f"give one of them"
                )
                raise InvalidArgument(message)
            period = duration(self.for_, "for_")
            if period == timedelta(0):
                message = "for_ must be longer than nothing; leave it out for the default"
                raise InvalidArgument(message)
            msgspec.structs.force_setattr(self, "for_", period)

    @property
    def window(self) -> Window:
        """When the key is released."""
        if self.for_ is not None:
            return Window.FOR_A_TIME
        replaces = self.on_conflict.startswith("replace")
        until = self.until or ("started" if replaces else "finished")
        return Window.UNTIL_STARTED if until == "started" else Window.UNTIL_FINISHED

    def stored(self, task: str, key: str) -> StoredUnique:
        """Return the key as a job of ``task`` stores it."""
        composed = compose_key("" if self.scope == "global" else task, key)
        return StoredUnique(composed, self.window, self.for_, OnConflict(self.on_conflict))


def _one_of(value: object, choices: Collection[str | None], what: str) -> None:
    if value not in choices:
        named = " or ".join(repr(choice) for choice in choices if choice is not None)
        message = f"{what} must be {named}, got {shown(value)}"
        raise InvalidArgument(message)


def unique_of(given: object) -> Unique | None:
    """Check the ``unique=`` of a task."""
    if given is False:
        return None
    rule = Unique() if given is True else given
    if not isinstance(rule, Unique):
        message = (
            f"unique is True (all arguments) or a Unique such as "
            f'Unique(key="{{user_id}}"), got {shown(given)}'
        )
        raise InvalidArgument(message)
    _check_scope(rule)
    return rule


def _check_scope(rule: Unique) -> None:
    if rule.scope == "global" and rule.key is None:
        message = (
            'scope="global" shares keys with other tasks, whose arguments mean something else: '
            'say which of them make the key, key="{user_id}"'
        )
        raise InvalidArgument(message)


class UniqueBinding:
    """Makes the unique keys of one task's calls."""

    __slots__ = ("_task", "_template", "rule")

    def __init__(self, rule: Unique, arguments: Collection[str], task: str) -> None:
        """Refuse a key that names no argument of ``task``."""
        what = f"the unique key of task {task!r}"
        self.rule: Unique = rule
        self._task = task
        self._template = None if rule.key is None else KeyTemplate(rule.key, what, arguments, task)

    @property
    def reads_arguments(self) -> bool:
        """Whether the key is made from chosen arguments, not from all."""
        return self._template is not None

    def stored(
        self,
        rule: Unique,
        payload: bytes,
        arguments: Mapping[str, Any],
        secrets: Collection[str] = (),
    ) -> StoredUnique:
        """Make the key of a call. ``rule``: the task's, or as the call changed it.

        ``payload`` is in canonical order, so that equal arguments give the same key.
        """
        if self._template is None:
            key = f"arguments:{hashlib.sha256(payload).hexdigest()}"
        else:
            key = self._template.fill(arguments, secrets)
            if not key:
                message = (
                    f"the unique key {rule.key!r} of task {self._task!r} is empty for this call: "
                    f"give the argument a value, or call .options(unique=False)"
                )
                raise InvalidArgument(message)
        return rule.stored(self._task, key)


def unique_of_call(
    own: Unique | None,
    *,
    key: str | None,
    unique: UniqueUntil | Literal[False] | None,
    unique_for: timedelta | None,
    scope: Scope | None,
    on_conflict: Conflict | None,
) -> Unique | None:
    """Merge the task's rule with the call's options. None: the call has none."""
    if unique is not False and unique not in (None, *get_args(UniqueUntil)):
        message = (
            f"unique must be 'until_started' or 'until_finished', got {unique!r}; for a key that "
            f"holds for a time, give unique_for="
        )
        raise InvalidArgument(message)
    said = {"key": key, "unique_for": unique_for, "scope": scope, "on_conflict": on_conflict}
    if unique is False:
        for name, value in said.items():
            if value is not None:
                message = f"unique=False is a call without a key: leave {name}= out"
                raise InvalidArgument(message)
        return None
    if unique is None and all(value is None for value in said.values()):
        return None
    if key is not None and check_text(key, "key") == "":
        message = "key must be text, and not empty; leave it out for a job without one"
        raise InvalidArgument(message)
    if key is None and own is None:
        message = (
            "unique=, unique_for=, scope= and on_conflict= say what a key does: give key=, too, "
            "or let the task have one, @app.task(unique=True)"
        )
        raise InvalidArgument(message)
    if unique is not None and unique_for is not None:
        message = f"unique={unique!r} and unique_for= both say how long a key holds: give one"
        raise InvalidArgument(message)
    changed = _changed(own or Unique(), unique, unique_for, scope, on_conflict)
    if key is None:
        _check_scope(changed)
    return changed


def _changed(
    own: Unique,
    unique: UniqueUntil | None,
    unique_for: timedelta | None,
    scope: Scope | None,
    on_conflict: Conflict | None,
) -> Unique:
    until, for_ = own.until, own.for_
    if unique is not None:
        until, for_ = ("started" if unique == "until_started" else "finished"), None
    elif unique_for is not None:
        until, for_ = None, unique_for
    return Unique(own.key, until, for_, scope or own.scope, on_conflict or own.on_conflict)
