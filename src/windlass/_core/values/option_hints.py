"""Hints for options and calls that have another name here, or belong to another place."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NoReturn

from windlass.errors import suggestion

__all__ = ["CeleryName", "suggest_option"]

_OF_A_TASK: Mapping[str, Sequence[str]] = {
    "max_attempts": ("retries", "max_retries", "retry", "attempts"),
    "backoff": ("retry_delay", "retry_backoff", "default_retry_delay"),
    "timeout": ("time_limit",),
    "soft_timeout": ("soft_time_limit",),
    "limits": ("limit", "rate", "rate_limit", "concurrency", "concurrency_limit"),
    "retry_on": ("autoretry_for", "retry_for", "retry_exceptions"),
    "give_up_on": ("dont_autoretry_for", "throws", "dont_retry_on"),
    "store_result": ("keep_result", "store_results"),
}
_OF_A_CALL: Mapping[str, Sequence[str]] = {
    "delay": ("countdown",),
    "at": ("eta",),
    "key": (),
    "unique": (),
    "unique_for": (),
    "cost": (),
}
_OF_AN_APP: Mapping[str, Sequence[str]] = {
    "url": ("broker", "broker_url", "backend", "result_backend"),
    "imports": ("include",),
    "keep_succeeded": ("result_expires",),
    "slots": ("concurrency", "worker_concurrency"),
}
_NOTES: Mapping[str, str] = {
    "max_attempts": " It counts runs, the first included.",
    "limits": ' For a rate: limits=[Limit("crm", rate=Rate(10, per="1s"))].',
}
_SENTENCES: Mapping[str, str] = {
    "acks_late": "Leave it out: a job always counts as done after its run.",
    "bind": "Leave it out: a handler takes `ctx: Context` as its first parameter.",
    "enable_utc": "Leave it out: times are stored in UTC.",
    "ignore_result": "Write @app.task(store_result=False).",
    "timezone": 'Schedules have time zones: Cron("0 8 * * *", tz="Europe/Berlin").',
}


def suggest_option(option: str, known: Collection[str]) -> str:
    """Return a hint for an option that is not in ``known``: the name it has here, the place it
    belongs to, or a similar name.
    """
    word = option.removeprefix("task_")  # the settings of Celery for tasks begin so
    if word in known:
        return f" Did you mean {word!r}?"
    if word in _SENTENCES:
        return f" {_SENTENCES[word]}"
    places = (
        (_OF_AN_APP, "It is a setting: Windlass({}=...)."),
        (_OF_A_TASK, "It belongs to a task: @app.task({}=...)."),
        (_OF_A_CALL, "It belongs to a call: task.options({}=...).enqueue(...)."),
    )
    found = [
        (here, where)
        for names, where in places
        for here, others in names.items()
        if word == here or word in others
    ]
    for here, _ in found:
        if here in known:
            return f" Did you mean {here!r}?{_NOTES.get(here, '')}"
    if found:
        here, where = found[-1]
        return f" {where.format(here)}{_NOTES.get(here, '')}"
    return suggestion(option, known)


class CeleryName:
    """A method of Celery's tasks that `Task` does not have. Other attributes cost nothing more, as
    they would with ``__getattr__``.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, task: object, owner: type) -> NoReturn:
        """AttributeError, so that ``hasattr`` works."""
        message = (
            f"a task has no {self._name!r}: write task.enqueue_sync(...), or "
            f"await task.enqueue(...). To keep Celery's calls for now, put @celery.task of "
            f"windlass.integrations.celery above @app.task"
        )
        raise AttributeError(message, name=self._name, obj=task)
