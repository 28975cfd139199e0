"""`TransactionStore`: jobs in the user's own transactions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from windlass._core.flows.flow import NewFlow
from windlass._core.job.job import JobId, NewJob
from windlass._core.job.transition import Transition
from windlass._storage.protocol.flows import StartedFlow
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
    def execute(self) -> Callable[..., Any]:
        """The driver's own call that runs a statement."""
        ...


class ClaimEnd(StrEnum):
    """The state of a claim that was finished in the user's transaction."""

    STORED = "stored"
    """It was committed: the job has succeeded under this claim."""
    OPEN = "open"
    """Not decided: this transaction, or another one, holds the row."""
    HELD = "held"
    """It was rolled back: the job is still running under this claim."""
    LOST = "lost"
    """The claim was ended by another caller."""


class ClaimEndAnswer(msgspec.Struct, frozen=True):
    """The answer to `TransactionStore.ended`."""

    what: ClaimEnd
    at: datetime
    """The instant of the success; without one, the store's clock."""


class UserInsertStore(Protocol):
    """Jobs in the user's own transactions: stored if those commit, never stored if not.

    Everything runs on the user's connection alone and needs no open storage; the ``_sync`` twins
    are for connections that block. A connection of the wrong kind, or of no known kind, raises
    InvalidArgument before anything is written. After any other error the user's transaction, or
    their savepoint, has to be rolled back, as after any statement that failed.
    """

    async def insert(
        self, connection: UserConnection, jobs: Sequence[NewJob], *, notify: bool = False
    ) -> Sequence[Inserted]:
        """Insert jobs as `JobStore.insert` does, without waking workers. With ``notify`` the commit
        wakes them, if a job was stored. A key that another open transaction decides about raises
        KeyBusy. Jobs with limits enter their lanes at the next claim, so that this transaction
        holds no lock on limits.
        """
        ...

    def insert_sync(
        self, connection: UserConnection, jobs: Sequence[NewJob], *, notify: bool = False
    ) -> Sequence[Inserted]:
        """Insert jobs as `insert` does, on a connection that blocks."""
        ...

    async def start(
        self, connection: UserConnection, flow: NewFlow, *, notify: bool = False
    ) -> StartedFlow:
        """Store a flow as `FlowStore.start` does, under the same rules as `insert`. A key that
        another open transaction decides about raises KeyBusy.
        """
        ...

    def start_sync(
        self, connection: UserConnection, flow: NewFlow, *, notify: bool = False
    ) -> StartedFlow:
        """Store a flow as `start` does, on a connection that blocks."""
        ...

    def on_commit(self, connection: UserConnection, callback: Callable[[], None]) -> bool:
        """Call ``callback`` after the commit, on the thread that commits. Return False if the
        driver cannot say when that is. One call per transaction, for any number of requests.
        """
        ...


class UserTransactionStore(UserInsertStore, Protocol):
    """The same, and the success of a job."""

    async def finish(self, connection: UserConnection, transition: Transition) -> Collection[JobId]:
        """Apply a success. Any answer except *applied* makes the statement fail, and with it the
        transaction: ClaimLost, or AlreadyFinished if this claim has succeeded before. Return the
        jobs that were left out: `Applied.left_out`.
        """
        ...

    def finish_sync(self, connection: UserConnection, transition: Transition) -> Collection[JobId]:
        """Apply a success as `finish` does, on a connection that blocks."""
        ...

    def place_sync(self, connection: UserConnection) -> str:
        """Return where jobs would be stored through a connection that blocks. The text equals
        `TransactionStore.place` only for the storage's own server, database and schema.

        It changes nothing, and does not fail if a right is missing: a failed statement would end
        the user's transaction.
        """
        ...


class TransactionStore(UserTransactionStore, Protocol):
    """The same as part of an opened storage, which can also read the result."""

    async def ended(self, transition: Transition) -> ClaimEndAnswer:
        """Return the state of a claim that `finish` was called for. Waits for no lock. Frees the
        units that a stored success still holds, and wakes callers that wait for them.
        """
        ...

    async def place(self) -> str:
        """Return where jobs are stored: see `place_sync`."""
        ...

    def wake(self) -> None:
        """Wake workers, after jobs were committed on a connection of the user's."""
        ...
