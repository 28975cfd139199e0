"""`TransactionStore`: jobs in the user's own transactions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from windlass._core.job.job import NewJob
from windlass._core.job.transition import Transition
from windlass._storage.protocol.jobs import Inserted

__all__ = [
    "ClaimEnd",
    "ClaimEndAnswer",
    "TransactionStore",
    "UserConnection",
    "UserInsertStore",
    "UserTransactionStore",
]


class UserConnection(Protocol):
    """A database connection that belongs to the user, of one of the drivers a backend knows."""

    @property
    def execute(self) -> Callable[..., Any]: ...


class ClaimEnd(StrEnum):
    """What has become of a claim that was finished in a transaction of the user's."""

    STORED = "stored"
    """It was committed: the job has succeeded under this claim."""
    OPEN = "open"
    """Not decided: the transaction, or somebody else's, holds the row."""
    HELD = "held"
    """It was rolled back: the job is still running under this claim."""
    LOST = "lost"
    """The claim was ended otherwise."""


class ClaimEndAnswer(msgspec.Struct, frozen=True):
    """The answer to `TransactionStore.ended`."""

    what: ClaimEnd
    at: datetime
    """When the job succeeded, if it did; else the store's now."""


class UserInsertStore(Protocol):
    """Jobs in the user's own transactions: there if they commit, as if never asked for if not.

    Everything runs on the user's connection alone and needs no open storage; the ``_sync`` twins
    are for connections that block. A connection of the wrong kind, or of no known kind, raises
    InvalidArgument before anything is written. After any other error the user's transaction, or
    their savepoint, has to be rolled back, as after any statement that failed.
    """

    async def insert(
        self, connection: UserConnection, jobs: Sequence[NewJob], *, notify: bool = False
    ) -> Sequence[Inserted]:
        """As `JobStore.insert`, without waking: ``notify`` lets their commit do that, if something
        was stored. A key that somebody else's open transaction decides about raises KeyBusy. Jobs
        with limits enter their lanes at the next claim, so that no lock on limits is held in this
        transaction.
        """
        ...

    def insert_sync(
        self, connection: UserConnection, jobs: Sequence[NewJob], *, notify: bool = False
    ) -> Sequence[Inserted]:
        """As `insert`."""
        ...

    def on_commit(self, connection: UserConnection, callback: Callable[[], None]) -> bool:
        """Call ``callback`` after the commit, on whatever thread commits; False where the driver
        cannot say when that is. Once per transaction, however often it is asked for.
        """
        ...


class UserTransactionStore(UserInsertStore, Protocol):
    """The same, and the success of a job."""

    async def finish(self, connection: UserConnection, transition: Transition) -> None:
        """Apply a success. Any answer but *applied* makes the statement itself fail, and with it
        the transaction: ClaimLost, or AlreadyFinished if this claim has ended as it should.
        """
        ...

    def finish_sync(self, connection: UserConnection, transition: Transition) -> None:
        """As `finish`."""
        ...

    def place_sync(self, connection: UserConnection) -> str:
        """Say where jobs would be stored through a connection that blocks: the same text as
        `TransactionStore.place` if, and only if, it leads to the storage's own server, database
        and schema. Changes nothing, and fails for no missing right: a failed statement would cost
        the user their transaction.
        """
        ...


class TransactionStore(UserTransactionStore, Protocol):
    """The same as part of an opened storage, which can also look what became of it."""

    async def ended(self, transition: Transition) -> ClaimEndAnswer:
        """What has become of a claim that `finish` was called for. Waits for no lock. Frees what a
        stored success has left to be freed, and wakes those who wait for it.
        """
        ...

    async def place(self) -> str:
        """Say where jobs are stored: see `place_sync`."""
        ...

    def wake(self) -> None:
        """Jobs were committed on a connection of the user's: wake whoever waits for work."""
        ...
