"""Jobs stored and finished on the user's own connection, inside the user's own transaction.

Each operation is one call of one function in the schema (see the migration ``transactions``): one
JSON text in, one text out. Nothing of ours has to be open for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime

import msgspec

from windlass._core.flows.flow import NewFlow
from windlass._core.job.job import FlowId, JobId, NewJob
from windlass._core.job.transition import Transition
from windlass._storage.postgres.flows.new_flows import UserFlow, user_flow_of
from windlass._storage.postgres.io.database import PostgresDatabase, channel_of, quoted_schema
from windlass._storage.postgres.jobs.insert import check_size, insert_answers
from windlass._storage.postgres.jobs.job_json import JobJson, job_json_of
from windlass._storage.postgres.transactions.user_connections import (
    Statement,
    call_on_commit,
    run_statement,
    run_statement_sync,
)
from windlass._storage.protocol.flows import StartedFlow
from windlass._storage.protocol.jobs import Inserted
from windlass._storage.protocol.transactions import ClaimEnd, ClaimEndAnswer, UserConnection
from windlass._storage.shared.insert_rules import skip_if_key_held
from windlass._storage.shared.stored_text import metadata_text
from windlass._system.seams import SYSTEM_CLOCK, Clock
from windlass.errors import (
    AlreadyFinished,
    ClaimLost,
    IdConflict,
    KeyBusy,
    KeyConflict,
    LimitUnknown,
    SchemaMissing,
    StoreBusy,
)

__all__ = ["PostgresTransactions", "UserTransactions"]

_INSERT = "SELECT windlass.insert_for_user(CAST($1 AS text))"
_START = "SELECT windlass.start_for_user(CAST($1 AS text))"
_FINISH = "SELECT windlass.finish_for_user(CAST($1 AS text))"
# A server that runs, a database, a table. Without a right to the schema there is no table.
_PLACE = """SELECT pg_catalog.concat_ws(' ',
    extract(epoch FROM pg_catalog.pg_postmaster_start_time()),
    (SELECT d.oid FROM pg_catalog.pg_database d
      WHERE d.datname = pg_catalog.current_database()),
    (SELECT c.oid FROM pg_catalog.pg_class c
       JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
      WHERE n.nspname = CAST($1 AS text) AND c.relname = 'jobs'
        AND pg_catalog.has_schema_privilege(n.oid, 'USAGE'))) AS place"""
_ENDED = "SELECT what, at FROM windlass.ended_for_user($1, $2, $3, $4, $5)"

_encode = msgspec.json.encode
_started = msgspec.json.Decoder(tuple[FlowId, bool, bool]).decode
_left_out = msgspec.json.Decoder(list[JobId]).decode
_holders = msgspec.json.Decoder(dict[int, tuple[str, bool]]).decode


class _Insert(msgspec.Struct, frozen=True):
    at: datetime | None
    """The test instant; None: the server's own clock."""
    channel: str | None
    """Where their commit is to be told; None: nowhere."""
    jobs: Sequence[JobJson]


class _Finish(msgspec.Struct, frozen=True):
    at: datetime | None
    id: JobId
    seq: int
    number: int
    by: str
    result: bytes | None
    keep: bool
    then: Sequence[JobJson] | None
    flows: Sequence[UserFlow] | None
    metadata: str | None


class UserTransactions:
    """The calls on the user's connection: `TransactionStore` without `ended` and `wake`."""

    def __init__(self, schema: str, clock: Clock = SYSTEM_CLOCK) -> None:
        """Make it. ``schema`` as it is set, without quotes."""
        self._schema, self._clock = schema, clock
        self._channel = channel_of(schema)
        place = f"{quoted_schema(schema)}."
        self._insert = Statement(_INSERT.replace("windlass.", place))
        self._start = Statement(_START.replace("windlass.", place))
        self._finish = Statement(_FINISH.replace("windlass.", place))
        self._place = Statement(_PLACE)

    async def insert(
        self, connection: UserConnection, jobs: Sequence[NewJob], *, notify: bool = False
    ) -> Sequence[Inserted]:
        request = self._insertion(jobs, notify=notify)
        with self._translated():
            answer = await run_statement(connection, self._insert, request, doing="enqueue")
        return _inserted(jobs, answer)

    def insert_sync(
        self, connection: UserConnection, jobs: Sequence[NewJob], *, notify: bool = False
    ) -> Sequence[Inserted]:
        request = self._insertion(jobs, notify=notify)
        with self._translated():
            answer = run_statement_sync(connection, self._insert, request, doing="enqueue")
        return _inserted(jobs, answer)

    async def start(
        self, connection: UserConnection, flow: NewFlow, *, notify: bool = False
    ) -> StartedFlow:
        request = self._starting(flow, notify=notify)
        with self._translated():
            answer = await run_statement(connection, self._start, request, doing="start")
        return StartedFlow(*_started(answer or ""))

    def start_sync(
        self, connection: UserConnection, flow: NewFlow, *, notify: bool = False
    ) -> StartedFlow:
        request = self._starting(flow, notify=notify)
        with self._translated():
            answer = run_statement_sync(connection, self._start, request, doing="start")
        return StartedFlow(*_started(answer or ""))

    async def finish(self, connection: UserConnection, transition: Transition) -> Collection[JobId]:
        request = self._finishing(transition)
        with self._translated(transition):
            answer = await run_statement(connection, self._finish, request, doing="finish")
        return _left_out(answer) if answer else ()

    def finish_sync(self, connection: UserConnection, transition: Transition) -> Collection[JobId]:
        request = self._finishing(transition)
        with self._translated(transition):
            answer = run_statement_sync(connection, self._finish, request, doing="finish")
        return _left_out(answer) if answer else ()

    def on_commit(self, connection: UserConnection, callback: Callable[[], None]) -> bool:
        return call_on_commit(connection, callback)

    def place_sync(self, connection: UserConnection) -> str:
        return run_statement_sync(connection, self._place, self._schema, doing="enqueue") or ""

    def _insertion(self, jobs: Sequence[NewJob], *, notify: bool) -> str:
        check_size(jobs)
        channel = self._channel if notify else None
        return _encode(
            _Insert(self._instant(), channel, [job_json_of(new) for new in jobs])
        ).decode()

    def _starting(self, flow: NewFlow, *, notify: bool) -> str:
        check_size([job for _, job in flow.jobs])
        channel = self._channel if notify else None
        return _encode(user_flow_of(flow, self._instant(), channel)).decode()

    def _finishing(self, transition: Transition) -> str:
        claim = transition.claim
        order = _Finish(
            at=self._instant(),
            id=claim.job,
            seq=claim.seq,
            number=claim.number,
            by=transition.by,
            result=transition.result,
            keep=transition.keep,
            then=[job_json_of(skip_if_key_held(job)) for job in transition.then] or None,
            flows=[user_flow_of(flow, self._instant(), None) for flow in transition.flows] or None,
            metadata=metadata_text(transition.metadata),
        )
        return _encode(order).decode()

    def _instant(self) -> datetime | None:
        return None if self._clock is SYSTEM_CLOCK else self._clock.now()

    @contextmanager
    def _translated(self, transition: Transition | None = None) -> Iterator[None]:
        """Translate the errors of our own functions; all others are the driver's."""
        try:
            yield
        except Exception as error:
            told = self._told(error, transition)
            if told is None:
                raise
            raise told from error

    def _told(self, error: Exception, transition: Transition | None) -> Exception | None:
        state, detail = _said(error)
        job = "" if transition is None else str(transition.claim.job)
        match state:
            case "WL001":
                return LimitUnknown(detail, ())
            case "WL423":
                holder, _, key = detail.partition(" ")
                return KeyConflict(key, holder)
            case "WL424":
                return IdConflict(detail)
            case "WL010":
                why = "its claim was lost: the worker was declared dead, or the run had ended"
                return ClaimLost(job, why)
            case "WL011":
                return AlreadyFinished(job, "finish() has succeeded before, and was committed")
            case "55P03" if transition is not None:
                return StoreBusy(
                    f"Job {job} is locked by another open transaction, perhaps one in which its "
                    f"handler has called finish() before. End that one first."
                )
            case "55P03":
                return KeyBusy(
                    "Another open transaction decides about a unique key of these jobs. Roll back, "
                    "and try again when that transaction has ended."
                )
            case "3F000" | "42883" | "42P01":
                return SchemaMissing(
                    f"The database of this connection has no tables of Windlass in the schema "
                    f"{self._schema!r}, or old ones. Run `windlass db migrate`, or open the app "
                    f"once, to make them; and check that the connection leads to the database in "
                    f"the app's URL."
                )
            case _:
                return None


def _said(error: BaseException) -> tuple[str, str]:
    """SQLSTATE and detail of a driver's error, also of one that SQLAlchemy has wrapped."""
    seen: BaseException | None = error
    for _ in range(4):
        if seen is None:
            break
        state = getattr(seen, "sqlstate", None) or getattr(seen, "pgcode", None)
        if isinstance(state, str):
            detail = getattr(seen, "detail", None)
            if not isinstance(detail, str):
                diagnosis = getattr(seen, "diag", None)
                detail = getattr(diagnosis, "message_detail", None)
            if isinstance(detail, str) or seen.__cause__ is None:
                return state, detail if isinstance(detail, str) else ""
        following = getattr(seen, "orig", None)
        seen = following if isinstance(following, BaseException) else seen.__cause__
    return "", ""


def _inserted(jobs: Sequence[NewJob], answer: str | None) -> list[Inserted]:
    """Return the answers: all were stored except those that the reply names, by their
    place from 1.
    """
    held: Mapping[int, tuple[str, bool]] = {} if answer is None else _holders(answer)
    return insert_answers(jobs, ((place, *told) for place, told in held.items()), unsure=False)


class PostgresTransactions(UserTransactions):
    """A `TransactionStore` of an opened storage."""

    def __init__(self, database: PostgresDatabase) -> None:
        super().__init__(database.schema.strip('"'), database.clock)
        self._db = database

    async def ended(self, transition: Transition) -> ClaimEndAnswer:
        claim = transition.claim
        rows = await self._db.fetch_aside(
            self._db.sql(_ENDED),
            self._db.instant(),
            claim.seq,
            claim.number,
            transition.by,
            transition.keep,
            reads=True,
        )
        what = ClaimEnd(rows[0]["what"])
        if what is ClaimEnd.STORED:
            self.wake()
        return ClaimEndAnswer(what, rows[0]["at"])

    async def place(self) -> str:
        rows = await self._db.fetch_aside(_PLACE, self._schema, reads=True)
        found: str = rows[0]["place"]
        return found

    def wake(self) -> None:
        self._db.wake()
