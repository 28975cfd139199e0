"""Plugins: tasks, schedules and middleware that another package brings along, within grants."""

from windlass._plugins.installation import Installed
from windlass._plugins.registrar import Plugin, Registrar

__all__ = ["Installed", "Plugin", "Registrar"]
