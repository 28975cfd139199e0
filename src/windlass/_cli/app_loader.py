"""``module:app`` → the app, or what to do about it."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType

from windlass._app.app import Windlass
from windlass._app.parts import parts_of
from windlass._tasks.task import BoundTask, Task
from windlass.errors import ConfigError, WindlassError, suggestion

__all__ = ["AppNotFound", "BrokenModule", "load_app"]

_PACKAGE = str(Path(__file__).parents[1])
_IMPORT_SYSTEM = (importlib.__file__, "<frozen importlib")


class AppNotFound(ConfigError):
    """The name leads to no app."""


class BrokenModule(ConfigError):
    """The module exists, but importing it raised. Carries the user's part of the traceback."""

    def __init__(self, module: str, error: BaseException) -> None:
        """``error`` is what the import raised."""
        self.trace: str = "".join(_users_part(error)).rstrip()
        self.may_heal: bool = not isinstance(error, ConfigError)
        """Whether it may go better later, after a deploy perhaps. A wrong setting stays wrong."""
        if isinstance(error, WindlassError):
            # The message says what to do; our own frames do not help.
            super().__init__(f"importing {module!r}: {error}")
        else:
            short = traceback.format_exception_only(error)[-1].strip()
            super().__init__(f"importing {module!r} raised {short}")


def load_app(target: str) -> Windlass:
    """Import the module, from the current directory too, and find the app in it."""
    module_name, colon, path = target.partition(":")
    if not colon or not module_name or not path:
        message = (
            f"{target!r} names no app. Write module:app, for example shop:app for the variable "
            f"`app` in shop.py, or shop.jobs:app for the one in shop/jobs.py"
        )
        raise AppNotFound(message)
    here = os.getcwd()  # noqa: PTH109 -- sys.path wants text
    if here not in sys.path:
        sys.path.insert(0, here)
    module = _import(module_name, path)
    found: object = module
    for name in path.split("."):
        found = _attribute(found, name, module_name)
    if not isinstance(found, Windlass):
        raise AppNotFound(_not_an_app(target, found, module))
    parts = parts_of(found)
    parts.location.loaded_from(target)
    try:
        parts.load()
    except (Exception, SystemExit) as error:
        raise BrokenModule(", ".join(found.settings.imports), error) from error
    return found


def _import(name: str, path: str) -> ModuleType:
    if "/" in name or name.endswith(".py"):
        proper = name.removesuffix(".py").replace("/", ".").strip(".")
        message = f"{name!r} is a file; name it as Python imports it: {proper}:{path}"
        raise AppNotFound(message)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Only if the name itself leads nowhere: a module that imports something missing exists.
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise AppNotFound(_no_module(name, error.name)) from None
        raise BrokenModule(name, error) from error
    except (Exception, SystemExit) as error:
        raise BrokenModule(name, error) from error


def _no_module(name: str, missing: str) -> str:
    here = os.getcwd()  # noqa: PTH109
    found = sorted(
        entry.name.removesuffix(".py")
        for entry in os.scandir(here)
        if entry.name.endswith(".py") or os.path.exists(f"{entry.path}/__init__.py")  # noqa: PTH110
    )
    said = f"no module named {missing!r}" + (f" (for {name!r})" if missing != name else "")
    near = suggestion(missing.partition(".")[0], found)
    return (
        f"{said}.{near} Looked in {here} and the Python path: run this in the folder that holds "
        f"the module, or set PYTHONPATH."
    )


def _attribute(owner: object, name: str, module: str) -> object:
    try:
        return getattr(owner, name)
    except AttributeError:
        where = f"module {module!r}" if isinstance(owner, ModuleType) else repr(owner)
        apps = _apps_in(owner)
        if apps:
            near = f" Its app is called {' or '.join(apps)}: use {module}:{apps[0]}"
        else:
            names = [known for known in vars(owner) if not known.startswith("_")]
            near = suggestion(name, names) or (
                " Create one there: app = Windlass('sqlite:///jobs.db')"
            )
        message = f"{where} has no {name!r}.{near}"
        raise AppNotFound(message) from None


def _not_an_app(target: str, found: object, module: ModuleType) -> str:
    said = f"{target!r} is {_a(found)}, not a Windlass app."
    if isinstance(found, Task | BoundTask):
        said = f"{target!r} is a task, not an app."
    apps = _apps_in(module)
    if apps:
        return f"{said} Use {module.__name__}:{apps[0]}"
    if callable(found) and not isinstance(found, Task):
        return f"{said} If it makes one, keep it: app = {target.partition(':')[2]}()"
    return f"{said} Name the variable that holds Windlass(...)"


def _a(found: object) -> str:
    kind = type(found).__name__
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"


def _apps_in(owner: object) -> list[str]:
    if not isinstance(owner, ModuleType):
        return []
    return sorted(name for name, value in vars(owner).items() if isinstance(value, Windlass))


def _users_part(error: BaseException) -> list[str]:
    """Return the traceback without the import system and without the frames of this file; of an
    error of ours only the user's own lines.
    """
    told = traceback.TracebackException.from_exception(error)
    frames = [frame for frame in told.stack if not frame.filename.startswith(_IMPORT_SYSTEM)]
    if isinstance(error, WindlassError):
        return traceback.StackSummary.from_list(
            [frame for frame in frames if not frame.filename.startswith(_PACKAGE)]
        ).format()
    while frames and frames[0].filename.startswith(_PACKAGE):
        del frames[0]
    told.stack = traceback.StackSummary.from_list(frames)
    # Without frames (a mistake in the module's own syntax) the heading would promise some.
    return list(told.format() if frames else told.format_exception_only())
