"""Found because of its name: tasks of Windlass, and tasks of Django."""

from __future__ import annotations

import os
import sys
from typing import Any

from django.db import connection

from tests.integrations.shopfront.interface import TaskContext, task
from tests.integrations.shopfront.jobs import app
from windlass import GiveUp, Secret
from windlass.integrations.django import fresh_connections


@app.task
@fresh_connections
def receipt(order: int) -> str:
    with connection.cursor() as cursor:
        cursor.execute("select %s + 0", [order])
        (number,) = cursor.fetchone()
    return f"receipt {number}"


@app.task(run_in="process")
def elsewhere() -> list[Any]:
    from django.apps import apps  # noqa: PLC0415 -- in a child process

    return [os.getpid(), apps.ready]


@task
def add(a: int, b: int = 1) -> int:
    return a + b


@task(queue_name="mail", priority=10)
async def add_later(a: int, b: int) -> int:
    return a + b


@task(takes_context=True)
def seen(context: TaskContext[..., Any]) -> list[Any]:
    return [context.task_result.id, context.attempt, context.task_result.status]


@task(takes_context=True)
def at_the_second(context: TaskContext[..., Any]) -> str:
    if context.attempt == 1:
        message = "not yet"
        raise ConnectionError(message)
    return f"after {context.task_result.errors[0].exception_class.__name__}"


@task
def broken() -> None:
    message = "it broke"
    raise GiveUp(message)


@task
def leaving() -> None:
    sys.exit("enough")


@task
def sign_in(user: str, password: str) -> dict[str, str]:
    return {"user": user, "token": password[::-1]}


@task
def pay(amount: int, card: Secret[str]) -> str:
    return card


@task
def unstorable() -> object:
    return object()
