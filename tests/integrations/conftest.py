"""The Django project of the tests, set up once per process."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from windlass import Windlass
from windlass.errors import ResultError

SETTINGS = "tests.integrations.shopfront.settings"


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The module with its tasks."""
    zone = os.environ.get("TZ")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DJANGO_SETTINGS_MODULE", SETTINGS)
        patch.setenv("SHOP_FOLDER", str(tmp_path_factory.mktemp("shop")))
        django = importlib.import_module("django")
        django.setup()
        _set_zone(zone)  # Django has set it, for everybody
        yield importlib.import_module("tests.integrations.shopfront.shop.tasks")
        importlib.import_module("windlass.integrations.django").get_app().blocking.close()


@pytest.fixture
def app(shop: Any) -> Windlass:
    found: Windlass = importlib.import_module("tests.integrations.shopfront.jobs").app
    return found


@pytest.fixture
def work(app: Windlass) -> Callable[..., None]:
    """Run a worker until these jobs have ended, however they end."""

    def until(*jobs: str, **options: Any) -> None:
        async def ended() -> None:
            async with app.worker(**options):
                for job in jobs:
                    with suppress(ResultError):
                        await app.job(job).result(timeout=30)

        app.blocking.run(ended())

    return until


def _set_zone(zone: str | None) -> None:
    os.environ.pop("TZ", None)
    if zone is not None:
        os.environ["TZ"] = zone
    time.tzset()
