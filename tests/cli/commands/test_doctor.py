"""``windlass doctor``."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.source import ROOT
from tests.cli.fixtures import Desk
from tests.cli.processes import windlass
from windlass._app.parts import parts_of
from windlass._cli.main import main
from windlass.testing.conformance.steps import HOUR, a_worker


def enlisted(desk: Desk) -> None:
    async def register() -> None:
        storage = await parts_of(desk.app).storage()
        await storage.workers.register(a_worker("w1", lease=HOUR))

    desk.run(register())


def test_a_storage_in_use_passes_all_checks(everywhere: Desk) -> None:
    desk = everywhere
    enlisted(desk)
    told = desk("doctor", "--json")
    found = {one["name"]: one for one in json.loads(told.out)}
    # The server of the tests is made to be fast, not to survive a power cut.
    wrong = {name for name, one in found.items() if one["level"] != "ok"}
    assert wrong <= {"fsync", "full_page_writes"}, told.out
    assert told.code == (2 if wrong else 0)
    assert {"storage", "clock", "notifications", "workers", "queues"} <= set(found)
    assert len(found) > 5  # and what the backend says of itself
    said = desk("doctor")
    assert said.out.startswith("✓ ")
    assert f"0 warnings, {len(wrong)} problems. Name an app" in said.out
    quiet = json.loads(desk("doctor", "--quiet", "--json").out)
    assert {one["name"] for one in quiet} == wrong
    mail = desk("doctor", "--quiet").out
    assert bool(mail) == bool(wrong), mail


def test_the_exit_code_tells(desk: Desk) -> None:
    warned = desk("doctor")
    assert warned.code == 0
    assert "! No worker is live" in warned.out
    assert "  → Start one: `windlass worker MODULE:APP`" in warned.out
    assert desk("doctor", "--strict").code == 2
    desk.fetch.enqueue_sync("a")
    bad = desk("doctor", "--quiet")
    assert bad.code == 2
    assert "✗ 1 job waits on queue 'default', which no live worker serves." in bad.out
    assert "✓" not in bad.out


def test_with_an_app_waiting_jobs_are_tried(tmp_path: Path) -> None:
    shop = tmp_path / "shop.py"
    code = (
        "from windlass import Windlass\n"
        "app = Windlass('sqlite:///shop.db')\n"
        "@app.task(name='send')\n"
        "async def send(to: str{more}) -> None: ...\n"
        "if __name__ == '__main__':\n"
        "    send.enqueue_sync('ada')\n"
    )
    shop.write_text(code.format(more=""))
    subprocess.run([sys.executable, "shop.py"], cwd=tmp_path, check=True, timeout=30)
    fine = windlass("doctor", "shop:app", cwd=tmp_path)
    assert "1 waiting job checked: the arguments fit." in fine.stdout
    shop.write_text(code.format(more=", copies: int"))
    said = windlass("doctor", "shop:app", cwd=tmp_path)
    assert said.returncode == 2
    assert "1 waiting job of task 'send' cannot be run by this code" in said.stdout
    assert "Give new parameters a default" in said.stdout
    assert "Start one: `windlass worker shop:app --queue default`" in said.stdout


def test_a_storage_that_cannot_be_opened_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--url", f"sqlite:///{tmp_path}"]) == 1
    assert "is a directory; name a file" in capsys.readouterr().err


def test_the_page_tells_everything_it_looks_at() -> None:
    sources = (ROOT / "src" / "windlass" / "_admin" / "doctor").glob("*.py")
    code = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    names = set(re.findall(r'\b(?:ok|warn|bad|lost|found)\(\s*"(\w+)"', code))
    assert {"wal", "eviction", "autovacuum", "notifications", "clock", "unknown_task"} <= names
    page = (ROOT / "docs" / "operating" / "doctor.md").read_text(encoding="utf-8")
    assert sorted(name for name in names if f"`{name}`" not in page) == []
