"""Commands on pages exist, with their options."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture.repository.commands import command_lines, problems_of
from tests.architecture.source import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_shows_commands_that_exist(page: Path) -> None:
    lines = command_lines(page.read_text(encoding="utf-8"))
    assert [problem for line in lines for problem in problems_of(line)] == []


def test_a_wrong_option_on_a_page_is_found() -> None:
    page = "# Title\n\n```\nwindlass worker shop:app \\\n    --slot 3   # slots\n```\n"
    (line,) = command_lines(page)
    assert problems_of(line) == [f"{line}: no option --slot"]
