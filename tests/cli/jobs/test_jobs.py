"""``windlass jobs``."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import msgspec
import pytest

from tests.architecture.source import ROOT
from tests.cli.fixtures import Desk
from tests.cli.processes import windlass
from windlass import Backoff, Context, GiveUp
from windlass._admin import queues
from windlass._app.parts import parts_of
from windlass._cli.commands.workers import workers
from windlass._cli.jobs.command import jobs
from windlass._core.job.job import AttemptError, ClaimedJob, NewJob, Progress
from windlass._core.job.state import State
from windlass._core.job.transition import fail
from windlass._core.values.redaction import redacted_url
from windlass._storage.protocol.jobs import Want
from windlass._storage.protocol.storage import Storage
from windlass._storage.protocol.workers import WorkerStart
from windlass._system.seams import new_job_id
from windlass._version import __version__
from windlass.testing.conformance.steps import a_worker

FIELDS = {
    "id",
    "seq",
    "task",
    "queue",
    "state",
    "priority",
    "created_at",
    "due",
    "attempt",
    "max_attempts",
    "started_at",
    "finished_at",
    "expires_at",
    "timeout",
    "worker",
    "error",
    "reason",
    "progress",
    "metadata",
    "cancel_requested",
    "key",
    "key_held",
    "limits",
    "lost",
    "solo",
    "missed_at",
    "missed_why",
    "throttled",
    "tags",
    "tenant",
    "principal",
    "correlation_id",
    "parent",
}
WHOLE = FIELDS | {"traceback", "arguments", "result", "history"}
STEERS = "\x1b[2J\x1b]0;owned\x07\r\nroot# \u202e"


def failed(desk: Desk) -> str:
    """A job that has failed for good."""

    @desk.app.task(name="give_up", queue="bad")
    async def give_up(order: int) -> None:
        message = f"no such order: {order}"
        raise GiveUp(message)

    job = give_up.enqueue_sync(7)
    desk.work()
    return job.id


def running(desk: Desk, job: NewJob) -> ClaimedJob:
    """``job``, claimed by a worker that is not there."""
    worker: WorkerStart = msgspec.structs.replace(a_worker("w1"), version=__version__)

    async def claimed() -> ClaimedJob:
        storage: Storage = await parts_of(desk.app).storage()
        await storage.workers.register(worker)
        await storage.jobs.insert([job])
        (one,) = (await storage.jobs.claim("w1", [Want(job.queue, 1)], total=1)).jobs
        return one

    answer: ClaimedJob = desk.run(claimed())
    return answer


def stored(desk: Desk, job: str) -> State:
    state: State = desk.run(desk.app.admin.jobs.get(job)).state
    return state


# --- looking --------------------------------------------------------------------------------------


def test_jobs_are_listed_newest_first_and_by_what_they_are(everywhere: Desk) -> None:
    desk = everywhere
    first = desk.fetch.enqueue_sync("a").id
    later = desk.fetch.options(delay=3600).enqueue_sync("b").id
    mail = desk.serve.enqueue_sync("acme").id
    told = desk("jobs", "list", "--json").json
    assert [job["id"] for job in told] == [mail, later, first]
    assert all(set(job) == FIELDS | {"next"} for job in told)
    assert [job["state"] for job in told] == ["ready", "scheduled", "ready"]
    assert [job["id"] for job in desk("jobs", "list", "--queue", "mail", "--json").json] == [mail]
    by_task = desk("jobs", "list", "--task", "fetch", "--state", "waiting", "--json").json
    assert [job["id"] for job in by_task] == [later, first]
    assert desk("jobs", "list", "--state", "failed", "--state", "running", "--json").json == []


def test_a_list_continues_where_it_stopped(everywhere: Desk) -> None:
    desk = everywhere
    ids = [desk.fetch.enqueue_sync(str(page)).id for page in range(3)]
    page = desk("jobs", "list", "--limit", "2", "--json").json
    assert [job["id"] for job in page] == [ids[2], ids[1]]
    rest = desk("jobs", "list", "--before", str(page[-1]["seq"]), "--json").json
    assert [job["id"] for job in rest] == [ids[0]]
    assert f"--before {page[-1]['seq']}" in desk("jobs", "list", "--limit", "2").out
    assert [job["next"] for job in page] == [None, page[-1]["seq"]]
    assert [job["next"] for job in rest] == [None]


def test_json_output_has_the_cursor_of_a_list_by_time(everywhere: Desk) -> None:
    desk = everywhere
    ended = [desk.fetch.enqueue_sync(str(page)).id for page in range(3)]
    for job in ended:
        desk("jobs", "cancel", job, "--yes")
    later = [desk.fetch.options(delay=delay).enqueue_sync("a").id for delay in (100, 200, 300)]
    for words, ids in (
        (["--state", "cancelled"], ended[::-1]),
        (["--state", "cancelled", "--order", "finished"], ended),
        (["--state", "scheduled", "--order=-due"], later[::-1]),
    ):
        page = desk("jobs", "list", *words, "--limit", "2", "--json").json
        assert page[0]["next"] is None
        rest = desk("jobs", "list", *words, "--before", page[1]["next"], "--json").json
        assert [job["id"] for job in page + rest] == ids
        assert rest[-1]["next"] is None
        assert desk("jobs", "list", *words, "--all", "--json").json[-1]["next"] is None


def test_a_list_is_ordered_by_a_time_and_continues_there(everywhere: Desk) -> None:
    desk = everywhere
    ids = [desk.fetch.options(delay=delay).enqueue_sync("a").id for delay in (300, 100, 200)]
    scheduled = ("jobs", "list", "--state", "scheduled")
    told = desk(*scheduled, "--json").json
    assert [job["id"] for job in told] == [ids[1], ids[2], ids[0]]
    last = desk(*scheduled, "--order", "-due", "--json").json
    assert [job["id"] for job in last] == [ids[0], ids[2], ids[1]]
    first = desk(*scheduled, "--order", "due", "--limit", "2").out
    cursor = first.split("--before ")[1].split()[0]
    rest = desk(*scheduled, "--order", "due", "--before", cursor, "--json").json
    assert [job["id"] for job in rest] == [ids[0]]
    refused = desk("jobs", "list", "--order", "-finished")
    assert refused.code != 0
    assert "finished and -finished with the states" in " ".join(refused.err.split())


def test_jobs_are_counted_exactly(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "_CAPS", (2, 2))
    for _ in range(5):
        desk.fetch.enqueue_sync("a")
    assert desk("jobs", "count", "--state", "waiting").out.strip() == "5"
    assert desk("jobs", "count", "--task", "fetch", "--json").json == {"count": 5}
    listed = desk("queues", "list").out
    assert "2+" in listed
    assert "--exact counts all of them" in listed
    exact = desk("queues", "list", "--exact").out
    assert "+" not in exact


def test_a_list_is_a_table(desk: Desk) -> None:
    assert desk("jobs", "list").out.startswith("No job matches in SQLite")
    job = failed(desk)
    ((name, task, queue, state, attempt, when, error),) = desk("jobs", "list").rows
    assert (name, task, queue, state, attempt) == (job, "give_up", "bad", "failed", "1 of 5")
    assert when.startswith("ended ")
    assert error == "GiveUp: no such order: 7"


def test_a_job_is_shown_whole(everywhere: Desk) -> None:
    desk = everywhere
    job = failed(desk)
    told = desk("jobs", "show", job, "--json").json
    assert set(told) == WHOLE
    assert told["arguments"] == {"order": 7}
    assert told["error"]["message"] == "no such order: 7"
    (attempt,) = told["history"]
    assert (attempt["verb"], attempt["attempt"]) == ("fail", 1)
    assert attempt["error"]["kind"] == told["error"]["kind"]
    plain = desk("jobs", "show", job).out
    for words in ("give_up on queue bad", "failed", '{"order":7}', "no such order: 7", "claim 1"):
        assert words in plain
    assert re.search(
        r"attempt 1, ran \S+ m?s on worker \S+, then fail: GiveUp: no such order", plain
    )


def test_a_result_and_progress_are_shown(desk: Desk) -> None:
    @desk.app.task(name="add")
    async def add(a: int, b: int) -> int:
        return a + b

    job = add.enqueue_sync(1, 2).id
    desk.work()
    assert desk("jobs", "show", job, "--json").json["result"] == 3
    claimed = running(desk, NewJob(id=new_job_id(), task="slow", queue="slow"))
    desk.run(report(desk, claimed, Progress(0.4, "resizing")))
    told = desk("jobs", "show", claimed.claim.job, "--json").json
    assert told["progress"] == {"fraction": 0.4, "note": "resizing", "data": None}
    assert "40% resizing" in desk("jobs", "show", claimed.claim.job).out


def test_metadata_is_shown_with_the_job_and_with_each_attempt(everywhere: Desk) -> None:
    desk = everywhere

    @desk.app.task(name="load", backoff=Backoff.none())
    async def load(ctx: Context) -> None:
        ctx.note(rows=100 * ctx.attempt, source="s3", api_key="tok-4711")
        if ctx.attempt == 1:
            raise ValueError("no")

    job = desk.run(load.enqueue()).id
    desk.work()
    told = desk("jobs", "show", job, "--json").json
    assert told["metadata"] == {"rows": 200, "source": "s3", "api_key": "***"}
    assert told["history"][0]["metadata"] == {"rows": 100, "source": "s3", "api_key": "***"}
    said = desk("jobs", "show", job).out
    assert 'rows=200 source="s3"' in said
    assert 'rows=100 source="s3"' in said
    assert "4711" not in said


async def report(desk: Desk, job: ClaimedJob, progress: Progress) -> None:
    await (await parts_of(desk.app).storage()).jobs.report([(job.claim, progress)])


def test_an_error_of_several_lines_is_shown_line_by_line(desk: Desk) -> None:
    asked = NewJob(id=new_job_id(), task="several", queue="several")
    error = AttemptError("ValueError", "first\nsecond\n\tthird", "Traceback\n\tlast")
    desk.run(ended(desk, running(desk, asked), error))
    lines = [line.rstrip() for line in desk("jobs", "show", asked.id).out.splitlines()]
    (at,) = [n for n, line in enumerate(lines) if line.endswith("ValueError: first")][-1:]
    assert [line.strip() for line in lines[at + 1 :]] == ["second", "third", "Traceback", "last"]
    assert "\\n" not in "".join(lines)
    assert "\\t" not in "".join(lines)


def test_text_of_jobs_cannot_control_the_terminal(everywhere: Desk) -> None:
    desk = everywhere
    asked = NewJob(id=new_job_id(), task="evil", queue="evil", tenant=f"t{STEERS}")
    claimed = running(desk, asked)
    desk.run(report(desk, claimed, Progress(0.1, f"note{STEERS}")))
    for _ in range(2):
        for command in ("list", "show", "explain"):
            words = [] if command == "list" else [asked.id]
            out = desk("jobs", command, *words).out
            assert not set(STEERS.replace("\n", "")) & set(out) - set("[]2J0;ownedrt# ")
            assert "\nroot#" not in out
        error = AttemptError(f"Kind{STEERS}", f"text{STEERS}", f"Traceback{STEERS}")
        desk.run(ended(desk, claimed, error))


async def ended(desk: Desk, job: ClaimedJob, error: AttemptError) -> None:
    await (await parts_of(desk.app).storage()).jobs.apply([fail(job, by="w1", error=error)])


def test_a_damaged_payload_does_not_damage_the_answer(desk: Desk) -> None:
    asked = NewJob(id=new_job_id(), task="odd", payload=b'{"a":')
    claimed = running(desk, asked)
    told = desk("jobs", "show", claimed.claim.job, "--json").json
    assert told["arguments"] == {"damaged": '{"a":'}


# --- why ------------------------------------------------------------------------------------------


def test_a_job_is_explained(everywhere: Desk) -> None:
    desk = everywhere
    job = desk.serve.enqueue_sync("acme").id
    desk.run(desk.app.admin.queues.pause("mail"))
    told = desk("jobs", "explain", job, "--json").json
    assert set(told) == {"id", "task", "queue", "state", "at", "expected_at", "causes"}
    assert [cause["code"] for cause in told["causes"]] == ["queue_paused", "no_worker"]
    assert set(told["causes"][0]) == {"code", "sentence", "evidence", "until", "fix"}
    plain = desk("jobs", "explain", job).out
    assert "why" in plain
    assert "Queue mail is paused" in plain
    given = shlex.quote(desk.url) if redacted_url(desk.url) == desk.url else '"$WINDLASS_URL"'
    assert f"→ Resume it: `windlass queues resume --url {given} mail`" in plain
    assert "also" in plain
    assert "expected  unknown" in plain


def test_an_explanation_says_when_the_job_is_expected(desk: Desk) -> None:
    desk.run(parts_of(desk.app).storage())
    running(desk, NewJob(id=new_job_id(), task="fetch"))
    job = desk.fetch.options(delay=3600).enqueue_sync("a").id
    told = desk("jobs", "explain", job, "--json").json
    assert [cause["code"] for cause in told["causes"]] == ["scheduled"]
    assert told["expected_at"] == told["causes"][0]["until"]
    plain = desk("jobs", "explain", job).out
    assert "expected  20" in plain
    assert "UTC, in " in plain


# --- orders ---------------------------------------------------------------------------------------


def test_a_failed_job_is_requeued_once(everywhere: Desk) -> None:
    desk = everywhere
    job = failed(desk)
    said = desk("jobs", "requeue", job)
    assert (said.code, said.out) == (0, f"Job {job} is ready to run again.\n")
    assert stored(desk, job) is State.WAITING
    again = desk("jobs", "requeue", job)
    assert again.code == 1
    assert f"Cannot requeue job {job}: it is waiting" in again.err


def test_one_that_cannot_be_done_does_not_stop_the_others(everywhere: Desk) -> None:
    desk = everywhere
    job, unknown = failed(desk), new_job_id()
    said = desk("jobs", "requeue", unknown, job, job)
    assert said.code == 1
    assert f"No job {unknown} is stored." in said.err
    assert said.out == f"Job {job} is ready to run again.\n"
    assert stored(desk, job) is State.WAITING


def test_actions_print_json(desk: Desk) -> None:
    job, unknown = desk.fetch.options(delay=60).enqueue_sync("a").id, new_job_id()
    told = desk("jobs", "run-now", job, "--json").json
    assert told == [{"id": job, "done": True, "problem": None}]
    refused = desk("jobs", "run-now", unknown, "--json")
    assert refused.code == 1
    assert '"done":false' in refused.out
    assert "is stored" in refused.out


def test_the_jobs_below_a_job_are_cancelled_with_it(everywhere: Desk) -> None:
    desk = everywhere

    @desk.app.task(name="tree")
    async def tree(ctx: Context) -> None:
        await ctx.enqueue(desk.serve.options(delay=3600).call("acme"))

    job = str(tree.enqueue_sync().id)
    desk.work()
    said = desk("jobs", "cancel", job, "--children", "--yes")
    assert said.code == 0
    assert said.out == (
        f"Job {job} had ended. Of the jobs below it, 1 are cancelled and 0 are running and were "
        f"asked to stop.\n"
    )
    again = desk("jobs", "cancel", job, "--children", "--yes")
    assert again.out == f"Job {job} had ended. No job below it is left to cancel.\n"
    refused = desk("jobs", "cancel", "--all", "--task", "tree", "--children", "--yes")
    assert refused.code == 1
    assert "--children needs job ids" in refused.err


def test_a_waiting_job_is_cancelled_and_a_running_one_is_asked(everywhere: Desk) -> None:
    desk = everywhere
    job = desk.fetch.enqueue_sync("a").id
    said = desk("jobs", "cancel", job, "--yes")
    assert (said.code, said.out) == (0, f"Job {job} is cancelled and will not run.\n")
    assert stored(desk, job) is State.CANCELLED
    late = desk("jobs", "cancel", job, "--yes")
    assert late.code == 1
    assert "it is cancelled, and cancel needs a job that has not ended" in late.err
    claimed = running(desk, NewJob(id=new_job_id(), task="slow", queue="slow"))
    asked = desk("jobs", "cancel", claimed.claim.job, "--yes")
    assert "its worker was asked to stop" in asked.out
    assert desk.run(desk.app.admin.jobs.get(claimed.claim.job)).cancel_requested


def test_a_failed_job_is_discarded_with_a_reason(everywhere: Desk) -> None:
    desk = everywhere
    job = failed(desk)
    assert desk("jobs", "discard", job, "--yes", "--reason", "order was deleted").code == 0
    assert stored(desk, job) is State.DISCARDED
    assert "discarded: order was deleted" in desk("jobs", "show", job).out


def test_a_scheduled_job_is_run_now_and_a_running_one_is_not(everywhere: Desk) -> None:
    desk = everywhere
    job = desk.fetch.options(delay=3600).enqueue_sync("a").id
    assert desk("jobs", "run-now", job).out == f"Job {job} is due now.\n"
    assert desk("jobs", "show", job, "--json").json["state"] == "ready"
    claimed = running(desk, NewJob(id=new_job_id(), task="slow", queue="slow"))
    refused = desk("jobs", "run-now", claimed.claim.job)
    assert refused.code == 1
    assert "it is running, and run-now needs a waiting job" in refused.err


@pytest.mark.parametrize("order", ["cancel", "discard"])
def test_commands_that_end_jobs_ask_first(
    desk: Desk, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = desk.fetch.enqueue_sync("a").id
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: "n")
    said = desk("jobs", order, job)
    assert said.code == 130
    assert stored(desk, job) is State.WAITING


# --- what is asked wrongly ------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["show", "explain", "requeue", "cancel", "discard", "run-now"])
def test_an_unknown_id_is_said_with_the_next_step(desk: Desk, command: str) -> None:
    yes = ["--yes"] if command in ("cancel", "discard") else []
    for name, step in ((new_job_id(), "Check the id"), ("nonsense", "Give the whole id")):
        said = desk("jobs", command, name, *yes)
        assert said.code == 1
        assert f"No job {name} is stored. {step}" in said.err
        assert said.out == ""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["show"], "give the id"),
        (["show", "a", "b", "c"], "one id at a time"),
        (["requeue"], "give the id"),
        (["requeue", "shop:app", "a"], "give an app or --url, not both"),
        (["list", "--state", "asleep"], "'asleep' is not one of 'waiting'"),
        (["list", "--limit", "0"], "0 is not in the range 1<=x<=1000"),
    ],
)
def test_a_wrong_command_says_what_would_be_right(desk: Desk, words: list[str], says: str) -> None:
    said = desk("jobs", *words)
    assert said.code == 1
    assert says in said.err
    assert said.out == ""


def test_an_app_is_named_before_the_ids(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from windlass import Windlass\n"
        "app = Windlass('sqlite:///shop.db')\n"
        "@app.task\n"
        "async def send() -> None: ...\n"
    )
    code = "import shop; print(shop.send.options(delay=60).enqueue_sync().id)"
    made = [windlass_python(code, tmp_path) for _ in range(2)]
    said = windlass("jobs", "run-now", "shop:app", *made, cwd=tmp_path)
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.count("is due now") == 2
    told = windlass("jobs", "explain", "shop:app", made[0], cwd=tmp_path).stdout
    assert "No live worker serves queue default" in told
    assert "Start one: `windlass worker shop:app --queue default`" in told
    windlass("queues", "pause", "shop:app", "default", cwd=tmp_path)
    paused = windlass("jobs", "explain", "shop:app", made[0], cwd=tmp_path).stdout
    assert "Resume it: `windlass queues resume shop:app default`" in paused
    forgot = windlass("jobs", "explain", "shop:app", cwd=tmp_path)
    assert "give the id after the app: shop:app ID" in forgot.stderr


def windlass_python(code: str, folder: Path) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True
    )
    return ran.stdout.strip()


# --- the page -------------------------------------------------------------------------------------

PAGES = ROOT / "docs" / "operating"


@pytest.mark.parametrize("group", [jobs, workers])
def test_the_page_tells_every_command_and_every_option(group: click.Group) -> None:
    text = (PAGES / f"{group.name}.md").read_text(encoding="utf-8")
    for name, command in group.commands.items():
        assert re.search(rf"`{name}\b|\b{group.name} {name}\b", text), name
        options = [name for option in command.params for name in option.opts]
        assert [name for name in options if name.startswith("--") and name not in text] == []


def test_the_page_tells_every_field_and_every_cause() -> None:
    pages = (PAGES / "jobs.md", PAGES / "incidents.md")
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    sources = (ROOT / "src" / "windlass" / "_admin").rglob("*.py")
    code = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    causes = set(re.findall(r'code ?= ?"(\w+)"', code))
    assert {"queue_paused", "scheduled", "running"} <= causes
    assert sorted(name for name in WHOLE | causes if f"`{name}`" not in text) == []
