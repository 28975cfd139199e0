"""The folder comes from outside: each run has its own database and its own jobs."""

from __future__ import annotations

import os

import django

from windlass import Backoff

IN_DJANGO = django.VERSION >= (6,) and os.environ.get("SHOP_TASKS") != "django_tasks"  # tasks are

MODULE = "tasks" if IN_DJANGO else "django_tasks"
FOLDER = os.environ["SHOP_FOLDER"]
SECRET_KEY = "not one"
USE_TZ = True
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{FOLDER}/shop.db"}}
INSTALLED_APPS = [
    "windlass.integrations.django",
    *([] if IN_DJANGO else ["django_tasks"]),
    "tests.integrations.shopfront.shop",
]
WINDLASS = {"URL": f"sqlite:///{FOLDER}/jobs.db", "APP": "tests.integrations.shopfront.jobs:app"}
TASKS = {
    "default": {
        "BACKEND": f"windlass.integrations.django.{MODULE}.WindlassBackend",
        "QUEUES": ["default", "mail", "reports"],
        "OPTIONS": {"max_attempts": 2, "backoff": Backoff.fixed(0)},
    }
}
TIME_ZONE = "UTC"
LOGGING_CONFIG = None
if "SHOP_LOGGING" in os.environ:  # everything to the console, as many projects have it
    LOGGING_CONFIG = "logging.config.dictConfig"
    LOGGING = {
        "version": 1,
        "disable_existing_loggers": False,
        "handlers": {"console": {"class": "logging.StreamHandler"}},
        "root": {"handlers": ["console"], "level": "INFO"},
    }
