"""The roles of dashboard users."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from windlass.errors import ConfigError, suggestion

__all__ = ["Person", "Role", "parse_role"]


class Role(StrEnum):
    """A role. Each includes the permissions of those before it."""

    VIEWER = "viewer"
    """Sees everything."""
    OPERATOR = "operator"
    """Cancels, requeues and pauses."""
    ADMIN = "admin"
    """Changes settings."""

    def includes(self, other: Role) -> bool:
        """Return whether this role includes the permissions of ``other``."""
        order = list(Role)
        return order.index(self) >= order.index(other)


class Person(msgspec.Struct, frozen=True):
    """A user of the dashboard. The audit log records the ``name``."""

    name: str
    role: Role


def parse_role(word: str) -> Role:
    """Return the role of that name; ConfigError lists the roles."""
    try:
        return Role(word)
    except ValueError:
        known = [str(role) for role in Role]
        message = f"{word!r} is no role.{suggestion(word, known)} Use one of: {', '.join(known)}"
        raise ConfigError(message) from None
