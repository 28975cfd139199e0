"""What an editor offers while a call is being written is all there is, and is explained."""

from __future__ import annotations

import inspect
from typing import get_overloads

import msgspec
import pytest

from windlass import Registrar, Windlass
from windlass.config import Settings, WorkerSettings
from windlass.keywords import SettingsKeywords, WorkerKeywords


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


@pytest.mark.parametrize("decorator", [Windlass.task, Registrar.task])
def test_every_option_of_a_task_is_explained(decorator: object) -> None:
    *_, with_options = get_overloads(decorator)  # type: ignore[arg-type]
    options = [name for name in inspect.signature(with_options).parameters if name != "self"]
    explained = (decorator.__doc__ or "").splitlines()
    assert "timeout" in options
    for name in options:
        assert any(line.strip().startswith(f"``{name}``: ") for line in explained), name
