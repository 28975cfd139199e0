"""Reminders for the users of an application."""

from windlass_reminders.host import Notifier
from windlass_reminders.plugin import Reminders

__all__ = ["Notifier", "Reminders"]
