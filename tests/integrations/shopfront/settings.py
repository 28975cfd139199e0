"""The folder comes from outside: each run has its own database and its own jobs."""

from __future__ import annotations

import os

import django

from windlass import Backoff

IN_DJANGO = django.VERSION >= (6,)  # tasks are

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
        "BACKEND": "windlass.integrations.django.tasks.WindlassBackend",
        "QUEUES": ["default", "mail", "reports"],
        "OPTIONS": {"max_attempts": 2, "backoff": Backoff.fixed(0)},
    }
}
TIME_ZONE = "UTC"
LOGGING_CONFIG = None
