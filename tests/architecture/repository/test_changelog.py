"""Changelog fragments are well formed, and reach their section of the changelog."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import changelog, check_release
from tests.architecture.source import ROOT

BEFORE = (
    "# Changelog\n\n## Unreleased\n\n### Added\n\n- One.\n\n### Fixed\n\n- Two.\n\n"
    "## 0.1.0\n\n- Old.\n"
)


def test_the_waiting_fragments_are_well_formed() -> None:
    files = changelog.fragments_in(ROOT / "changelog.d")
    assert [problem for file in files if (problem := changelog.problem_of(file))] == []


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("sentry.added.md", "- Sentry.\n  More of it.\n", None),
        ("sentry.md", "- Sentry.\n", "NAME.SECTION.md"),
        ("sentry.news.md", "- Sentry.\n", "NAME.SECTION.md"),
        ("sentry.added.md", "Sentry.\n", "list items"),
        ("sentry.added.md", "", "list items"),
    ],
)
def test_a_fragment_that_would_be_lost_is_refused(
    tmp_path: Path, name: str, text: str, told: str | None
) -> None:
    file = tmp_path / name
    file.write_text(text)
    problem = changelog.problem_of(file)
    assert problem is None if told is None else told in (problem or "")


def test_items_go_to_the_end_of_their_section_of_the_next_release() -> None:
    after = changelog.merged(BEFORE, {"added": ["- New."], "security": ["- Safe."]})
    assert after == (
        "# Changelog\n\n## Unreleased\n\n### Added\n\n- One.\n- New.\n\n### Fixed\n\n- Two.\n\n"
        "### Security\n\n- Safe.\n\n## 0.1.0\n\n- Old.\n"
    )


def test_the_real_changelog_keeps_every_line() -> None:
    before = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    after = changelog.merged(before, {"fixed": ["- A new line."]})
    assert set(after.splitlines()) - set(before.splitlines()) == {"- A new line."}
    assert changelog.merged(before, {}) == before


def test_a_release_without_its_changelog_and_addresses_is_refused() -> None:
    problems = "\n".join(check_release.problems_of("v9.9.9", "https://example.org/windlass"))
    assert "the tag is v9.9.9" in problems
    assert "CHANGELOG.md has no section" in problems
    assert "does not name https://example.org/windlass" in problems


def test_a_release_that_is_ready_passes(tmp_path: Path) -> None:
    (tmp_path / "src/windlass").mkdir(parents=True)
    (tmp_path / "changelog.d").mkdir()
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nversion = "1.2.3"\n[project.urls]\nSource = "https://example.org/w"\n'
    )
    (tmp_path / "src/windlass/_version.py").write_text('__version__ = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text("## 1.2.3\n")
    assert check_release.problems_of("v1.2.3", "https://example.org/w", tmp_path) == []
