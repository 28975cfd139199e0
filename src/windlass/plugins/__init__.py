"""Plugins: tasks, schedules and middleware that another package brings along, within grants."""

from windlass.plugins.installed import Installed
from windlass.plugins.registrar import Plugin, Registrar

__all__ = ["Installed", "Plugin", "Registrar"]
