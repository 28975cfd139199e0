"""Exception groups: which of the errors in one decides what becomes of the job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

from windlass._core.job import outcome as core
from windlass._core.job.control import Control, GiveUp, Retry, Snooze, Throttled

__all__ = ["deciding_error", "group_forbids_retry", "leaf_errors"]

_MOST = 1000
"""Errors of one group that are looked at."""


def leaf_errors(error: BaseException) -> list[BaseException]:
    """Return the errors in a group and in the groups inside it, in order; any other error is its
    own.
    """
    found: list[BaseException] = []
    for leaf in _leaves(error):
        found.append(leaf)
        if len(found) >= _MOST:
            break
    return found


def _leaves(error: BaseException) -> Iterator[BaseException]:
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if isinstance(one, BaseExceptionGroup):
            waiting += reversed(one.exceptions)
        else:
            yield one


def group_forbids_retry(
    error: BaseException,
    retry_on: tuple[type[BaseException], ...] | None,
    give_up_on: tuple[type[BaseException], ...],
) -> bool:
    """Return whether a task's lists rule out another attempt: for a group, if they do for one error
    in it.

    A list that names the group's own class holds for the whole group.
    """
    if isinstance(error, give_up_on):
        return True
    if retry_on is not None and isinstance(error, retry_on):
        retry_on = None
    kinds = {type(leaf) for leaf in leaf_errors(error) if not isinstance(leaf, Control)}
    return any(core.barred(kind, retry_on, give_up_on) for kind in kinds)


def deciding_error(error: BaseException, bars: Callable[[BaseException], bool]) -> BaseException:
    """Return the error that decides: of a group, the strongest instruction in it, or the group
    itself.

    A `GiveUp` fails the job, also beside other errors. An error that ``bars`` another attempt fails
    it, too. A `Retry` decides over ordinary errors. `Throttled` and `Snooze`, which cost no
    attempt, decide only where nothing else went wrong, `Throttled` first: a free wait must not hide
    an error. Of several alike, the longest wait holds.
    """
    if not isinstance(error, ExceptionGroup):
        return error
    found = leaf_errors(error)
    for leaf in found:
        if isinstance(leaf, GiveUp):
            return leaf
    ordinary = any(not isinstance(leaf, Control) for leaf in found)
    if ordinary and bars(error):
        return error
    retries = [leaf for leaf in found if isinstance(leaf, Retry)]
    if retries:
        return max(retries, key=_wait)
    if ordinary:
        return error
    throttled = [leaf for leaf in found if isinstance(leaf, Throttled)]
    if throttled:
        return _together(throttled)
    snoozed = [leaf for leaf in found if isinstance(leaf, Snooze)]
    return max(snoozed, key=_wait) if snoozed else error


def _wait(leaf: Retry | Snooze | Throttled) -> timedelta:
    return leaf.after or timedelta(0)


def _together(throttled: list[Throttled]) -> Throttled:
    """Return the longest wait; the queue cools down and rates are emptied if one of
    them says so.
    """
    longest = max(throttled, key=_wait)
    both = Throttled(
        longest.after or timedelta(0),
        cool_queue=any(leaf.cool_queue for leaf in throttled),
        drain=any(leaf.drain for leaf in throttled),
    )
    both.odd = longest.odd
    return both
