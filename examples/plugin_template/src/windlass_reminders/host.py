"""What the plugin needs of its host. A protocol: the host need not know this package for it."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable


@runtime_checkable
class Notifier(Protocol):
    """The service ``notifier``."""

    def open_tasks(self) -> Sequence[tuple[str, str]]:
        """Users, and what each of them has left to do."""
        ...

    async def notify(self, user: str, text: str) -> None:
        """Tell a user something."""
        ...
