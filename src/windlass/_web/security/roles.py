"""Who looks at the dashboard, and what they may do."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from windlass.errors import ConfigError, suggestion

__all__ = ["Person", "Role", "parse_role"]


class Role(StrEnum):
    """A role. Each includes the permissions of those before it."""

    VIEWER = "viewer"
    """Reads."""
    OPERATOR = "operator"
    """Acts: cancels, requeues, pauses."""
    ADMIN = "admin"
    """Changes settings."""

    def includes(self, other: Role) -> bool:
        """Whether whoever has this role may do what needs ``other``."""
        order = list(Role)
        return order.index(self) >= order.index(other)


class Person(msgspec.Struct, frozen=True):
    """Somebody who was let in. The audit log knows them by ``name``."""

    name: str
    role: Role


def parse_role(word: str) -> Role:
    """The role of that name; ConfigError says which there are."""
    try:
        return Role(word)
    except ValueError:
        known = [str(role) for role in Role]
        message = f"{word!r} is no role.{suggestion(word, known)} Use one of: {', '.join(known)}"
        raise ConfigError(message) from None
