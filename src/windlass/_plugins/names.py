"""Names of plugins and of their parts: ``plugin.name``, so that two plugins cannot collide."""

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
    """Check a plugin's name, which becomes the prefix of its tasks, schedules and limits."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        message = (
            f"a plugin's name is a letter, then letters, digits, _ or -, at most 64 of them. It "
            f"is the prefix of the names of its tasks; got {shown(name)}"
        )
        raise InvalidArgument(message)
    return name


def qualify(plugin: str, name: str, what: str) -> str:
    """Return ``plugin.name``. The second part may contain dots."""
    check_name(name, what)
    if ":" in name:
        message = f"{what} must not contain ':', got {name!r}"
        raise InvalidArgument(message)
    return f"{plugin}.{name}"


def plugin_tag(plugin: str) -> str:
    """Return the tag of a plugin's jobs. It tells a worker without the plugin where they belong."""
    return f"{_MARK}{plugin}"


def plugin_of(tags: Iterable[str]) -> str | None:
    """Return the plugin of a job, by its tags. None: the application's own."""
    return next((tag.removeprefix(_MARK) for tag in tags if tag.startswith(_MARK)), None)
