"""The app config that Django starts. It imports ``tasks.py`` of every app."""

from __future__ import annotations

import importlib

from django.apps import AppConfig, apps
from django.core import checks
from django.utils.module_loading import module_has_submodule

from windlass._cli.app_loader import BrokenModule
from windlass.errors import ConfigError
from windlass.integrations.django import get_app
from windlass.integrations.django._checks import check_database, check_settings

__all__ = ["WindlassConfig", "discover"]


class WindlassConfig(AppConfig):
    """``INSTALLED_APPS = [..., "windlass.integrations.django"]``."""

    name = "windlass.integrations.django"
    label = "windlass"
    verbose_name: str = "Windlass"

    def ready(self) -> None:
        checks.register(check_settings)
        checks.register(check_database, checks.Tags.database)
        try:
            discover()
            get_app()
        except ConfigError as error:
            # `manage.py check` reports it, and `get_app` raises it again. Other errors of a module
            # are raised at once.
            if isinstance(error, BrokenModule) and error.may_heal:
                raise


def discover() -> None:
    """Import ``tasks.py`` of every installed app."""
    for config in apps.get_app_configs():
        # Our own is a backend, and needs packages that not every project has.
        if config.name != WindlassConfig.name and module_has_submodule(config.module, "tasks"):
            importlib.import_module(f"{config.name}.tasks")
