"""What every test gets: a clean environment, one Hypothesis profile, and servers when it asks."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from tests.servers.binaries import memory
from tests.servers.postgres import PostgresServer
from tests.servers.shared import Run, SharedServers
from tests.servers.valkey import ValkeyServer

if TYPE_CHECKING:
    from tests.servers.fresh import FreshPostgres

# The shipped conformance tests are imported, not collected: without this their asserts would
# fail without saying what they compared.
pytest.register_assert_rewrite("windlass.testing.conformance")

# No deadline: on a busy machine a slow example is not a wrong one; pytest-timeout bounds the test.
hypothesis.settings.register_profile("windlass", deadline=None, print_blob=True)
hypothesis.settings.load_profile("windlass")

# WINDLASS_TEST_… turns the knobs of the tests themselves; the rest are a developer's own settings.
for _name in [name for name in os.environ if name.startswith("WINDLASS_")]:
    if not _name.startswith("WINDLASS_TEST_"):
        del os.environ[_name]


# Tests kill processes and never the machine: what a disk would keep, memory keeps as well, and each
# commit of SQLite is spared a wait. PYTEST_DEBUG_TEMPROOT=/tmp uses the disk all the same.
if (_memory := memory()) is not None:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_memory))


# sentry_sdk imports eventlet where it is installed, and from then on each fork of a process warns.
# So it is imported once without it.
sys.modules["eventlet"] = None  # type: ignore[assignment]
with suppress(ImportError):
    import_module("sentry_sdk.utils")
del sys.modules["eventlet"]


# --- the garbage collector passes over the tests themselves ---------------------------------------

# A million objects are made while tests are collected, and they stay to the end: looking for
# garbage among them takes longer than many a test, each time anew.


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


# They read the source of the package and the tests: many objects, no cycles.
_READING = "tests/architecture/"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if not item.nodeid.startswith(_READING):
        return (yield)
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


# --- who waits begins --------------------------------------------------------------------------

# Tests that wait for leases, processes and servers more than they compute, the longest first. In
# the order of their names every process would meet them together, and the processors would idle;
# at the beginning one process has them while the others compute, and nothing long comes last.
_WAITING = (
    "tests/cli/worker_process/test_start_retries.py",
    "tests/crash/",
    "tests/cli/worker_process/test_supervisor.py",
    "tests/chaos/",
    "tests/delivery/test_everywhere.py",
    "tests/storage/redis/test_durability.py",
    "tests/storage/postgres/test_connections.py",
    "tests/storage/postgres/test_foreign_transactions.py",
    "tests/storage/postgres/test_standby.py",
    "tests/storage/redis/test_server_discovery.py",
    "tests/transactions/test_finish.py",
    "tests/transactions/test_conflicts.py",
    "tests/cli/worker_process/test_health.py",
    "tests/cli/worker_process/test_worker.py",
    "tests/servers/test_servers.py",
    "tests/worker/claim/test_poison.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    waits = {name: place for place, name in enumerate(_WAITING)}

    def place(item: pytest.Item) -> int:
        file = item.nodeid.partition("::")[0]
        return waits.get(file, waits.get(f"{file.rpartition('/')[0]}/", len(waits)))

    items.sort(key=place)


# --- one PostgreSQL and one Valkey for the whole run, started when the first test asks ----------

_SERVERS = pytest.StashKey[SharedServers]()


def pytest_configure(config: pytest.Config) -> None:
    """In the process that begins the run, and in each that xdist starts for it."""
    told: dict[str, Any] | None = getattr(config, "workerinput", None)
    config.stash[_SERVERS] = Run() if told is None else SharedServers(Path(told["servers"]))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Xdist is about to start a process for tests: it must know whom to ask."""
    servers = node.config.stash[_SERVERS]
    servers.open()
    node.workerinput["servers"] = str(servers.folder)


def pytest_unconfigure(config: pytest.Config) -> None:
    servers = config.stash.get(_SERVERS, None)
    if isinstance(servers, Run):
        servers.close()


@pytest.fixture(scope="session")
def servers(pytestconfig: pytest.Config) -> SharedServers:
    return pytestconfig.stash[_SERVERS]


@pytest.fixture(scope="session")
def fresh_postgres(servers: SharedServers) -> Iterator[FreshPostgres]:
    """Where schemas and databases for single tests come from."""
    from tests.servers.fresh import FreshPostgres  # noqa: PLC0415 -- who asks pays for the driver

    made = FreshPostgres(servers)
    yield made
    made.close()


@pytest.fixture
def postgres_url(fresh_postgres: FreshPostgres) -> Iterator[str]:
    """The URL of an empty PostgreSQL database of this test's own."""
    url = fresh_postgres.new_database()
    yield url
    fresh_postgres.drop_database(url)


@pytest.fixture
def clean_database(fresh_postgres: FreshPostgres) -> Iterator[str]:
    """The same, cheaper: our tables may be there, empty, and must be left as they are."""
    url = fresh_postgres.take_database()
    yield url
    fresh_postgres.give_back_database(url)


@pytest.fixture
def postgres_schema(fresh_postgres: FreshPostgres) -> Iterator[tuple[str, str]]:
    """A URL, and the name of a schema there that is this test's own: cheaper than a database."""
    schema = fresh_postgres.new_schema()
    yield fresh_postgres.home, schema
    fresh_postgres.drop_schema(schema)


@pytest.fixture
def clean_schema(fresh_postgres: FreshPostgres) -> Iterator[tuple[str, str]]:
    """The same, cheaper still: the tables may be there, empty, and must be left as they are."""
    schema = fresh_postgres.take_schema()
    yield fresh_postgres.home, schema
    fresh_postgres.give_back_schema(schema)


@pytest.fixture
def redis_url(servers: SharedServers) -> str:
    """The URL of an empty Redis database of this test's own."""
    from tests.servers.fresh import new_redis_database  # noqa: PLC0415 -- as above

    return new_redis_database(servers)


@pytest.fixture
def redis_prefix(servers: SharedServers) -> tuple[str, str]:
    """A URL, and a prefix there that is this test's own."""
    from tests.servers.fresh import new_name  # noqa: PLC0415 -- as above

    return servers.valkey()[0], new_name()


# --- servers that a test may stop, kill and pause ------------------------------------------------

_own = count(1)


@pytest.fixture
def own_postgres(servers: SharedServers) -> Iterator[Callable[..., PostgresServer]]:
    """Starts a PostgreSQL server for this test alone: ``own_postgres(durable=True)``."""
    made: list[PostgresServer] = []

    def start(**settings: Any) -> PostgresServer:
        # In the run's own folder: whatever becomes of this process, it is removed with that.
        made.append(PostgresServer(servers.folder / f"pg-{os.getpid()}-{next(_own)}", **settings))
        return made[-1]

    yield start
    for server in made:
        server.close()


@pytest.fixture
def own_valkey(servers: SharedServers) -> Iterator[Callable[..., ValkeyServer]]:
    """Starts a Valkey server for this test alone: ``own_valkey(appendfsync="always")``."""
    made: list[ValkeyServer] = []

    def start(**settings: Any) -> ValkeyServer:
        folder = servers.folder / f"valkey-{os.getpid()}-{next(_own)}"
        made.append(ValkeyServer(folder, **settings))
        return made[-1]

    yield start
    for server in made:
        server.close()
