"""The built site: version, repository, search, both colour schemes, and nothing from elsewhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.source import ROOT
from windlass import __version__

ADDRESS = "https://example.org/windlass"
LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?(https?:[^\" >]*)"
    r"|<link\b(?=[^>]*\brel=\"?(?:stylesheet|icon|preload|preconnect|modulepreload))"
    r"[^>]*\bhref=\"?(https?:[^\" >]*)"
    r"|url\([\"']?(https?:[^\"')]*)"
)


def build(folder: Path) -> Path:
    for name in ("docs", "docs-theme"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy(ROOT / "mkdocs.yml", folder)
    built = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--clean", "--strict"],
        cwd=folder,
        env={**os.environ, "WINDLASS_REPOSITORY": ADDRESS},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder / "site"


def test_the_site_builds_and_has_everything_on_board(tmp_path: Path) -> None:
    """One test: the site is built once."""
    pytest.importorskip("zensical", reason="pip install --group docs")
    site = build(tmp_path)
    check_that_nothing_is_loaded_from_elsewhere(site)
    page = (site / "quickstart" / "index.html").read_text(encoding="utf-8")
    assert f"Windlass {__version__}, Apache License" in page
    assert f'href="{ADDRESS}"' in page
    assert "data-md-component=source" not in page.replace('"', "")
    assert all(f'data-md-color-scheme="{scheme}"' in page for scheme in ("default", "slate"))
    assert 'name="viewport"' in page
    assert "md-search" in page
    index = (site / "search.json").read_text(encoding="utf-8")
    assert all(word in index for word in ("max_attempts", "PgBouncer", "windlass-worker.service"))


def check_that_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert len(pages) > 50
    found = {
        (page.name, match[0])
        for page in pages
        for match in LOADED.finditer(page.read_text(encoding="utf-8"))
    }
    assert found == set()


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://example.org/a.js">',
        '<link rel="stylesheet" href="https://example.org/a.css">',
        "@font-face { src: url(https://example.org/a.woff2) }",
    ],
)
def test_a_foreign_file_is_found(text: str) -> None:
    assert LOADED.search(text)
    assert not LOADED.search(text.replace("https://example.org/", "assets/"))
