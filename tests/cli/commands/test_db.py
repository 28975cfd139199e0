"""``windlass db``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.processes import windlass
from windlass._cli.main import main


@pytest.mark.parametrize("backend", ["sqlite", "postgres", "redis"])
def test_a_storage_is_made_ready_and_again_without_harm(
    tmp_path: Path, backend: str, request: pytest.FixtureRequest
) -> None:
    fixture = {"postgres": "postgres_url", "redis": "redis_url"}.get(backend)
    url = request.getfixturevalue(fixture) if fixture else "sqlite:///jobs.db"
    for _ in range(2):
        ended = windlass("db", "migrate", "--url", url, cwd=tmp_path)
        assert ended.returncode == 0, ended.stderr
        assert "ready for this version" in ended.stdout


def test_an_app_says_where_its_jobs_are(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from windlass import Windlass\napp = Windlass('sqlite:///shop.db')\n"
    )
    told = json.loads(windlass("db", "show", "shop:app", "--json", cwd=tmp_path).stdout)
    assert "shop.db" in told["storage"]
    assert told["facts"]["size"] > 0
    said = windlass("db", "show", "shop:app", cwd=tmp_path).stdout
    assert "shop.db" in said
    assert "KiB" in said
    assert "durability  full" in re.sub(r" {2,}", "  ", said)


def test_neither_an_app_nor_a_url_is_an_error_that_says_so(tmp_path: Path) -> None:
    ended = windlass("db", "migrate", cwd=tmp_path)
    assert ended.returncode == 1
    assert "needs a storage URL" in ended.stderr


def test_an_app_and_a_url_are_too_much(tmp_path: Path) -> None:
    ended = windlass("db", "show", "shop:app", "--url", "sqlite:///a.db", cwd=tmp_path)
    assert ended.returncode == 1
    assert "not both" in ended.stderr


@pytest.mark.parametrize(
    "words", [("jobs", "list"), ("doctor",), ("db", "show"), ("queues", "pause", "mail")]
)
def test_a_misspelt_file_is_refused_and_not_made(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/jbos.db"
    assert main([*words, "--url", url]) == 1
    assert f"there is no file {tmp_path}/jbos.db" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
