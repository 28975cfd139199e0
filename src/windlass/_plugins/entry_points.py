"""Plugins of installed packages, found by entry point and loaded only if the settings name them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from windlass._plugins.registrar import Plugin
from windlass.errors import ConfigError, suggestion

__all__ = ["GROUP", "installable", "load_plugin"]

GROUP = "windlass.plugins"


def installable() -> Mapping[str, EntryPoint]:
    """List the plugins of installed packages, by name. It imports none of them."""
    return {point.name: point for point in entry_points(group=GROUP)}


def load_plugin(name: str) -> Plugin:
    """Load the plugin of an entry point: an object, or a class or function that makes one."""
    found = installable()
    if name not in found:
        offered = f" Installed packages offer {', '.join(sorted(found))}." if found else ""
        message = (
            f"plugins names {name!r}, and no installed package has an entry point of that name in "
            f"group {GROUP!r}.{suggestion(name, found)}{offered} Install the package, or remove "
            f"the name from the settings"
        )
        raise ConfigError(message)
    point = found[name]
    try:
        made: Any = point.load()
    except (ImportError, AttributeError) as error:
        message = (
            f"plugin {name!r} cannot be loaded from {point.value!r}: {error}. Fix its package, or "
            f"remove the name from the settings"
        )
        raise ConfigError(message) from error
    plugin: Any = made() if inspect.isclass(made) or inspect.isfunction(made) else made
    if getattr(plugin, "name", name) != name:
        message = (
            f"entry point {name!r} leads to a plugin named {plugin.name!r}: both need the same "
            f"name, because grants are given by name"
        )
        raise ConfigError(message)
    found_plugin: Plugin = plugin
    return found_plugin
