"""Plugins: packages that add tasks, schedules and middleware to an app, within their grants."""

from windlass._plugins.installation import Installed
from windlass._plugins.registrar import Plugin, Registrar

__all__ = ["Installed", "Plugin", "Registrar"]
