"""``windlass schedules``."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest

from tests.architecture.source import ROOT
from tests.cli.fixtures import Said, empty_file
from tests.cli.processes import windlass
from tests.worker.fixtures import eventually
from windlass import Cron, Every, Manual, Once, Windlass
from windlass._app.parts import parts_of
from windlass._cli.main import main
from windlass._cli.schedules.command import schedules
from windlass._core.job.state import State
from windlass._core.schedule.schedule import Missed, Schedule
from windlass._storage.protocol.schedules import ScheduleWrite

FIELDS = {
    "name",
    "state",
    "problem",
    "words",
    "rule",
    "next_at",
    "upcoming",
    "task",
    "queue",
    "arguments",
    "missed",
    "most_missed",
    "overlap",
    "jitter",
    "starts",
    "ends",
    "runs",
    "fired",
    "left_out",
    "failures",
    "on",
    "on_workers",
    "breaker",
    "declared",
    "changed",
    "changed_by",
    "changed_at",
}
RUN = {"slot", "job", "outcome", "ended_at", "by"}
DAILY = Cron("0 8 * * *", "Europe/Berlin")
MODULE = "windlass_test_shop"


class Diary:
    """Call it with the words of a command: about an app, which a module holds, or about its URL."""

    def __init__(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.url = url
        self._capsys = capsys
        self.app = Windlass(url)
        declare(self.app)

    def __call__(self, order: str, *words: str) -> Said:
        """By the URL."""
        return self._run(order, *words, "--url", self.url)

    def by_app(self, order: str, *words: str) -> Said:
        """By an app of its own, as another process has one."""
        module = ModuleType(MODULE)
        app = Windlass(self.url)
        declare(app)
        vars(module)["app"] = app
        sys.modules[MODULE] = module
        try:
            return self._run(order, f"{MODULE}:app", *words)
        finally:
            del sys.modules[MODULE]

    def _run(self, *words: str) -> Said:
        self._capsys.readouterr()
        code = main(["schedules", *words])
        return Said(code, *self._capsys.readouterr())

    def work(self, app: Windlass | None = None) -> None:
        """Let a worker bring in what the code declares, and run what is ready."""

        async def until_empty() -> None:
            async with (app or self.app).worker(until_empty=True) as worker:
                await worker.wait()

        self.run(until_empty())

    def report(self, name: str) -> Any:
        return self.run(self.app.admin.schedules.get(name))

    def run(self, question: Any) -> Any:
        return self.app.blocking.run(question)

    def close(self) -> None:
        self.run(self.app.close())
        parts_of(self.app).blocking_loop.stop()


def declare(app: Windlass) -> None:
    @app.schedule(DAILY)
    @app.schedule(Manual(), name="by-hand", kwargs={"region": "us"})
    @app.task(name="report", max_attempts=1)
    async def report(region: str = "eu") -> None:
        if region == "down":
            raise ConnectionError("no numbers")


@pytest.fixture
def everywhere(each_url: str, capsys: pytest.CaptureFixture[str]) -> Iterator[Diary]:
    made = Diary(each_url, capsys)
    made.work()
    yield made
    made.close()


@pytest.fixture
def diary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Diary]:
    made = Diary(empty_file(tmp_path), capsys)
    made.work()
    yield made
    made.close()


# --- every command, on every storage --------------------------------------------------------------


def test_all_schedules_are_paused_and_resumed(everywhere: Diary) -> None:
    diary = everywhere
    said = diary("pause", "--all")
    assert (said.code, said.out) == (
        0,
        "All schedules are paused. Undo it with `windlass schedules resume --all`.\n",
    )
    listed = diary("list")
    assert "All schedules are paused since 20" in listed.err
    assert "All schedules are paused since 20" in diary("show", "report").err
    again = diary.by_app("pause", "--all", "--json").json
    assert again["paused"]
    assert diary("resume", "--all", "--json").json == {"paused": False, "since": None}
    assert diary("list").err == ""
    assert [one["state"] for one in diary("list", "--json").json if one["name"] == "report"] == [
        "active"
    ]


def test_a_name_and_all_together_are_refused(diary: Diary) -> None:
    said = diary("pause", "report", "--all")
    assert said.code == 1
    assert "name a schedule, or give --all, not both" in said.err


def test_schedules_are_listed_and_shown(everywhere: Diary) -> None:
    diary = everywhere
    rows = {row[0]: row[1:] for row in diary("list").rows}
    assert list(rows) == ["by-hand", "report", "windlass.retention", "windlass.tidy"]
    assert rows["by-hand"] == ["only when triggered", "active", "–", "none yet"]
    when, state, after, last = rows["report"]
    assert (when, state, last) == ("at 08:00 every day, Europe/Berlin", "active", "none yet")
    assert after.startswith("in ")
    listed = diary("list", "--json").json
    assert [set(one) for one in listed] == [FIELDS] * 4
    shown = diary("show", "report", "--json").json
    assert shown == listed[1]
    assert shown["rule"] == {"cron": "0 8 * * *", "tz": "Europe/Berlin"}
    assert len(shown["upcoming"]) == 5
    assert shown["upcoming"][0] == shown["next_at"]
    assert (shown["task"], shown["arguments"], shown["overlap"]) == ("report", {}, "skip")
    assert shown["breaker"] == {"failures": 0, "opened": 0, "open_until": None}
    assert (shown["declared"], shown["changed_by"]) == (True, "code")
    chore = diary("show", "windlass.tidy", "--json").json
    assert (chore["task"], chore["arguments"], chore["breaker"]) == (None, None, None)
    assert "a chore of Windlass" in diary("show", "windlass.tidy").out


def test_a_schedule_is_made_changed_and_deleted(everywhere: Diary) -> None:
    diary = everywhere
    options = (
        "--missed=all",
        "--most-missed=7",
        "--overlap=3",
        "--jitter=30s",
        "--starts=2030-01-01T00:00Z",
        "--ends=2031-01-01T00:00+01:00",
    )
    task = ("--task=report", '--args={"region": "jp"}')
    made = diary.by_app("create", "tokyo", "--every=1h", *task, *options, "--json").json
    assert set(made) == FIELDS
    assert made["declared"] is False
    assert made["arguments"] == {"region": "jp"}
    plan = diary.report("tokyo").plan
    assert plan == Schedule(
        rule=Every(3600),
        job=plan.job,
        missed=Missed.ALL,
        most_missed=7,
        overlap=3,
        jitter=timedelta(seconds=30),
        starts=datetime(2030, 1, 1, tzinfo=UTC),
        ends=datetime(2030, 12, 31, 23, tzinfo=UTC),
    )
    again = diary.by_app("create", "tokyo", "--manual", *task)
    assert again.code == 1
    assert "schedule 'tokyo' already exists" in again.err

    told = diary("set", "tokyo", "--every=5m", "--after-end", "--overlap=skip", "--ends=none")
    assert "5 minutes after the last run has ended" in told.out
    plan = diary.report("tokyo").plan
    assert (plan.rule, plan.overlap, plan.ends) == (Every(300, "end"), "skip", None)
    assert plan.most_missed == 7
    assert diary.report("tokyo").changed_by.startswith("cli:")

    assert diary("delete", "tokyo", "--yes").out == "Schedule tokyo is deleted.\n"
    assert diary("show", "tokyo").code == 1


def test_changed_values_are_shown_with_the_codes(everywhere: Diary) -> None:
    diary = everywhere
    told = diary.by_app(
        "set", "by-hand", '--args={"region": "jp"}', "--once=2030-12-24T08:00+01:00", "--json"
    ).json
    assert told["arguments"] == {"region": "jp"}
    assert told["rule"] == {"once": "2030-12-24T07:00:00Z"}
    assert told["changed"] == {
        "rule": {
            "code": "only when triggered",
            "now": "once, at 2030-12-24 07:00:00 UTC",
        },
        "arguments": {"code": '{"region":"us"}', "now": '{"region":"jp"}'},
    }
    diary.work()  # a restart
    plain = diary("show", "by-hand").out
    assert '{"region":"jp"}; in the code: {"region":"us"}' in plain
    assert diary.report("by-hand").plan.rule == Once(datetime(2030, 12, 24, 7, tzinfo=UTC))
    back = diary("reset", "by-hand", "--json").json
    assert (back["changed"], back["arguments"]) == ({}, {"region": "us"})


def test_a_schedule_is_paused_and_resumed(everywhere: Diary) -> None:
    diary = everywhere
    assert diary("pause", "report").out == "Schedule report is paused.\n"
    diary.work()
    paused = diary("show", "report", "--json").json
    assert (paused["state"], paused["next_at"], paused["upcoming"]) == ("paused", None, [])
    assert re.fullmatch(
        r"Schedule report is active\. Next in .+\.\n", diary("resume", "report").out
    )
    assert diary("pause", "report", "--json").json["state"] == "paused"
    assert diary("resume", "report", "--json").json["next_at"] is not None


def test_a_schedule_is_triggered_and_its_runs_are_shown(everywhere: Diary) -> None:
    diary = everywhere
    job = diary("trigger", "by-hand", "--json").json["job"]
    busy = diary("trigger", "by-hand")
    assert busy.code == 1
    assert "1 of its runs is waiting or running" in busy.err
    diary.work()
    assert re.fullmatch(r"Enqueued job [0-9a-f]{32}\.\n", diary("trigger", "by-hand").out)
    told = diary("show", "by-hand", "--json").json
    assert [set(run) for run in told["runs"]] == [RUN, RUN]
    assert [run["outcome"] for run in told["runs"]] == ["waiting", "succeeded"]
    assert told["runs"][1]["job"] == job
    assert told["runs"][1]["by"].startswith("cli:")
    assert (told["fired"], told["failures"]) == (2, 0)
    assert "triggered by" in diary("show", "by-hand").out
    chore = diary("trigger", "windlass.tidy")
    assert chore.out == "windlass.tidy is a chore: a worker runs it at once.\n"


def test_a_removed_schedule_stays_removed_until_it_is_reset(everywhere: Diary) -> None:
    diary = everywhere
    job = diary("trigger", "by-hand", "--json").json["job"]
    said = diary("remove", "by-hand", "--cancel-runs", "--yes")
    assert (
        said.out
        == "Schedule by-hand is removed. Workers that declare it do not restore it; `reset` does.\n"
    )
    assert diary.run(diary.app.admin.jobs.get(job)).state is State.CANCELLED
    diary.work()
    assert "by-hand" not in diary("list").out
    assert diary("show", "by-hand").code == 1
    states = {one["name"]: one["state"] for one in diary("list", "--all", "--json").json}
    assert states["by-hand"] == "removed"
    assert diary("reset", "by-hand", "--json").json["state"] == "active"


# --- words ----------------------------------------------------------------------------------------


def test_a_schedule_is_shown_in_words(diary: Diary) -> None:
    diary("set", "report", "--jitter=90s", "--starts=2020-01-01T00:00Z", "--missed=skip")
    plain = diary("show", "report").out
    for words in (
        "at 08:00 every day, Europe/Berlin",
        "report on queue default",
        "08:00:00 CE",
        "up to 90s",
        "2020-01-01 00:00:00 UTC",
        "0 fired, 0 skipped",
        "skip; in the code: one",
        "last changed",
    ):
        assert words in plain, plain


def test_failures_in_a_row_and_an_open_breaker_are_shown(diary: Diary) -> None:
    diary.run(diary.app.admin.breakers.set("report", failures=2))
    diary.by_app("set", "by-hand", '--args={"region": "down"}')
    for _ in range(2):
        diary("trigger", "by-hand")
        diary.work()
    told = diary("show", "by-hand", "--json").json
    assert (told["failures"], told["runs"][0]["outcome"]) == (2, "failed")
    assert told["breaker"]["open_until"] is not None
    plain = diary("show", "by-hand").out
    assert "2 in a row" in plain
    assert "open until" in plain
    assert diary("list").rows[0][-2:] == ["failed", "2"]


def test_an_empty_storage_says_how_to_begin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = Diary(empty_file(tmp_path), capsys)
    assert empty("list").out.startswith("SQLite")
    assert empty("list", "--json").json == []
    empty.close()


def test_a_schedule_that_cannot_be_read_says_why_and_can_be_deleted(diary: Diary) -> None:
    write = ScheduleWrite(name="bad", revision=0, body=b'{"plan": 5}')

    async def store() -> None:
        await (await parts_of(diary.app).storage()).schedules.write([write])

    diary.run(store())
    told = diary("show", "bad", "--json").json
    assert set(told) == FIELDS
    assert (told["state"], told["rule"]) == ("broken", None)
    assert "it cannot be read" in diary("show", "bad").out
    assert "broken" in diary("list").out
    assert diary("pause", "bad").code == 1
    assert diary("delete", "bad", "--yes").code == 0


# --- preview --------------------------------------------------------------------------------------


def previewed(capsys: pytest.CaptureFixture[str], *words: str) -> Said:
    capsys.readouterr()
    code = main(["schedules", "preview", *words])
    return Said(code, *capsys.readouterr())


def test_a_preview_asks_no_storage(capsys: pytest.CaptureFixture[str]) -> None:
    first, *slots = previewed(capsys, "--cron=@daily", "--tz=Europe/Berlin").out.splitlines()
    assert first == "at 00:00 every day, Europe/Berlin"
    assert len(slots) == 5
    assert all(re.fullmatch(r"  \d{4}-\d\d-\d\d 00:00:00 CES?T", slot) for slot in slots)
    told = previewed(capsys, "--every=250ms", "--count=3", "--json").json
    assert told["words"] == "every 250 milliseconds"
    assert len(told["slots"]) == 3
    assert previewed(capsys, "--once=2001-01-01T00:00Z", "--json").json["slots"] == [
        "2001-01-01T00:00:00Z"
    ]
    assert previewed(capsys, "--manual", "--json").json["slots"] == []


# --- confirmations --------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["remove", "delete"])
def test_nothing_is_deleted_before_the_user_confirms(
    diary: Diary, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for answer in ("n\n", "\n", ""):
        monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
        said = diary(order, "by-hand")
        assert said.code == 130
        assert f"{order.capitalize()} schedule by-hand" in said.out + said.err
        assert diary.report("by-hand").state == "active"
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert diary(order, "by-hand").code == 0
    assert diary("show", "by-hand").code == 1


def test_one_that_was_made_at_run_time_is_removed_without_a_promise(diary: Diary) -> None:
    diary.by_app("create", "tokyo", "--manual", "--task=report")
    assert diary("remove", "tokyo", "--yes").out == "Schedule tokyo is removed.\n"
    said = diary("reset", "tokyo")
    assert said.code == 1
    assert "created at run time" in said.err


# --- wrong commands -------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["show", "pause", "resume", "trigger", "reset"])
def test_an_unknown_schedule_is_refused_with_a_suggestion(diary: Diary, order: str) -> None:
    said = diary(order, "reprot")
    assert said.code == 1
    assert "no schedule 'reprot'. Did you mean 'report'?" in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["show"], "give the schedule"),
        (["show", "a", "b", "c"], "one schedule at a time"),
        (["set", "report"], "nothing to set: give a rule, --args"),
        (["set", "report", "--cron=0 8 * *"], "five fields, minute hour day month weekday"),
        (["set", "report", "--cron=0 8 31 2 *"], "is no cron expression"),
        (["set", "report", "--cron=@daily", "--tz=Europe/Berln"], "Europe/Berlin"),
        (["set", "report", "--tz=Europe/Berlin"], "--tz belongs to --cron"),
        (["set", "report", "--after-end"], "--after-end belongs to --every"),
        (["set", "report", "--cron=@daily", "--manual"], "give one rule"),
        (["set", "report", "--every=often"], "--every must be a duration"),
        (["set", "report", "--every=0s"], "at least a millisecond"),
        (["set", "report", "--once=tomorrow"], "2030-12-24T08:00+01:00"),
        (["set", "report", "--once=2030-01-01T00:00"], "time zone"),
        (["set", "report", "--starts=2030-01-01T00:00"], "time zone"),
        (["set", "report", "--ends=soon"], "2030-12-24T08:00+01:00"),
        (["set", "report", "--missed=some"], "'skip', 'one' or 'all'"),
        (["set", "report", "--most-missed=0"], "from 1 to 10,000"),
        (["set", "report", "--overlap=never"], "'skip', 'queue', 'allow' or a number"),
        (["set", "report", "--overlap=0"], "a whole number from 1 to"),
        (["set", "report", "--jitter=bit"], "it must be a duration such as"),
        (["set", "report", "--args={}"], "--args needs the app"),
        (["create", "new", "--manual", "--task=report"], "name the app that has the task"),
        (["create", "new", "--task=report"], "give a rule: --cron"),
        (["create", "new", "--manual"], "--task"),
    ],
)
def test_a_wrong_command_says_what_would_be_right(
    diary: Diary, words: list[str], says: str
) -> None:
    said = diary(*words)
    assert said.code == 1
    assert says in said.err
    assert said.out == ""
    assert diary.report("report").changed == {}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--task=reprot"], "Did you mean 'report'?"),
        (["--task=report", '--args={"regoin": "eu"}'], "Unexpected keyword argument 'regoin'"),
        (["--task=report", '--args={"region": 5}'], "region"),
        (["--task=report", '--args=["eu"]'], "a JSON object of arguments by name"),
        (["--task=report", "--args={region"], "--args is a JSON object such as"),
    ],
)
def test_a_call_that_does_not_fit_the_task_is_refused(
    diary: Diary, words: list[str], says: str
) -> None:
    said = diary.by_app("create", "new", "--manual", *words)
    assert said.code == 1
    assert says in said.err


def test_a_chore_has_no_arguments(diary: Diary) -> None:
    said = diary.by_app("set", "windlass.tidy", "--args={}")
    assert said.code == 1
    assert "is a chore" in said.err


@pytest.mark.parametrize(
    "words", [[], ["--tz=UTC"], ["--every=1s", "--manual"], ["--manual", "--count=0"]]
)
def test_a_preview_needs_one_rule(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    said = previewed(capsys, *words)
    assert said.code == 1
    assert "--" in said.err


def test_a_name_with_a_colon_is_refused(diary: Diary) -> None:
    said = diary.by_app("create", "a:b", "--manual", "--task=report")
    assert said.code == 1
    assert "must not contain ':'" in said.err


def test_an_app_is_named_before_the_schedule(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from windlass import Windlass\n"
        "app = Windlass('sqlite:///shop.db')\n"
        "@app.task(name='send')\n"
        "async def send(to: str) -> None: ...\n"
    )
    made = windlass(
        *("schedules", "create", "shop:app", "mail", "--cron", "@hourly", "--task", "send"),
        *("--args", json.dumps({"to": "ada"})),
        cwd=tmp_path,
    )
    assert (made.returncode, made.stderr) == (0, "")
    assert "every hour, UTC" in made.stdout
    by_url = {"WINDLASS_URL": "sqlite:///shop.db"}
    assert "every hour" in windlass("schedules", "list", cwd=tmp_path, env=by_url).stdout
    forgot = windlass("schedules", "pause", "shop:app", cwd=tmp_path)
    assert forgot.returncode == 1
    assert "give the schedule after the app: shop:app SCHEDULE" in forgot.stderr


# --- the page -------------------------------------------------------------------------------------


def test_the_page_tells_every_command_every_option_and_every_field() -> None:
    text = (ROOT / "docs" / "guides" / "schedules.md").read_text(encoding="utf-8")
    assert isinstance(schedules, click.Group)
    for name, command in schedules.commands.items():
        assert re.search(rf"`{name}\b", text), name
        options = [name for option in command.params for name in option.opts]
        assert [name for name in options if name.startswith("--") and name not in text] == []
    assert [field for field in FIELDS | RUN if f"`{field}`" not in text] == []


def test_a_schedule_of_every_worker_is_marked_and_shows_the_last_run_of_each(
    everywhere: Diary,
) -> None:
    diary = everywhere

    @diary.app.schedule(Every(0.05), on="every_worker")
    @diary.app.task(name="refresh")
    async def refresh() -> None: ...

    async def ran() -> bool:
        return bool((await diary.app.admin.schedules.get("refresh")).on_workers)

    async def work() -> None:
        async with diary.app.worker():
            await eventually(ran)

    diary.run(work())
    assert "on every worker" in diary("list").out
    shown = diary("show", "refresh").out
    assert "on every worker, without a job" in shown
    told = diary("show", "refresh", "--json").json
    assert told["on"] == "every_worker"
    (run,) = told["on_workers"]
    assert run["outcome"] == "succeeded"
    assert run["worker"] in shown
