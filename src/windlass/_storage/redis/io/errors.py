"""Meanings of errors of a server or its connection: whether they pass, and advice."""

from __future__ import annotations

import re

from redis import exceptions

from windlass._storage.shared.insert_rules import MAY_BE_STORED
from windlass.errors import (
    SchemaTooNew,
    StorageError,
    StorageFull,
    StorageRefused,
    StorageReplaced,
    StorageUnavailable,
)

__all__ = [
    "EPOCH_LOST",
    "WrongScheme",
    "code_of",
    "is_lost",
    "is_transient",
    "outage_text",
    "translate",
]

EPOCH_LOST = "WINDLASSEPOCH"
"""The code that ``start.lua`` answers with where the jobs are gone or others."""
TOO_NEW = "WINDLASSLAYOUT"
"""The code that ``start.lua`` and ``claim.lua`` answer with where a newer Windlass was here."""


class WrongScheme(ConnectionError):
    """Something else answers there than the URL says."""


# Redis before 7 wraps what a command in a script answered.
_WRAPPED = re.compile(r"-([A-Z]+) ")
_CODES: tuple[tuple[type[Exception], str], ...] = (
    (WrongScheme, "SCHEME"),
    (exceptions.AuthenticationError, "WRONGPASS"),
    (exceptions.BusyLoadingError, "LOADING"),
    (exceptions.NoScriptError, "NOSCRIPT"),
    (exceptions.ReadOnlyError, "READONLY"),
    (exceptions.OutOfMemoryError, "OOM"),
    (exceptions.NoPermissionError, "NOPERM"),
    (exceptions.MovedError, "MOVED"),  # which is an AskError, too
    (exceptions.AskError, "ASK"),
    (exceptions.TryAgainError, "TRYAGAIN"),
    (exceptions.MasterDownError, "MASTERDOWN"),
    (exceptions.ClusterDownError, "CLUSTERDOWN"),
    (exceptions.ConnectionError, "LOST"),
    (exceptions.TimeoutError, "LOST"),
    (OSError, "LOST"),
    (RuntimeError, "LOST"),  # what uvloop says of a transport that was closed under it
)

_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"
_PASSING = frozenset(
    {"LOST", "LOADING", "READONLY", "ASK", "MOVED", "TRYAGAIN", "MASTERDOWN", "CLUSTERDOWN", "BUSY"}
)
_ELSEWHERE = frozenset({"LOST", "LOADING", "READONLY", "ASK", "MOVED", "MASTERDOWN", "CLUSTERDOWN"})

_ADVICE: dict[str, tuple[type[StorageError], str]] = {
    "LOADING": (
        StorageUnavailable,
        "is still loading its data. It answers by itself when that is done",
    ),
    "READONLY": (
        StorageUnavailable,
        (
            "is a read-only replica. Point the URL at the primary, or use redis+sentinel:// or "
            "redis+cluster://, which find it"
        ),
    ),
    "MASTERDOWN": (
        StorageUnavailable,
        "is a replica without its primary. Point the URL at the primary",
    ),
    "CLUSTERDOWN": (
        StorageUnavailable,
        "has a cluster that is down: no node serves a slot. Check CLUSTER INFO",
    ),
    "TRYAGAIN": (StorageUnavailable, "moves this slot to another node. Try again later"),
    "ASK": (StorageUnavailable, "moves this slot to another node. Try again later"),
    "MOVED": (
        StorageUnavailable,
        "does not serve this slot any more. Use redis+cluster://, which finds the node",
    ),
    "BUSY": (
        StorageUnavailable,
        "is busy with a slow script. Wait, or end it with SCRIPT KILL or FUNCTION KILL",
    ),
    "MISCONF": (
        StorageUnavailable,
        "refuses writes because it cannot save to disk. Check its disk and its log",
    ),
    "NOREPLICAS": (
        StorageUnavailable,
        (
            "refuses writes because too few replicas follow it (min-replicas-to-write). Bring a "
            "replica back, or change that setting"
        ),
    ),
    "OOM": (
        StorageFull,
        "has no memory left (maxmemory). Raise maxmemory, or keep finished jobs for less long",
    ),
    "WRONGPASS": (
        StorageError,
        "refuses the user or the password. Check them in the URL: redis://user:password@host",
    ),
    "NOAUTH": (StorageError, "wants a password. Put it into the URL: redis://:password@host"),
    "TLS": (
        StorageRefused,
        (
            "shows a certificate that is not trusted here. Use the host name that it was made for, "
            "and name the file of its authority in the URL: rediss://host?ssl_ca_certs=/path/to/ca.pem"
        ),
    ),
    "NOPERM": (
        StorageError,
        (
            "does not permit this user a command. Windlass needs: ~{windlass}:* +@all -@dangerous "
            "+config|get +info (or +@read +@write +@scripting +@connection +time +wait)"
        ),
    ),
    TOO_NEW: (
        SchemaTooNew,
        (
            "has jobs in a newer layout than this Windlass knows. Upgrade windlass in this "
            "process (pip install -U windlass), or point it at another storage"
        ),
    ),
    EPOCH_LOST: (
        StorageReplaced,
        (
            "has lost its jobs since it was opened: the epoch key is missing or changed (FLUSHALL, "
            "an eviction, or a failover to a server without the data). Find out what was lost, "
            "then restart the workers: they use the data that is left"
        ),
    ),
}


def code_of(error: BaseException) -> str:
    """Return the word that Redis begins its errors with; LOST for a connection that is gone."""
    text = str(error)
    if _UNTRUSTED in text:
        return "TLS"
    for kind, code in _CODES:
        if isinstance(error, kind):
            return "NOAUTH" if code == "WRONGPASS" and "required" in text else code
    if text.startswith("Error running script") and (wrapped := _WRAPPED.search(text)):
        return wrapped[1]
    if "ACL failure" in text or "user executing the script can't" in text:
        return "NOPERM"
    return text.partition(" ")[0]


def is_transient(error: BaseException) -> bool:
    """Return whether trying again for a while may cure it. Nothing was done, or the answer was
    lost.
    """
    return code_of(error) in _PASSING


def is_lost(error: BaseException) -> bool:
    """Return whether the next try needs a new connection, perhaps to another server."""
    return code_of(error) in _ELSEWHERE


def translate(error: BaseException, place: str, doing: str = "") -> StorageError:
    """Return the error to raise instead. Says what to do; never shows a password."""
    code = code_of(error)
    server = f"The Redis server at {place}"
    if code in _ADVICE:
        kind, advice = _ADVICE[code]
        detail = f" ({error})" if code in {"NOPERM", "TLS", TOO_NEW} else ""
        return kind(f"{server} {advice}.{detail}")
    if code == "SCHEME":
        return StorageRefused(f"{place}: {error}.")
    if code == "LOST":
        return StorageUnavailable(
            f"{server} does not answer: {_said(error)}. Check that it runs and can be reached from "
            f"here. {MAY_BE_STORED}"
        )
    what = f" {doing}" if doing else ""
    return StorageError(f"{server} refused{what}: {error}")


def outage_text(error: BaseException, place: str) -> str:
    """Return the log line for a server that goes away while it is used."""
    if code_of(error) == "LOST":
        return f"Redis at {place} closed the connection: {_said(error)}. Reconnecting."
    return str(translate(error, place))


def _said(error: BaseException) -> str:
    return str(error).rstrip(". ") or type(error).__name__
