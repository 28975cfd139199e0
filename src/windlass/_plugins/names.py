"""Names of plugins, and of what they bring: ``plugin.name``, so that no two of them can meet."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from windlass._core.values.names import check_name, shown
from windlass.errors import InvalidArgument

__all__ = ["OURS", "check_plugin_name", "plugin_of", "plugin_tag", "qualify"]

OURS: Final = "windlass"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_MARK = "plugin:"


def check_plugin_name(name: object) -> str:
    """Stands before a dot in the names of its tasks, schedules and limits."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        message = (
            f"a plugin's name is a letter, then letters, digits, _ or -, at most 64 of them. It "
            f"is the prefix of the names of its tasks; got {shown(name)}"
        )
        raise InvalidArgument(message)
    return name


def qualify(plugin: str, name: str, what: str) -> str:
    """``plugin.name``. The second part may have dots of its own."""
    check_name(name, what)
    if ":" in name:
        message = f"{what} must not contain ':', got {name!r}"
        raise InvalidArgument(message)
    return f"{plugin}.{name}"


def plugin_tag(plugin: str) -> str:
    """The tag of its jobs: it tells a worker that lacks the plugin whose they are."""
    return f"{_MARK}{plugin}"


def plugin_of(tags: Iterable[str]) -> str | None:
    """Whose job it is, by its tags; None: the application's own."""
    return next((tag.removeprefix(_MARK) for tag in tags if tag.startswith(_MARK)), None)
