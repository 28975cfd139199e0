"""Settings from arguments, the environment and a file, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from windlass import Backoff, Grants, Windlass
from windlass._app.parts import parts_of
from windlass._cli.options.target import app_at
from windlass._settings.load import load_settings
from windlass._settings.settings import Settings, WorkerSettings, parse_duration
from windlass.errors import ConfigError

URL = "memory://"


def load(
    arguments: dict[str, Any] | None = None,
    environment: dict[str, str] | None = None,
    config: Path | None = None,
    url: str | None = URL,
) -> Settings:
    return load_settings(url, arguments or {}, config=config, environment=environment or {})


def test_arguments_come_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "windlass.toml"
    file.write_text(
        '[windlass]\nurl = "sqlite:///file.db"\nslots = 1\nmax_attempts = 1\ngrace = "1m"\n'
    )
    environment = {
        "WINDLASS_CONFIG": str(file),
        "WINDLASS_SLOTS": "2",
        "WINDLASS_MAX_ATTEMPTS": "2",
    }
    settings = load({"slots": 3}, environment, url=None)
    assert settings.url == "sqlite:///file.db"
    assert (settings.slots, settings.max_attempts) == (3, 2)
    assert settings.grace == timedelta(minutes=1)
    assert load({}, environment).url == URL


def test_the_file_needs_no_separate_table(tmp_path: Path) -> None:
    file = tmp_path / "windlass.toml"
    file.write_text('default_queue = "main"\nimports = ["shop.jobs", "shop.mail"]\n')
    settings = load(config=file)
    assert settings.default_queue == "main"
    assert settings.imports == ("shop.jobs", "shop.mail")


def test_every_setting_can_come_from_the_environment() -> None:
    environment = {
        "WINDLASS_URL": "memory://",
        "WINDLASS_DEFAULT_QUEUE": "main",
        "WINDLASS_ROUTES": '{"reports.*": "slow"}',
        "WINDLASS_MAX_ATTEMPTS": "7",
        "WINDLASS_TIMEOUT": "90",
        "WINDLASS_BACKOFF": "linear:5s,cap=1m,jitter=none",
        "WINDLASS_MAX_THROTTLE": "10m",
        "WINDLASS_KEEP_SUCCEEDED": "0",
        "WINDLASS_KEEP_FAILED": "2w",
        "WINDLASS_KEEP_ROLLUPS": "1d",
        "WINDLASS_KEEP_EVENTS": "1d",
        "WINDLASS_KEEP_AUDIT": "1w",
        "WINDLASS_EVENT_LOG": "true",
        "WINDLASS_STORED_LOGS": "off",
        "WINDLASS_PAYLOAD_LIMIT": "4096",
        "WINDLASS_RESULT_LIMIT": "4096",
        "WINDLASS_ERROR_LIMIT": "4096",
        "WINDLASS_MISSING_TASK": "fail",
        "WINDLASS_MISFIT_FOR": "20m",
        "WINDLASS_DURABILITY": "normal",
        "WINDLASS_REPLICAS": "2",
        "WINDLASS_SCHEMA": "app_jobs",
        "WINDLASS_PREFIX": "shop",
        "WINDLASS_MIGRATE": "manual",
        "WINDLASS_ALLOW_NETWORK_FILESYSTEM": "true",
        "WINDLASS_HEARTBEAT": "2s",
        "WINDLASS_LEASE": "10",
        "WINDLASS_REAP_EVERY": "2.5s",
        "WINDLASS_POLL": "250ms",
        "WINDLASS_GRACE": "5m",
        "WINDLASS_SLOTS": "3",
        "WINDLASS_ON_ISOLATION": "cancel",
        "WINDLASS_CHILD_MAX_JOBS": "1000",
        "WINDLASS_CHILD_MAX_MEGABYTES": "200",
        "WINDLASS_CHILD_MEMORY_LIMIT": "500",
        "WINDLASS_IMPORTS": "a,b.c",
        "WINDLASS_DASHBOARD_AUTH": "ada:admin:x,bob:viewer:y",
        "WINDLASS_PLUGINS": '{"mail": {"tasks": true, "queues": ["mail"], "max_running": 2}}',
    }
    assert {f"WINDLASS_{name.upper()}" for name in Settings.__struct_fields__} == set(environment)
    settings = load(environment=environment, url=None)
    assert settings == Settings(
        url="memory://",
        default_queue="main",
        routes={"reports.*": "slow"},
        max_attempts=7,
        timeout=timedelta(seconds=90),
        backoff=Backoff.linear(5, cap=60, jitter="none"),
        max_throttle=timedelta(minutes=10),
        keep_succeeded=timedelta(0),
        keep_failed=timedelta(weeks=2),
        keep_rollups=timedelta(days=1),
        keep_events=timedelta(days=1),
        keep_audit=timedelta(weeks=1),
        event_log=True,
        stored_logs="off",
        payload_limit=4096,
        result_limit=4096,
        error_limit=4096,
        missing_task="fail",
        misfit_for=timedelta(minutes=20),
        durability="normal",
        replicas=2,
        schema="app_jobs",
        prefix="shop",
        migrate="manual",
        allow_network_filesystem=True,
        heartbeat=timedelta(seconds=2),
        lease=timedelta(seconds=10),
        reap_every=timedelta(seconds=2.5),
        poll=timedelta(milliseconds=250),
        grace=timedelta(minutes=5),
        slots=3,
        on_isolation="cancel",
        child_max_jobs=1000,
        child_max_megabytes=200,
        child_memory_limit=500,
        imports=("a", "b.c"),
        dashboard_auth=("ada:admin:x", "bob:viewer:y"),
        plugins={"mail": Grants(tasks=True, queues=["mail"], max_running=2)},
    )


def test_the_defaults_are_those_of_the_documentation() -> None:
    settings = load()
    assert (settings.max_attempts, settings.slots, settings.timeout) == (5, 10, None)
    assert (settings.heartbeat, settings.lease) == (timedelta(seconds=5), timedelta(seconds=30))
    assert (settings.reap_every, settings.poll) == (timedelta(seconds=5), timedelta(seconds=1))
    assert (settings.keep_succeeded, settings.keep_failed) == (
        timedelta(days=7),
        timedelta(days=30),
    )
    assert (settings.payload_limit, settings.error_limit) == (1024 * 1024, 64 * 1024)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"slot": 3}, r"'slot' is no setting\. Did you mean 'slots'\?"),
        ({"timezone": "UTC"}, r'Cron\("0 8 \* \* \*", tz="Europe/Berlin"\)'),
        ({"result_expires": 60}, "Did you mean 'keep_succeeded'?"),
        ({"soft_timeout": 60}, r"belongs to a task: @app\.task\(soft_timeout=\.\.\.\)"),
        ({"task_acks_late": True}, "always counts as done after its run"),
        ({"concurrency": 4}, "Did you mean 'slots'?"),
        ({"task_default_queue": "mail"}, "Did you mean 'default_queue'?"),
        ({"slots": 0}, "slots must be at least 1"),
        ({"slots": "many"}, "slots must be a whole number, got 'many'"),
        ({"slots": True}, "slots must be a whole number, got True"),
        ({"slots": 10**9}, "slots may be at most 1,000,000"),
        ({"max_attempts": 10**9}, "max_attempts may be at most 1,000,000"),
        ({"default_queue": "two words"}, "default_queue must be 1 to 128 printable"),
        ({"default_queue": "a,b"}, "default_queue must not contain ',' or '='"),
        ({"default_queue": 5}, "default_queue must be text, got 5"),
        ({"allow_network_filesystem": "perhaps"}, "allow_network_filesystem must be true or false"),
        ({"on_isolation": "stop"}, "on_isolation must be 'continue' or 'cancel', got 'stop'"),
        ({"timeout": "99999999999999w"}, "timeout is out of range"),
        ({"keep_failed": "6000w"}, "keep_failed may be at most 36,525 days"),
        ({"keep_failed": None}, "keep_failed must be a duration"),
        ({"max_attempts": 0}, "max_attempts must be at least 1"),
        ({"timeout": "soon"}, r"timeout must be a duration such as 250ms, 30s, 5m, 2h or 7d"),
        ({"timeout": [1]}, "timeout must be a duration"),
        ({"timeout": -1}, "timeout must not be negative"),
        ({"backoff": "quick"}, r"backoff: it must be a duration .* Write 5s, linear:5s"),
        ({"backoff": 5}, r"backoff must be a Backoff such as Backoff.fixed\(5\), got 5"),
        ({"max_throttle": 0}, "max_throttle must be longer than nothing"),
        ({"poll": 0}, "poll must be longer than nothing"),
        ({"heartbeat": 20}, "must fit three times into lease"),
        ({"payload_limit": 1}, "payload_limit must be at least 256"),
        ({"payload_limit": 17 * 1024 * 1024}, "may be at most"),
        ({"missing_task": "panic"}, "missing_task must be 'wait' or 'fail', got 'panic'"),
        ({"durability": "half"}, "durability must be 'full' or 'normal' or 'local' or "),
        ({"schema": 'x"; DROP'}, "schema is a name for PostgreSQL"),
        ({"prefix": "{a}"}, "prefix is a name for Redis"),
        ({"replicas": 0}, "replicas must be at least 1"),
        ({"imports": "shop.jobs"}, r"imports must be a list of module names such as \['shop"),
    ],
)
def test_an_argument_that_makes_no_sense_is_refused(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Windlass(URL, **arguments)


@pytest.mark.parametrize(
    ("url", "durability", "told"),
    [
        ("memory://", "full", "durability for memory:// is not possible"),
        (
            "sqlite:///jobs.db",
            "local",
            "durability for sqlite:// is 'full' or 'normal', got 'local'",
        ),
        ("postgresql://h/d", "none", "durability for postgresql:// is 'full' or 'normal'"),
        ("redis://h", "full", "durability for redis:// is 'local' or 'replicated' or 'none'"),
    ],
)
def test_a_promise_that_the_backend_does_not_know_is_refused(
    url: str, durability: Any, told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        Windlass(url, durability=durability)


def test_a_variable_that_is_no_setting_is_refused_by_its_own_name() -> None:
    with pytest.raises(ConfigError, match=r"WINDLASS_SLOT is no setting\. Did you mean 'slots'\?"):
        load(environment={"WINDLASS_SLOT": "3"})


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("SLOTS", "many", r"slots must be a whole number, got 'many'\. slots was read from"),
        ("SLOTS", "0", r"slots must be at least 1, got 0\. slots was read from"),
        ("GRACE", "soon", r"grace must be a duration .*, got 'soon'\. grace was read from"),
        ("DURABILITY", "half", r"durability must be 'full' or .*, got 'half'\. durability"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_where_it_came_from(
    tmp_path: Path, variable: str, value: str, told: str
) -> None:
    with pytest.raises(ConfigError, match=rf"{told}.*WINDLASS_{variable}\.$"):
        load(environment={f"WINDLASS_{variable}": value})
    file = tmp_path / "windlass.toml"
    file.write_text(f"{variable.lower()} = {value if value.isdigit() else repr(value)}\n")
    with pytest.raises(ConfigError, match=r"was read from .*windlass\.toml\.$"):
        load(config=file)
    with pytest.raises(ConfigError) as caught:
        load({variable.lower(): value}, {f"WINDLASS_{variable}": value})
    assert "was read from" not in str(caught.value)


def test_modules_in_the_environment_may_be_spaced_out() -> None:
    assert load(environment={"WINDLASS_IMPORTS": "a, b.c,"}).imports == ("a", "b.c")


def test_variables_of_the_command_line_and_of_others_are_left_alone() -> None:
    others = {"WINDLASS_LOG_LEVEL": "debug", "WINDLASS_LOG_FORMAT": "json", "PATH": "/"}
    assert load(environment=others) == load(environment={})


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*nowhere\.toml: No such file"):
        load(config=tmp_path / "nowhere.toml")
    file = tmp_path / "windlass.toml"
    for text, told in [
        ("slots = ", "is no valid TOML"),
        ("windlass = 3", "must be a table"),
        ("[windlass]\nslotz = 3", r"'slotz' is no setting\. Did you mean 'slots'\?"),
    ]:
        file.write_text(text)
        with pytest.raises(ConfigError, match=told):
            load(config=file)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("250ms", timedelta(milliseconds=250)),
        ("30", timedelta(seconds=30)),
        (" 1.5 h ", timedelta(minutes=90)),
        ("2w", timedelta(days=14)),
    ],
)
def test_durations_may_be_written_as_people_write_them(text: str, meant: timedelta) -> None:
    assert parse_duration(text, "x") == meant


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"slots": 0}, "slots must be at least 1"),
        ({"queues": {"mail": 0}}, "the slots of queue 'mail' must be at least 1"),
        ({"queues": {}}, "at least one queue"),
        ({"queues": []}, "at least one queue"),
        ({"queues": ["a"], "weights": {"a": 0}}, "the weight of queue 'a'"),
        ({"max_jobs": 0}, "max_jobs must be at least 1"),
        ({"max_megabytes": 0}, "max_megabytes must be at least 1"),
        ({"slotz": 1}, "slotz"),
        ({"slots": "many"}, "slots must be a whole number, got 'many'"),
        ({"queues": {"mail": "2"}}, "the slots of queue 'mail' must be a whole number"),
    ],
)
def test_a_workers_settings_are_checked_when_they_are_made(
    settings: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        parts_of(Windlass(URL)).workers.settings(**settings)


def test_a_worker_serves_every_queue_its_tasks_name() -> None:
    app = Windlass(URL, slots=4, default_queue="main")

    @app.task(queue="mail")
    def one() -> None: ...

    @app.task(queue="billing")
    def two() -> None: ...

    settings = parts_of(app).workers.settings()
    assert settings == WorkerSettings(shared=("main", "billing", "mail"), slots=4)
    assert parts_of(app).workers.settings(queues="mail").served == ("mail",)
    assert parts_of(app).workers.settings(queues={"mail": 2, "billing": 3}).total_slots == 5


@pytest.mark.parametrize("queues", ["a,b", "mail=10", ["mail", "a b"], {"mail=10": 3}, [""]])
def test_a_worker_refuses_a_queue_that_no_job_can_be_in(
    queues: Sequence[str] | Mapping[str, int],
) -> None:
    app = Windlass(URL)
    with pytest.raises(ConfigError, match=r'queues=\["mail", "billing"\]; .*queues=\{"mail": 10\}'):
        parts_of(app).workers.settings(queues=queues)


def test_settings_can_be_shown_without_the_password_of_their_url() -> None:
    settings = load(
        {"dashboard_auth": ["ada:admin:hunter22"]}, url="postgresql://ada:hunter22@db/shop"
    )
    assert "hunter22" not in repr(settings)
    assert settings.url == "postgresql://ada:hunter22@db/shop"
    assert "postgresql://ada:***@db/shop" in repr(settings)
    assert "slots=10" in repr(settings)


@pytest.mark.parametrize("url", ["postgresql:ada:hunter22@db", "sqlite://ada:hunter22@db/x"])
def test_a_url_that_is_refused_is_shown_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Windlass(url)
    assert "hunter22" not in str(refused.value)
    assert "@db" in str(refused.value)


# --- variables in the file ------------------------------------------------------------------------


def in_file(folder: Path, text: str, **environment: str) -> Settings:
    file = folder / "windlass.toml"
    file.write_text(text)
    return load(environment=environment, config=file, url=None)


def test_texts_of_the_file_name_variables_of_the_environment(tmp_path: Path) -> None:
    settings = in_file(
        tmp_path,
        """
        url = "postgresql://${USER_NAME}:${PASSWORD}@db/shop"
        slots = "${SLOTS:-7}"
        timeout = "${LIMIT:-90s}"
        imports = ["shop.${STAGE}"]
        default_queue = "${EMPTY:-main}"
        plugins.mail.queues = ["${STAGE}"]
        """,
        USER_NAME="ada",
        PASSWORD="p${USER_NAME}",
        LIMIT="2m",
        STAGE="live",
        EMPTY="",
    )
    assert settings.url == "postgresql://ada:p${USER_NAME}@db/shop"  # what came in is left alone
    assert (settings.slots, settings.timeout) == (7, timedelta(minutes=2))
    assert (settings.imports, settings.default_queue) == (("shop.live",), "main")
    assert list(settings.plugins["mail"].queues) == ["live"]


def test_dollars_that_name_nothing_stay_and_a_doubled_one_is_one(tmp_path: Path) -> None:
    text = 'url = "sqlite:///$HOME/$${A}/$$/jobs.db"'
    assert in_file(tmp_path, text, A="x").url == "sqlite:///$HOME/${A}/$$/jobs.db"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("${DB_PASSWORD}", r"url in .*windlass\.toml needs the environment variable DB_PASSWORD"),
        ("${}", r"url in .*windlass\.toml has a \$\{ that names no variable: write \$\{NAME\}"),
        ("${1}", "names no variable"),
        ("${A", "names no variable"),
    ],
)
def test_a_variable_that_is_not_set_or_has_no_name_is_refused(
    tmp_path: Path, text: str, told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        in_file(tmp_path, f'url = "redis://:{text}@host"', A="x")


def test_a_variable_of_the_file_s_own_overrides_what_it_has_filled_in(tmp_path: Path) -> None:
    settings = in_file(tmp_path, 'url = "${A}"', A="redis://a", WINDLASS_URL="memory://")
    assert settings.url == "memory://"


def test_a_url_in_the_code_that_the_variable_does_not_change_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WINDLASS_URL", "redis://:canary@cache/0")
    app = Windlass("memory://")
    assert app.settings.url == "memory://"
    (said,) = [record.getMessage() for record in caplog.records]
    assert "Write Windlass() in the code to use WINDLASS_URL" in said
    assert "canary" not in said

    caplog.clear()
    Windlass()
    Windlass("redis://:canary@cache/0")
    app_at("memory://")  # what --url of a command says
    monkeypatch.delenv("WINDLASS_URL")
    Windlass("memory://")
    assert not caplog.records
