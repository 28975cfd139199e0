"""Counts of jobs by task, from what a backend has read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from windlass._storage.protocol.admin import TaskCounts, TaskLook

__all__ = ["task_look", "task_look_of_lines"]

_RUNNING = -1


def task_look(
    waiting: Mapping[str, int], running: Mapping[str, int], *, complete: bool
) -> TaskLook:
    """Combine the counts of waiting and of running jobs."""
    counts = [
        TaskCounts(task=task, waiting=waiting.get(task, 0), running=running.get(task, 0))
        for task in sorted(waiting.keys() | running.keys())
    ]
    return TaskLook(counts, complete)


def task_look_of_lines(rows: Iterable[Sequence[int | str]], look: int) -> TaskLook:
    """Add up rows of line, task and number. A line with more than ``look`` jobs was cut short."""
    waiting, running, lines = Counter[str](), Counter[str](), Counter[int]()
    for line, task, number in rows:
        if line == _RUNNING:
            running[str(task)] += int(number)
        else:
            waiting[str(task)] += int(number)
            lines[int(line)] += int(number)
    return task_look(waiting, running, complete=all(count <= look for count in lines.values()))
