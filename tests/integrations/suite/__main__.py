"""``python -m tests.integrations.suite FOLDER STORE``: FOLDER is Django's unpacked source."""

from __future__ import annotations

import logging
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

import django
from django.conf import settings

from tests.integrations.suite.exceptions import ARGUED
from tests.servers.postgres import PostgresServer
from windlass.integrations.django import get_app

_MODULES = ["test_tasks", "test_dummy_backend", "test_immediate_backend"]
"""Without test_custom_backend, which is about backends that it defines itself."""


def main(source: Path, url: str) -> int:
    """Run the tests; the exit code."""
    sys.path.insert(0, str(source / "tests"))
    settings.configure(
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        INSTALLED_APPS=["windlass.integrations.django"],
        WINDLASS={"URL": url, "MAX_ATTEMPTS": 1},
        TASKS={"default": {"BACKEND": "django.tasks.backends.dummy.DummyBackend", "QUEUES": []}},
        USE_TZ=True,
    )
    logging.getLogger("windlass").addHandler(logging.NullHandler())  # failures are meant here
    _stand_in()
    django.setup()
    outcomes = _run()
    failed = {name for name, error in outcomes.items() if error}
    for name in sorted(failed):
        argued = f"argued: {name}\n        {ARGUED.get(name)}"
        _say(argued if name in ARGUED else f"FAILED: {name}\n{outcomes[name]}")
    passing = ARGUED.keys() & outcomes.keys() - failed
    for name in sorted(passing):
        _say(f"PASSES, and is argued about: {name}. Remove it from tests/integrations/suite.")
    wrong = failed - ARGUED.keys()
    _say(
        f"Django {django.get_version()}, {url.partition(':')[0]}: {len(outcomes)} tests, "
        f"{len(outcomes) - len(failed)} passed, {len(failed - wrong)} argued, {len(wrong)} failed"
    )
    return 1 if wrong or passing or not outcomes else 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _stand_in() -> None:
    """Put ours where settings of the tests, and the tests themselves, find Django's."""
    from django.tasks.backends import dummy, immediate  # noqa: PLC0415 -- settings come first

    from tests.integrations.suite.standing_in import Enqueuing, Running  # noqa: PLC0415

    places: tuple[Any, Any] = dummy, immediate
    places[0].DummyBackend, places[1].ImmediateBackend = Enqueuing, Running


def _run() -> dict[str, str]:
    """Every test by its name, with what went wrong, or nothing."""
    from django.test.runner import DiscoverRunner  # noqa: PLC0415 -- settings come first

    outcomes: dict[str, str] = {}

    class Result(unittest.TextTestResult):
        def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802
            super().startTest(test)
            outcomes[_name(test)] = ""

        def stopTest(self, test: unittest.TestCase) -> None:  # noqa: N802
            super().stopTest(test)
            whole = [*self.failures, *self.errors]
            ours = [text for one, text in whole if getattr(one, "test_case", one) is test]
            outcomes[_name(test)] = "\n".join(ours)

    class Runner(DiscoverRunner):
        def get_resultclass(self) -> Any:
            return Result

        def get_test_runner_kwargs(self) -> dict[str, Any]:
            with_quiet = super().get_test_runner_kwargs()
            return {**with_quiet, "stream": Path("/dev/null").open("w", encoding="utf-8")}

    Runner(verbosity=0, interactive=False).run_tests([f"tasks.{one}" for one in _MODULES])
    return outcomes


def _name(test: unittest.TestCase) -> str:
    return test.id().removeprefix("tasks.")


def _on(store: str) -> int:
    """Run the tests with jobs in a file, or on a new server."""
    with tempfile.TemporaryDirectory() as place:
        server = PostgresServer() if store == "postgresql" else None
        try:
            url = f"sqlite:///{place}/jobs.db" if server is None else server.url
            code = main(Path(sys.argv[1]), url)
            get_app().blocking.close()
        finally:
            if server is not None:
                server.close()
    return code


if __name__ == "__main__":
    sys.exit(_on(sys.argv[2]))
