"""Which functions can be tasks, how they run, and under which name a worker finds them."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from pathlib import PurePath
from typing import Any, TypeGuard

from windlass._core.values.names import shown
from windlass.errors import DefinitionError

__all__ = [
    "can_call_with",
    "check_function",
    "check_middleware",
    "importable_module",
    "is_coroutine",
    "source_of",
    "unwrap_partial",
]


def check_function(function: object) -> None:
    """Refuse what is no plain or async function, and say what to write instead."""
    advice = "A task is a plain or an async function: "
    if inspect.isclass(function):
        message = f"{advice}instead of class {function.__qualname__}, write one that uses it."
    elif inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        message = (
            f"{advice}{source_of(function)} is a generator, which would only begin to run. "
            f"Return a list, or enqueue one job for each item."
        )
    elif getattr(function, "__name__", "") == "<lambda>":
        message = f"{advice}a lambda has no name. Write it with def."
    elif _is_method(function):
        message = (
            f"{advice}{source_of(function)} is a method, and no job can carry the object it needs. "
            f"Write a function that makes the object and calls it, or make it a @staticmethod."
        )
    elif not callable(function) or not hasattr(function, "__qualname__"):
        message = f"{advice}{shown(function)} is not one. Write a function that calls it."
    else:
        return
    raise DefinitionError(message)


def unwrap_partial(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``functools.partial`` as a function with the name, the module and the annotations of
    the one it calls, and the parameters that it leaves open; anything else as it is.
    """
    if not isinstance(function, functools.partial):
        return function
    check_function(function.func)
    given: functools.partial[Any] = function

    @functools.wraps(given.func)
    def call(*args: Any, **kwargs: Any) -> Any:
        return given(*args, **kwargs)

    call.__signature__ = inspect.signature(given)  # type: ignore[attr-defined]
    return call


def _is_method(function: object) -> TypeGuard[Callable[..., Any]]:
    """Return whether it was written in a class and wants its object. Bound to one, it has it."""
    if not inspect.isfunction(function):
        return False
    owner = function.__qualname__.rpartition(".")[0]
    first = next(iter(inspect.signature(function).parameters), "")
    return bool(owner) and not owner.endswith("<locals>") and first in {"self", "cls"}


def check_middleware(layer: object) -> None:
    """Refuse what cannot be middleware."""
    if not inspect.iscoroutinefunction(layer) or not can_call_with(layer, 2):
        named = source_of(layer) if inspect.isfunction(layer) else repr(layer)
        message = (
            f"middleware is `async def name(ctx, call_next)` that awaits call_next() once; "
            f"{named} is not"
        )
        raise DefinitionError(message)


def can_call_with(function: Callable[..., Any], count: int) -> bool:
    """Check whether it can be called with this number of arguments."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:
        return True  # something built in, such as the get of a context variable, does not say
    return True


def is_coroutine(function: Callable[..., Any]) -> bool:
    """Return whether calling it gives an awaitable, also below decorators made with
    functools.wraps.
    """
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        inspect.unwrap(function)
    )


def importable_module(name: str) -> str:
    """Return the name a worker imports the module by: a script is ``__main__`` only to itself."""
    alias, dot, rest = name.partition(".")
    if alias not in ("__main__", "__mp_main__") or not dot:
        return name
    script = sys.modules.get(alias)
    spec, file = getattr(script, "__spec__", None), getattr(script, "__file__", None)
    if spec is not None:
        return f"{spec.name}.{rest}"  # python -m shop.jobs
    if file:
        return f"{PurePath(file).stem}.{rest}"  # python shop.py
    return name  # typed into an interpreter: no worker can import it


def source_of(function: Callable[..., Any]) -> str:
    """Return the place a function was defined at."""
    return f"{function.__module__}.{function.__qualname__}"
