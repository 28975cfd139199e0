"""``manage.py check``: what is missing or wrong in the settings, and what to do about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django import VERSION
from django.conf import settings
from django.test import override_settings

from tests.integrations.programs import run

pytestmark = pytest.mark.usefixtures("shop")

BACKEND = "windlass.integrations.django.django_tasks.WindlassBackend"


def found(tasks: dict[str, Any] | None = None, **settings: Any) -> list[tuple[str, str]]:
    """The id and the words of each message."""
    from windlass.integrations.django._checks import check_settings  # noqa: PLC0415 -- set up first

    if tasks is not None:
        settings["TASKS"] = {"default": {"BACKEND": BACKEND, **tasks}}
    with override_settings(**settings):
        every = check_settings()
    assert all(message.hint for message in every)
    return [(str(message.id), message.msg) for message in every]


def test_settings_that_are_right_pass() -> None:
    assert found() == []


@pytest.mark.parametrize(
    ("settings", "code", "words"),
    [
        ({"WINDLASS": {}}, "windlass.E001", "must name the storage"),
        ({"WINDLASS": "sqlite:///jobs.db"}, "windlass.E001", "must name the storage"),
        ({"WINDLASS": {"URL": "nothing://here"}}, "windlass.E002", "nothing"),
        ({"WINDLASS": {"URL": "memory://", "SLOT": 3}}, "windlass.E002", "slots"),
        ({"WINDLASS": {"APP": "nowhere:app"}}, "windlass.E003", "no module named 'nowhere'"),
        ({"tasks": {"OPTIONS": {"max_atempts": 3}}}, "windlass.E004", "max_attempts"),
        ({"tasks": {"OPTIONS": {"run_in": "process"}}}, "windlass.E004", "leave run_in out"),
        ({"tasks": {"QUEUES": ["mail", "a,b"]}}, "windlass.E005", "'a,b'"),
        ({"tasks": {"OPTIONS": {"transactional": "orders"}}}, "windlass.E006", "'orders'"),
        ({"tasks": {"OPTIONS": {"transactional": 1}}}, "windlass.E006", "True, False or"),
        ({"tasks": {"OPTIONS": {"transactional": True}}}, "windlass.I001", "after the commit"),
    ],
)
def test_wrong_django_settings_are_named_with_advice(
    settings: dict[str, Any], code: str, words: str
) -> None:
    ((told, message),) = found(**settings)
    assert told == code
    assert words in message


@pytest.mark.skipif(VERSION < (6,), reason="before Django 6 there is one backend")
def test_a_backend_for_the_other_kind_of_tasks_is_named() -> None:
    built_in = {"default": {"BACKEND": BACKEND.replace("django_tasks", "tasks")}}
    both = [*settings.INSTALLED_APPS, "django_tasks"]
    told = found(TASKS=built_in, INSTALLED_APPS=[*dict.fromkeys(both)])
    assert [code for code, _ in told] == ["windlass.W002"]


def test_manage_py_check_names_a_missing_setting_without_a_traceback(tmp_path: Path) -> None:
    site = tmp_path / "site_of_check.py"
    site.write_text('INSTALLED_APPS = ["windlass.integrations.django"]\nSECRET_KEY = "x"\n')
    ran = run(tmp_path, "-m", "django", "check", DJANGO_SETTINGS_MODULE="site_of_check")
    assert ran.returncode == 1
    assert "(windlass.E001) settings.WINDLASS must name the storage" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_backend_without_the_app_is_named(tmp_path: Path) -> None:
    site = tmp_path / "site_of_check.py"
    site.write_text(
        f"""
INSTALLED_APPS = ["django_tasks"]
SECRET_KEY = "x"
TASKS = {{"default": {{"BACKEND": {BACKEND!r}}}}}
"""
    )
    ran = run(tmp_path, "-m", "django", "check", DJANGO_SETTINGS_MODULE="site_of_check")
    assert "(windlass.W001)" in ran.stderr, ran.stderr
    assert "(windlass.E001)" in ran.stderr
