"""What ``windlass`` exports can be imported and is explained somewhere a user reads."""

from __future__ import annotations

import re

import pytest

import windlass
import windlass.errors
from tests.architecture.source import ROOT

PUBLIC = sorted(getattr(windlass, "__all__", ()))

# What an editor offers after ``app.``. What is not for users belongs to a part: `AppParts`.
OF_AN_APP = [
    "admin",
    "before_enqueue",
    "blocking",
    "call",
    "close",
    "current_tenant",
    "dashboard",
    "enqueue",
    "enqueue_many",
    "flow_run",
    "install",
    "job",
    "lifespan",
    "metrics",
    "middleware",
    "on_transition",
    "plugins",
    "schedule",
    "services",
    "settings",
    "start",
    "state",
    "task",
    "tasks",
    "tracing",
    "uninstall",
    "worker",
]


def offered(given: object) -> list[str]:
    return [name for name in dir(given) if not name.startswith("_")]


def documentation() -> str:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return "\n".join(page.read_text(encoding="utf-8") for page in pages)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_can_be_imported(name: str) -> None:
    assert getattr(windlass, name) is not None


@pytest.mark.parametrize("name", [name for name in PUBLIC if not name.startswith("__")])
def test_a_public_name_is_documented(name: str) -> None:
    assert re.search(rf"`[^`\n]*\b{re.escape(name)}\b[^`\n]*`", documentation()), (
        f"windlass.{name} is exported, but neither the README nor docs/ shows it in code style"
    )


def test_a_public_name_is_exported_once() -> None:
    exported = list(getattr(windlass, "__all__", ()))
    assert len(exported) == len(set(exported))


def test_an_app_offers_what_users_write_and_no_more() -> None:
    assert offered(windlass.Windlass("memory://")) == OF_AN_APP


def test_a_name_more_is_offered_too() -> None:
    class Wider(windlass.Windlass):
        def more(self) -> None: ...

    assert sorted(set(offered(Wider("memory://"))) - set(OF_AN_APP)) == ["more"]


def test_everything_that_an_app_offers_is_documented() -> None:
    pages = documentation()
    assert [name for name in OF_AN_APP if not re.search(rf"\bapp\.{name}\b", pages)] == []


def test_every_error_can_be_imported_from_the_module_of_errors() -> None:
    defined = {
        name
        for name, value in vars(windlass.errors).items()
        if isinstance(value, type) and value.__module__ == "windlass.errors"
    }
    assert sorted(defined - set(windlass.errors.__all__)) == []
