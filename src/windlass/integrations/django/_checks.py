"""``manage.py check``: settings that are missing or wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Info, Warning  # noqa: A004 -- Django's name
from django.utils.module_loading import import_string

from windlass._app.app import Windlass
from windlass._cli.app_loader import AppNotFound, BrokenModule
from windlass._core.values.names import check_queue
from windlass.errors import ConfigError, WindlassError
from windlass.integrations.django import _commit, get_app, read_settings
from windlass.integrations.django._worker_tasks import define

__all__ = ["check_database", "check_settings", "first_alias", "not_installed"]

_HERE = "windlass.integrations.django"
_OPTIONS = f"See OPTIONS of {_HERE}.tasks.WindlassBackend."


def check_settings(**_: object) -> list[CheckMessage]:
    """Check WINDLASS and, in TASKS, the backends of Windlass. It connects to nothing."""
    try:
        read_settings()
    except ConfigError as error:
        hint = 'Add WINDLASS = {"URL": "sqlite:///jobs.db"} to the settings.'
        return [Error(str(error), hint=hint, id="windlass.E001")]
    found = [*_check_backends()]
    if any(message.is_serious() for message in found):
        return found
    app = _app()
    if isinstance(app, CheckMessage):
        return [app]
    return [*found, *_check_transactional(app)]


def check_database(*, databases: Sequence[str] | None = None, **_: object) -> list[CheckMessage]:
    """Check that the databases are those with the jobs: ``manage.py check --database …``."""
    wanted = [(alias, name) for alias, name in _transactional() if name in (databases or ())]
    app = _app() if wanted else None
    if not isinstance(app, Windlass):
        return []
    found: list[CheckMessage] = []
    for alias, name in wanted:
        if _commit.may_be_same(app, name) is None:
            try:
                reason = _commit.elsewhere(app, name)
            except WindlassError as error:
                reason = f"the jobs could not be reached: {error}"
            if reason is not None:
                found.append(_after_commit(alias, reason, likely_meant=True))
    return found


def first_alias() -> str | None:
    """Return the alias of the first Windlass backend in TASKS."""
    return next((alias for alias, _, _ in _backends()), None)


def not_installed(alias: str) -> CheckMessage:
    """Describe what to do if Django does not start the Windlass app."""
    return Warning(
        f"TASKS[{alias!r}] uses Windlass, and INSTALLED_APPS does not have {_HERE!r}: workers "
        f"find no tasks, and manage.py has no windlass_worker.",
        hint=f"Add {_HERE!r} to INSTALLED_APPS.",
        id="windlass.W001",
    )


def _app() -> Windlass | CheckMessage:
    from windlass.integrations.django.apps import discover  # noqa: PLC0415 -- registers these

    try:
        discover()
        return get_app()
    except (AppNotFound, BrokenModule) as error:
        hint = 'APP names the app: {"APP": "shop.jobs:app"}. Or leave it out.'
        return Error(f"WINDLASS['APP']: {error}", hint=hint, id="windlass.E003")
    except WindlassError as error:
        hint = "WINDLASS holds URL, APP and the settings of Windlass in capitals."
        return Error(f"WINDLASS: {error}", hint=hint, id="windlass.E002")


def _backends() -> Iterator[tuple[str, Mapping[str, Any], Any]]:
    """Yield alias, parameters and class of each Windlass backend."""
    for alias, params in getattr(settings, "TASKS", {}).items():
        try:
            kind = import_string(str(params.get("BACKEND")))
        except ImportError:
            continue  # Django reports it
        if getattr(kind, "interface", None) is not None:
            yield alias, params, kind


def _check_backends() -> Iterator[CheckMessage]:
    packages = set()
    for alias, params, kind in _backends():
        packages.add(kind.interface.package)
        options = dict(params.get("OPTIONS", {}))
        try:
            _commit.database_of(options)
        except ConfigError as error:
            yield Error(f"TASKS[{alias!r}]: {error}", hint=_OPTIONS, id="windlass.E006")
        options.pop("transactional", None)
        try:
            define(Windlass("memory://"), _probe, alias, **options)
        except ConfigError as error:
            yield Error(str(error), hint=_OPTIONS, id="windlass.E004")
        for queue in params.get("QUEUES", ()):
            try:
                check_queue(queue)
            except WindlassError as error:
                hint = "Rename the queue."
                yield Error(f"QUEUES of TASKS[{alias!r}]: {error}", hint=hint, id="windlass.E005")
    if packages == {"django.tasks"} and apps.is_installed("django_tasks"):
        yield Warning(
            "INSTALLED_APPS has 'django_tasks', and the backend is the one for django.tasks: tasks "
            "from `from django_tasks import task` get results and signals of django.tasks.",
            hint=f"Set BACKEND to '{_HERE}.django_tasks.WindlassBackend', or import task from "
            f"django.tasks and remove 'django_tasks' from INSTALLED_APPS.",
            id="windlass.W002",
        )


def _probe(args: list[Any], kwargs: dict[str, Any]) -> None:
    """Serve as a function to try OPTIONS with."""


def _transactional() -> Iterator[tuple[str, str]]:
    """Yield each backend with the database whose transactions decide about its jobs."""
    for alias, params, _ in _backends():
        name = _commit.database_of(params.get("OPTIONS", {}))
        if name is not None:
            yield alias, name


def _check_transactional(app: Windlass) -> Iterator[CheckMessage]:
    for alias, name in _transactional():
        reason = _commit.may_be_same(app, name)
        if reason is not None:
            yield _after_commit(alias, reason, likely_meant=_commit.both_postgresql(app, name))


def _after_commit(alias: str, reason: str, *, likely_meant: bool) -> CheckMessage:
    words = (
        f"TASKS[{alias!r}] is transactional: {reason}. Its jobs are stored after the commit, and "
        f"a process that dies between the two loses them."
    )
    if likely_meant:
        hint = "Give WINDLASS the URL of that database, and its role a right to the schema."
        return Warning(words, hint=hint, id="windlass.W003")
    hint = "Keep jobs in the PostgreSQL database of your rows to store both together."
    return Info(words, hint=hint, id="windlass.I001")
