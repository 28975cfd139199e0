"""What an editor offers while a call is being written is all there is, and is explained."""

from __future__ import annotations

import inspect

import msgspec
import pytest

from windlass import Registrar, Windlass
from windlass._schedules.declarations import ScheduleDecorator, ScheduleKeywords
from windlass._settings.keywords import SettingsKeywords, WorkerKeywords
from windlass._settings.settings import Settings, WorkerSettings
from windlass._tasks.decorators import PluginTaskKeywords, TaskKeywords
from windlass._tasks.options import TaskOptions


@pytest.mark.parametrize(
    ("keywords", "settings", "named"),
    [
        pytest.param(SettingsKeywords, Settings, {"url"}, id="of an app"),
        pytest.param(WorkerKeywords, WorkerSettings, {"queues", "shared"}, id="of a worker"),
    ],
)
def test_every_setting_is_a_typed_keyword(
    keywords: type, settings: type[msgspec.Struct], named: set[str]
) -> None:
    assert set(keywords.__annotations__) == set(settings.__struct_fields__) - named


def test_every_option_of_a_task_is_a_typed_keyword() -> None:
    assert set(TaskKeywords.__annotations__) == set(TaskOptions.__struct_fields__)


@pytest.mark.parametrize(
    ("decorator", "options"),
    [(Windlass.task, TaskKeywords), (Registrar.task, PluginTaskKeywords)],
)
def test_every_option_of_a_task_is_explained(decorator: object, options: type) -> None:
    explained = (decorator.__doc__ or "").splitlines()
    for name in options.__annotations__:
        assert any(line.strip().startswith(f"- ``{name}``: ") for line in explained), name
    (timeout,) = [line for line in explained if "``timeout``" in line]
    assert '"30s"' in timeout


def test_every_option_of_a_schedule_is_a_typed_keyword_and_is_explained() -> None:
    taken = inspect.signature(ScheduleDecorator).parameters.values()
    assert [p.name for p in taken if p.kind is p.KEYWORD_ONLY] == list(
        ScheduleKeywords.__annotations__
    )
    explained = Windlass.schedule.__doc__ or ""
    assert [
        name for name in ScheduleKeywords.__annotations__ if f"``{name}``" not in explained
    ] == []
