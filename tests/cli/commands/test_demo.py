"""What a newcomer sees first."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from tests.cli.processes import Running, gone_within, windlass
from windlass import Windlass
from windlass._app.parts import parts_of
from windlass._cli.demo.live import TITLE, DemoLoop, simulate_past
from windlass._core.job.state import State

pytestmark = pytest.mark.crash


def test_the_demo_ends_as_it_should_and_tells_every_state(tmp_path: Path) -> None:
    own = {"WINDLASS_URL": f"sqlite:///{tmp_path}/mine.db", "WINDLASS_MAX_ATTEMPTS": "1"}
    kept = tmp_path / "kept.db"
    ended = windlass("demo", "--fast", "--keep", str(kept), cwd=tmp_path, env=own, timeout=60)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stderr == ""
    # A path cannot be broken.
    lines = [line for line in ended.stdout.splitlines() if str(tmp_path) not in line]
    assert max(map(len, lines)) <= 100
    for word in (*("succeeded", "failed", "cancelled", "discarded"), "kill -9", "Next steps"):
        assert word in ended.stdout
    assert "its worker was killed (SIGKILL) during the run" in ended.stdout
    assert not (tmp_path / "mine.db").exists()  # the user's own database is none of its business

    app = Windlass(f"sqlite:///{kept}")
    jobs = app.blocking.run(app.admin.jobs.find(limit=1000))
    app.blocking.run(app.close())
    parts_of(app).blocking_loop.stop()
    assert len(jobs) == 70
    assert {job.state for job in jobs} == {
        State.SUCCEEDED,
        State.FAILED,
        State.CANCELLED,
        State.DISCARDED,
    }


def test_the_demo_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "precious.db").write_text("mine")
    ended = windlass("demo", "--keep", "precious.db", cwd=tmp_path)
    assert ended.returncode == 1
    assert "precious.db exists already; name a file that does not" in ended.stderr
    assert (tmp_path / "precious.db").read_text() == "mine"


def test_nothing_of_the_demo_outlives_it(tmp_path: Path) -> None:
    # Killed, it cannot remove its folder.
    with Running("demo", cwd=tmp_path, env={"TMPDIR": str(tmp_path)}) as demo:
        workers = [int(demo.wait_for(r"worker w\w+ started, pid (\d+)")[1]) for _ in range(2)]
        demo.process.kill()
        assert all(gone_within(pid, 30.0) for pid in workers)


def test_the_served_demo_shows_its_past_is_marked_as_a_demo_and_continues(tmp_path: Path) -> None:
    with Running("demo", "--serve", "--port", "0", "--hours", "0.3", cwd=tmp_path) as demo:
        link = demo.wait_for(r"(http://127.0.0.1:\d+)/enter\?link=(\S+)")
        with httpx.Client(base_url=link[1], follow_redirects=True, timeout=20) as browser:
            pages = [browser.get(f"/enter?link={link[2]}")]
            pages += [browser.get(path) for path in ("/jobs", "/flows", "/workers", "/queues")]
            for page in pages:
                assert page.status_code == 200
                assert TITLE in page.text
            counts = browser.get("/api/v1/counts").json()
            assert sum(one["succeeded"] for one in counts) > 5, "its past"
            flows = browser.get("/api/v1/flows").json()["flows"]
            assert "running" in {one["state"] for one in flows}
            newest = browser.get("/api/v1/jobs?size=1").json()["jobs"][0]["seq"]
            while browser.get("/api/v1/jobs?size=1").json()["jobs"][0]["seq"] == newest:
                pass  # a customer comes within three seconds, or the test's time is up
        demo.process.terminate()
        assert demo.process.wait(60) == 0  # jobs that run are given half a minute


def test_every_demo_has_the_same_past() -> None:
    async def sold(loop: DemoLoop) -> list[tuple[str, str, int]]:
        async with simulate_past(loop, timedelta(minutes=30)) as shop:
            jobs = await shop.app.admin.jobs.find(limit=1000)
            return [(job.task, job.payload.decode(), job.attempt) for job in jobs][-40:]

    def once() -> list[tuple[str, str, int]]:
        with asyncio.Runner(loop_factory=DemoLoop) as runner:
            loop = runner.get_loop()
            assert isinstance(loop, DemoLoop)
            return runner.run(sold(loop))

    shop = [job for job in once() if job[0] in {"charge_card", "send_email"}]
    assert shop
    assert shop[-10:] == [job for job in once() if job[0] in {"charge_card", "send_email"}][-10:]


def test_the_past_of_a_demo_has_busy_hosts() -> None:
    async def measured(loop: DemoLoop) -> dict[str, int]:
        async with simulate_past(loop, timedelta(minutes=30)) as shop:
            now = await shop.app.admin.storage.now()
            hosts = await shop.app.admin.stats.hosts(now - timedelta(minutes=20), now)
            return {one.source: sum("cpu" in point.mean for point in one.points) for one in hosts}

    with asyncio.Runner(loop_factory=DemoLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, DemoLoop)
        found = runner.run(measured(loop))
    assert set(found) == {"shop-1", "shop-2"}
    assert min(found.values()) >= 20
