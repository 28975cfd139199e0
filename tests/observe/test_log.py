"""Events as log lines, for people and for machines."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass import Backoff, Secret, Windlass
from windlass._app.parts import parts_of
from windlass._core.job.event import (
    Event,
    JobCoalesced,
    JobEnqueued,
    JobMoved,
    QueueCooled,
    WorkerChanged,
)
from windlass._core.job.ids import short_id
from windlass._core.job.job import AttemptError, JobId
from windlass._core.job.state import Verb
from windlass._observe.bus import Bus
from windlass._observe.current_run import WithJob
from windlass._observe.log import (
    EventLog,
    HumanFormatter,
    JsonFormatter,
    brief,
    error_in_one_line,
    printable,
)
from windlass.errors import JobFailed
from windlass.testing import drain

JOB = JobId("0199f00000007000800000000badcafe")
AT = datetime(2025, 3, 4, 5, 6, 7, tzinfo=UTC)


def moved(verb: Verb = Verb.SUCCEED, **changes: Any) -> JobMoved:
    fields: dict[str, Any] = {
        "verb": verb,
        "job": JOB,
        "task": "shop.jobs.send",
        "queue": "mail",
        "claim_number": 4,
        "attempt": 2,
        "max_attempts": 5,
        "worker": "w1",
        "at": AT,
        "waited": timedelta(milliseconds=12),
        "ran": timedelta(seconds=1.25),
    }
    return JobMoved(**(fields | changes))


class Caught(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def caught() -> Iterator[Caught]:
    handler = Caught()
    log = logging.getLogger("windlass.jobs")
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    yield handler
    log.removeHandler(handler)
    log.setLevel(before)


def human(record: logging.LogRecord, **how: Any) -> str:
    """Without the time."""
    return HumanFormatter(**how).format(record).partition(" ")[2]


def plain(text: str, **extra: Any) -> logging.LogRecord:
    record = logging.makeLogRecord(
        {"name": "windlass", "levelno": logging.INFO, "levelname": "INFO", "msg": text}
    )
    vars(record).update(extra)
    return record


# --- lines for people ---


def test_a_success_is_one_line_in_columns(caught: Caught) -> None:
    EventLog()(moved())
    (record,) = caught.records
    assert record.levelno == logging.INFO
    assert (
        human(record) == "✓ succeeded 0199f000…adcafe jobs.send      2/5  waited 12 ms  ran 1.2 s"
    )


def test_a_retry_says_why_and_when(caught: Caught) -> None:
    error = AttemptError("requests.ConnectionError", "refused\nby the other side")
    EventLog()(moved(Verb.RETRY, error=error, delay=timedelta(seconds=25)))
    (record,) = caught.records
    assert record.levelno == logging.WARNING
    again = (AT + timedelta(seconds=25)).astimezone()
    assert human(record).endswith(
        f"ran 1.2 s  ConnectionError: refused  → again in 25 s, at {again:%H:%M:%S}"
    )


def test_a_cool_down_is_logged_as_a_warning_with_its_length_and_reason(caught: Caught) -> None:
    until = AT + timedelta(seconds=90)
    event = QueueCooled(queue="api", until=until, at=AT, job=JOB, task="shop.call", worker="w1")
    EventLog()(event)
    (record,) = caught.records
    assert record.levelno == logging.WARNING
    assert human(record) == (
        f"! queue api is cooling down for 1 m 30 s, until {until.astimezone():%H:%M:%S}: "
        f"job {JOB} (shop.call) was throttled"
    )
    told = json.loads(JsonFormatter().format(record))
    assert (told["event"], told["queue"], told["job_id"]) == ("cool", "api", JOB)
    assert told["until"] == until.isoformat()


def test_a_failure_names_the_whole_job(caught: Caught) -> None:
    EventLog()(moved(Verb.FAIL, error=AttemptError("ValueError", "no")))
    (record,) = caught.records
    assert record.levelno == logging.ERROR
    assert human(record).endswith(f"ValueError: no  (job {JOB})")


def test_a_failure_brings_its_traceback_which_cannot_pass_for_lines_of_the_log(
    caught: Caught,
) -> None:
    trace = "Traceback (most recent call last):\n\tFile x\x1b[2J\nValueError: no\n"
    EventLog()(moved(Verb.FAIL, error=AttemptError("ValueError", "no", trace)))
    assert human(caught.records[0]).split("\n")[1:] == [
        "    │ Traceback (most recent call last):",
        "    │     File x\\x1b[2J",
        "    │ ValueError: no",
    ]


def test_the_traceback_of_a_retry_is_for_debugging(caught: Caught) -> None:
    error = AttemptError("ValueError", "no", "Traceback:\nhere\n")
    EventLog()(moved(Verb.RETRY, error=error, delay=timedelta(seconds=25)))
    (record,) = caught.records
    assert human(record).endswith("\n    │ Traceback:\n    │ here")
    logging.getLogger("windlass.jobs").setLevel(logging.INFO)
    assert "\n" not in human(record)


def test_a_release_says_why_if_there_was_an_error(caught: Caught) -> None:
    error = AttemptError("UnknownTask", "no task is called 'shop.sned'", "")
    EventLog()(moved(Verb.RELEASE, error=error, delay=timedelta(seconds=5)))
    assert "UnknownTask: no task is called 'shop.sned'  → again in 5 s" in human(caught.records[0])


@pytest.mark.parametrize("verb", list(Verb))
def test_every_verb_has_a_text(verb: Verb, caught: Caught) -> None:
    EventLog()(moved(verb))
    (record,) = caught.records
    assert short_id(JOB) in human(record)
    assert JOB in record.getMessage()


def test_a_release_says_that_it_is_due_at_once(caught: Caught) -> None:
    EventLog()(moved(Verb.RELEASE, delay=timedelta(0)))
    assert human(caught.records[0]).endswith("→ again at once")


def test_claims_and_inserts_are_for_debugging(caught: Caught) -> None:
    for event in (
        moved(Verb.CLAIM, ran=None),
        JobEnqueued(job=JOB, task="shop.send", queue="mail"),
        WorkerChanged(worker="w1", what="buried", detail="it was silent"),
        JobCoalesced(job=JOB, task="shop.send", queue="mail"),
        JobCoalesced(job=JOB, task="shop.send", queue="mail", replaced=True),
    ):
        EventLog()(event)
    assert {record.levelno for record in caught.records} == {logging.DEBUG}
    assert human(caught.records[3]) == f"· reused {JOB} shop.send on mail"
    assert human(caught.records[4]) == f"· replaced {JOB} shop.send on mail"
    assert human(caught.records[1]) == f"· enqueued {JOB} shop.send on mail"
    assert human(caught.records[2]) == "· worker w1 buried it was silent"


def test_suppressed_log_lines_are_not_built(caught: Caught) -> None:
    logging.getLogger("windlass.jobs").setLevel(logging.ERROR)
    EventLog()(moved())
    assert caught.records == []


def test_any_other_formatter_can_print_an_event(caught: Caught) -> None:
    EventLog()(moved())
    assert logging.Formatter("%(message)s").format(caught.records[0]) == (
        f"succeeded {JOB} shop.jobs.send 2/5 waited 12 ms ran 1.2 s"
    )


def test_colours_and_processes_can_be_told_apart(caught: Caught) -> None:
    EventLog()(moved())
    assert human(caught.records[0], colour=True, prefix="[2]").startswith(
        "[2] \x1b[32m✓\x1b[0m succeeded"
    )


def test_other_records_name_their_source_and_keep_their_traceback() -> None:
    try:
        raise ValueError("first\nsecond")
    except ValueError as error:
        record = plain("it broke", name="shop.code", exc_info=(ValueError, error, None))
    assert human(record) == ("• shop.code: it broke\n    │ ValueError: first\n    │ second")


def test_a_line_of_a_job_carries_its_id() -> None:
    assert human(plain("hello", name="windlass.job", job_id=JOB)) == "• 0199f000…adcafe  hello"


# --- nothing a job says can disturb the log ---


@given(st.text())
def test_text_is_never_more_than_one_line_and_never_moves_the_cursor(text: str) -> None:
    shown = printable(text)
    assert len(shown.splitlines()) <= 1
    assert not any(ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 for char in shown)
    shown.encode()


@given(st.text())
def test_only_the_first_line_of_a_record_begins_like_one(text: str) -> None:
    _, *more = human(plain(text)).split("\n")
    assert all(line.startswith("    │ ") for line in more)


def test_text_direction_cannot_be_turned_around() -> None:
    assert printable("abc\u202edcb") == r"abc\u202edcb"


def test_an_error_is_its_kind_and_first_line_and_not_too_long() -> None:
    assert error_in_one_line(AttemptError("E", "")) == "E"
    assert error_in_one_line(AttemptError("a.b.E", "\n x\r\x1b[0m\ny")) == r"E: x\r\x1b[0m"
    assert len(error_in_one_line(AttemptError("E", "x" * 1000))) == 160


# --- lines for machines ---


def test_json_has_every_field(caught: Caught) -> None:
    error = AttemptError("ValueError", "no\nway", "Traceback")
    EventLog()(
        moved(Verb.RETRY, error=error, delay=timedelta(seconds=5), correlation_id="r", tenant="t")
    )
    line = JsonFormatter().format(caught.records[0])
    assert "\n" not in line
    entry = json.loads(line)
    assert {name: entry[name] for name in entry if name not in {"time", "pid", "message"}} == {
        "level": "warning",
        "logger": "windlass.jobs",
        "event": "retry",
        "job_id": JOB,
        "task": "shop.jobs.send",
        "queue": "mail",
        "attempt": 2,
        "max_attempts": 5,
        "claim_number": 4,
        "worker": "w1",
        "at": "2025-03-04T05:06:07+00:00",
        "waited": 0.012,
        "ran": 1.25,
        "delay": 5.0,
        "again_at": "2025-03-04T05:06:12+00:00",
        "error_kind": "ValueError",
        "error": "no\nway",
        "error_traceback": "Traceback",
        "correlation_id": "r",
        "tenant": "t",
    }


def test_json_keeps_what_a_record_brings_along() -> None:
    entry = json.loads(JsonFormatter().format(plain("hi", job_id=JOB, strange=object)))
    assert entry["job_id"] == JOB
    assert entry["strange"] == "<class 'object'>"
    assert entry["message"] == "hi"


@given(st.text())
def test_json_is_one_line_of_ascii_for_any_text(text: str) -> None:
    line = JsonFormatter().format(plain(text))
    assert line.isascii()
    assert "\n" not in line
    assert json.loads(line)["message"] == text


# --- durations ---


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 ms"),
        (-1, "0 ms"),
        (0.0004, "0 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1 s"),
        (1.25, "1.2 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 m"),
        (125, "2 m 5 s"),
        (3600, "1 h"),
        (12_000, "3 h 20 m"),
        (86_400 * 4 + 7_200, "4 d 2 h"),
    ],
)
def test_a_duration_has_at_most_two_units(seconds: float, words: str) -> None:
    assert brief(timedelta(seconds=seconds)) == words


# --- inside a run -------------------------------------------------------------------------------


async def test_every_record_of_a_run_tells_its_job_in_both_formats(caught: Caught) -> None:
    """Whatever logger it comes from; ours are formatted while the handler speaks."""
    shop = logging.getLogger("shop")
    said: list[tuple[str, dict[str, Any], str]] = []

    class Formatting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            people, machines = HumanFormatter().format(record), JsonFormatter().format(record)
            WithJob().filter(record)
            own = logging.Formatter("%(job_id)s %(task)s %(queue)s %(attempt)s").format(record)
            said.append((people, json.loads(machines), own))

    async with Windlass("memory://") as app:

        @app.task(name="pay", queue="money")
        async def pay(card: Secret[str]) -> None:
            shop.error("card %s\n\x1b[31mrefused", card, extra={"task": "mine", "card": card})
            shop.error("again", extra={"token": "hunter2", "more": {"password": "hunter2"}})

        handler = Formatting()
        shop.addHandler(handler)
        try:
            job = await pay.options(correlation_id="r-1", tenant="acme").enqueue("4111-2222")
            await drain(app)
            shop.error("outside")
        finally:
            shop.removeHandler(handler)
    (people, machines, own), (_, more, _), (_, outside, bare) = said
    assert "4111" not in str(said)
    assert "hunter2" not in str(said)
    assert f"{short_id(job.id)}  shop: card ***" in people
    assert "\x1b" not in people
    about = {
        name: machines[name] for name in ("job_id", "queue", "attempt", "correlation_id", "tenant")
    }
    assert about == {
        "job_id": job.id,
        "queue": "money",
        "attempt": 1,
        "correlation_id": "r-1",
        "tenant": "acme",
    }
    assert machines["task"] == "mine"  # what a record says itself stays
    assert machines["message"] == "card ***\n\x1b[31mrefused"  # escaped on its one line
    assert (more["task"], more["token"], more["more"]) == ("pay", "***", {"password": "***"})
    assert own == f"{job.id} mine money 1"
    assert "job_id" not in outside
    assert bare == "None None None None"


# --- workers in a program of the user's own ------------------------------------------------------


async def embedded_words(app: Windlass, caplog: pytest.LogCaptureFixture, workers: int = 1) -> str:
    """Run a job that succeeds and one that fails; the lines about them."""

    @app.task(name="good")
    async def good() -> None: ...

    @app.task(name="bad", max_attempts=2, backoff=Backoff.none())
    async def bad() -> None:
        raise ValueError("no good")

    async with AsyncExitStack() as stack:
        await stack.enter_async_context(app)
        for _ in range(workers):
            await stack.enter_async_context(app.worker())
        await (await good.enqueue()).result(timeout=30)
        with pytest.raises(JobFailed):
            await (await bad.enqueue()).result(timeout=30)
    told = [record for record in caplog.records if record.name == "windlass.jobs"]
    return " ".join(record.getMessage().split()[0] for record in told)


@pytest.mark.parametrize("workers", [1, 2])
async def test_workers_in_a_program_log_what_becomes_of_jobs_once(
    caplog: pytest.LogCaptureFixture, workers: int
) -> None:
    app = Windlass("memory://", poll=0.05)
    with caplog.at_level(logging.INFO, "windlass"):
        assert await embedded_words(app, caplog, workers) == "succeeded retrying failed"
    assert not parts_of(app).hooks.bus.alert, "nothing listens when the workers have ended"


async def test_a_log_that_the_program_has_subscribed_itself_is_not_doubled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = Windlass("memory://", poll=0.05)
    app.on_transition(EventLog())
    with caplog.at_level(logging.INFO, "windlass"):
        assert await embedded_words(app, caplog) == "succeeded retrying failed"


async def test_by_default_a_program_sees_what_goes_wrong_and_pays_for_nothing_else(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Windlass("memory://", poll=0.05)
    built: list[Event] = []
    publish = Bus.publish

    def watched(bus: Bus, event: Event) -> None:
        built.append(event)
        publish(bus, event)

    monkeypatch.setattr(Bus, "publish", watched)
    with caplog.at_level(logging.WARNING, "windlass"):
        assert await embedded_words(app, caplog) == "retrying failed"
    assert [event.verb for event in built if isinstance(event, JobMoved)] == [Verb.RETRY, Verb.FAIL]


async def test_the_lines_about_jobs_are_switched_off_by_their_logger(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = Windlass("memory://", poll=0.05)
    caplog.set_level(logging.INFO, "windlass")
    with caplog.at_level(logging.CRITICAL, "windlass.jobs"):
        assert await embedded_words(app, caplog) == ""


@pytest.mark.parametrize("kept", ["info", "off"])
@pytest.mark.parametrize("run_in", ["loop", "thread"])
async def test_log_lines_of_handlers_are_masked_in_the_programs_log_too(
    caplog: pytest.LogCaptureFixture,
    kept: Literal["info", "off"],
    run_in: Literal["loop", "thread"],
) -> None:
    app = Windlass("memory://", poll=0.05, stored_logs=kept)
    own = logging.getLogger("shop")

    def talk(card: str) -> None:
        own.warning("charged %s", card)
        own.warning({"event": "charged", "number": card})
        try:
            raise ValueError(card)
        except ValueError:
            own.exception("refused")

    if run_in == "thread":

        @app.task(name="charge")
        def charge(card: Secret[str], note: str) -> None:
            talk(card)
            own.info("noted %s", note)
    else:

        @app.task(name="charge")
        async def charge(card: Secret[str], note: str) -> None:
            talk(card)
            own.info("noted %s", note)

    caplog.handler.setFormatter(logging.Formatter("%(message)s"))
    with caplog.at_level(logging.INFO):
        async with app, app.worker():
            await (await charge.enqueue("4111-1111", "plain")).result(timeout=30)
            own.warning("elsewhere 4111-1111")
    assert caplog.text.count("4111-1111") == 1
    assert "elsewhere 4111-1111" in caplog.text  # nobody's run
    for line in ("charged ***", "'number': '***'", "ValueError: ***", "noted plain"):
        assert line in caplog.text
