"""What ``windlass`` exports can be imported and is explained somewhere a user reads."""

from __future__ import annotations

import re

import pytest

import windlass
from tests.architecture.source import ROOT

PUBLIC = sorted(getattr(windlass, "__all__", ()))


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
