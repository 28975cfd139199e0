"""Errors of the driver and the server, translated to this library's, with advice."""

from __future__ import annotations

import ssl
from enum import Enum

import asyncpg

from windlass._storage.shared.insert_rules import MAY_BE_STORED
from windlass.errors import (
    InvalidArgument,
    StorageError,
    StorageFull,
    StorageRefused,
    StorageReplaced,
    StorageUnavailable,
    StoreBusy,
    WindlassError,
)

__all__ = ["ErrorMeaning", "FunctionError", "StatementTimeout", "error_meaning_of", "translate"]


class FunctionError(Exception):
    """An error that a function in the database raised, with a code ``WLxxx``.

    For the store that called it, which knows what the code means.
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(code, detail)
        self.code: str = code
        self.detail: str = detail


class StatementTimeout(TimeoutError):
    """A statement took longer than its caller waits, and was cancelled."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no answer within {seconds:g} s")
        self.seconds: float = round(seconds, 1)


class ErrorMeaning(Enum):
    """The meaning of an error for a caller that might try again."""

    LOST = "the connection is gone; whether the statement took effect is not known"
    CONFLICT = "rolled back because of others: the same again may well succeed"
    READ_ONLY = "nothing was written: this server takes no writes"
    POOLED = "a pooler stands between: prepared statements do not last"
    FINAL = "the same again would end the same"


_LOST = {
    "57P01",  # admin_shutdown, pg_terminate_backend
    "57P02",  # crash_shutdown
    "57P03",  # cannot_connect_now: starting up, in recovery
    "57P05",  # idle_session_timeout
    "25P03",  # idle_in_transaction_session_timeout
    "53300",  # too_many_connections
}
_CONFLICT = {"40001", "40P01"}
_POOLED = {"26000", "42P05"}


def error_meaning_of(error: BaseException) -> ErrorMeaning:
    """Return whether, and how, to try again."""
    if isinstance(error, asyncpg.PostgresError):
        code = error.sqlstate or ""
        if code in _LOST or code.startswith("08"):
            return ErrorMeaning.LOST
        if code in _CONFLICT:
            return ErrorMeaning.CONFLICT
        if code == "25006":
            return ErrorMeaning.READ_ONLY
        return ErrorMeaning.POOLED if code in _POOLED else ErrorMeaning.FINAL
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return ErrorMeaning.READ_ONLY
    if isinstance(
        error, asyncpg.exceptions.ClientConfigurationError | asyncpg.exceptions.DataError
    ):
        return ErrorMeaning.FINAL
    if isinstance(error, ssl.SSLCertVerificationError) or _lacks_tls(error):
        return ErrorMeaning.FINAL
    if isinstance(error, asyncpg.InterfaceError) and "expects" in str(error):
        return ErrorMeaning.FINAL  # a statement called with the wrong number of arguments
    # The driver's own: closed, broken protocol, out of step. A new connection is the cure.
    lost = (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError)
    return ErrorMeaning.LOST if isinstance(error, lost) else ErrorMeaning.FINAL


def _lacks_tls(error: BaseException) -> bool:
    """Return whether the server, asked for TLS, said that it has none: it does so until it is
    changed.
    """
    return isinstance(error, ConnectionError) and "rejected SSL upgrade" in str(error)


def translate(error: BaseException, where: str) -> Exception:
    """Return the error to raise; ``where`` is the place as it may be shown."""
    if isinstance(error, WindlassError | FunctionError):
        return error
    if isinstance(error, asyncpg.PostgresError):
        return _translate_state(error, error.sqlstate or "", where)
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return StorageUnavailable(
            f"None of the servers at {where} takes writes: they are standbys. Promote one, or add "
            f"the primary's host to the URL."
        )
    if isinstance(error, asyncpg.exceptions.DataError):
        return InvalidArgument(f"PostgreSQL cannot store this value: {error}")
    if isinstance(error, asyncpg.exceptions.ClientConfigurationError):
        # Its text may repeat pieces of the URL.
        return StorageError(f"The options in the URL of {where} do not fit together.")
    if isinstance(error, ssl.SSLCertVerificationError):
        return StorageRefused(
            f"PostgreSQL at {where} shows a certificate that is not trusted here: "
            f"{error.verify_message}. Name the file of its authority in the URL: "
            f"?sslmode=verify-full&sslrootcert=/path/to/ca.pem."
        )
    if _lacks_tls(error):
        return StorageRefused(
            f"PostgreSQL at {where} offers no TLS, and sslmode asks for it. Turn ssl on at the "
            f"server; or, if the network is safe, put sslmode=prefer into the URL."
        )
    if isinstance(error, StatementTimeout):
        return StorageUnavailable(
            f"PostgreSQL at {where} did not answer within {error.seconds:g} s, and the statement "
            f"was cancelled. It may have taken effect nevertheless. Look for locks and load on the "
            f"server; if synchronous_standby_names is set, check that a standby is connected. "
            f"{MAY_BE_STORED}"
        )
    if error_meaning_of(error) is ErrorMeaning.LOST:
        why = str(error) or "it did not answer in time"
        if isinstance(error, asyncpg.InternalClientError):
            why = "the connection broke"  # its own text is about the state of the driver
        return StorageUnavailable(
            f"PostgreSQL at {where} cannot be reached: {why}. Check that the server runs and that "
            f"host and port are right. {MAY_BE_STORED}"
        )
    return StorageError(f"PostgreSQL at {where}: {type(error).__name__}: {error}")


_TEXTS: dict[str, tuple[type[StorageError], str]] = {
    "25006": (
        StorageUnavailable,
        (
            "takes no writes: it is a standby, or default_transaction_read_only is on. Use the "
            "primary's host; with several hosts in the URL the one that takes writes is found"
        ),
    ),
    "53100": (StorageFull, "has no disk space left. Free some on the server"),
    "53200": (StorageUnavailable, "is out of memory. Lower work_mem or give the server more"),
    "53300": (
        StorageUnavailable,
        (
            "has no connection left. A worker process needs four, or five with 100 slots or more; "
            "raise max_connections, or put PgBouncer between"
        ),
    ),
    "55P03": (
        StoreBusy,
        ("did not release a lock in time: another transaction is open. Try again"),
    ),
    "57014": (
        StoreBusy,
        (
            "cancelled a statement: statement_timeout is shorter than it needed, or "
            "pg_cancel_backend was called. Give the role more time: ALTER ROLE ... SET "
            "statement_timeout = '30s'"
        ),
    ),
    "25P04": (StoreBusy, "ended a transaction: transaction_timeout is shorter than it needed"),
    "28P01": (StorageRefused, "refused the password. Check user and password in the URL"),
    "28000": (
        StorageRefused,
        "refused the login. Check the user in the URL, sslmode, and pg_hba.conf on the server",
    ),
    "42704": (
        StorageRefused,
        "does not know what the URL, or a setting of the role, names. Correct it or leave it out",
    ),
    "3D000": (StorageRefused, "has no such database. Create it, or correct the URL"),
    "57P04": (StorageRefused, "dropped the database. Create it again, or correct the URL"),
    "42501": (
        StorageRefused,
        (
            "does not allow this role to do that. It needs USAGE on the schema, and ALL on its "
            "tables, sequences and functions; simplest is that it owns the schema"
        ),
    ),
}
_RAISED = "P0001"
"""A trigger of the user's refuses these values; others can be stored."""
_GONE = {"3F000", "42P01", "42883", "42703"}


def _translate_state(error: asyncpg.PostgresError, code: str, where: str) -> Exception:
    said = error.message or str(error)
    if code.startswith("WL"):
        return FunctionError(code, error.detail or said)
    if code in _TEXTS:
        kind, text = _TEXTS[code]
        return kind(f"PostgreSQL at {where} {text}. It said: {said}")
    if error_meaning_of(error) is ErrorMeaning.LOST:
        return StorageUnavailable(
            f"PostgreSQL at {where} closed the connection: {said}. {MAY_BE_STORED}"
        )
    if code in _CONFLICT:
        return StoreBusy(
            f"PostgreSQL at {where} kept rolling back because of other transactions: {said}. "
            f"Nothing was written; try again."
        )
    if code in _GONE:
        return StorageReplaced(
            f"The tables of Windlass at {where} are gone or were changed: {said}. Start again to "
            f"create them, or check the schema setting."
        )
    if code[:2] in {"22", "23", "54"} or code == _RAISED:
        return InvalidArgument(f"PostgreSQL at {where} cannot store this: {said}")
    return StorageError(f"PostgreSQL at {where} answered {code}: {said}")
