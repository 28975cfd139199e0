"""The tutorial: its pages show the programs of ``examples/tutorial`` and what they really print."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture.source import ROOT
from tests.examples import transcripts

PROGRAMS = ROOT / "examples" / "tutorial"
PAGES = sorted((ROOT / "docs" / "tutorial").glob("[0-9]-*.md"))


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip() and not line.startswith("# ruff:")]


def test_the_pages_show_every_program_whole() -> None:
    shown = transcripts.files(PAGES)
    programs = {
        file.name: file.read_text(encoding="utf-8") for file in PROGRAMS.iterdir() if file.is_file()
    }
    assert sorted(shown) == sorted(programs)
    for name, text in programs.items():
        assert lines(shown[name]) == lines(text), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_chapter_print_what_the_page_shows(
    page: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> None:
    folder = tmp_path_factory.mktemp("shop")
    for name, text in transcripts.files(PAGES[: PAGES.index(page) + 1]).items():
        (folder / name).write_text(text, encoding="utf-8")
    environment = {}
    if "postgresql://" in page.read_text(encoding="utf-8"):
        environment["WINDLASS_URL"] = request.getfixturevalue("postgres_url")
    transcripts.follow(page, folder, environment)


def test_a_line_that_is_not_printed_is_noticed() -> None:
    shown = ["job 01a1eb847a6179d4af61ee0c8578b7f0 succeeded  after 12 ms", "…"]
    real = ["first", "job 01a1eb84768275fd9527403e96d5eefc succeeded after 1.2 s"]
    assert transcripts.compare(shown, real) == {
        "01a1eb847a6179d4af61ee0c8578b7f0": "01a1eb84768275fd9527403e96d5eefc"
    }
    with pytest.raises(AssertionError, match="not printed"):
        transcripts.compare(["job failed", "…"], real)
    with pytest.raises(AssertionError, match="not on the page"):
        transcripts.compare(["first"], real)
