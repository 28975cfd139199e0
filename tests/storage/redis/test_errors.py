"""Every error of a server becomes one that says what to do, and whether to try again."""

from __future__ import annotations

import pytest
from redis import exceptions

from windlass._storage.redis.io.errors import code_of, is_lost, is_transient, translate
from windlass.errors import StorageError, StorageFull, StorageReplaced, StorageUnavailable

WRAPPED = "Error running script (call to f_1): @user_script:5: -{} whatever it says"
"""What Redis before 7 makes of an error inside a script."""


@pytest.mark.parametrize(
    ("error", "code", "kind", "again"),
    [
        (exceptions.ConnectionError("Connection reset."), "LOST", StorageUnavailable, True),
        (exceptions.TimeoutError("Timeout reading"), "LOST", StorageUnavailable, True),
        (OSError(104, "reset"), "LOST", StorageUnavailable, True),
        (RuntimeError("the handler is closed"), "LOST", StorageUnavailable, True),
        (exceptions.BusyLoadingError("loading"), "LOADING", StorageUnavailable, True),
        (exceptions.ReadOnlyError("replica"), "READONLY", StorageUnavailable, True),
        (exceptions.MovedError("1 127.0.0.1:1"), "MOVED", StorageUnavailable, True),
        (exceptions.AskError("1 127.0.0.1:1"), "ASK", StorageUnavailable, True),
        (exceptions.TryAgainError("later"), "TRYAGAIN", StorageUnavailable, True),
        (exceptions.ClusterDownError("down"), "CLUSTERDOWN", StorageUnavailable, True),
        (exceptions.MasterDownError("down"), "MASTERDOWN", StorageUnavailable, True),
        (exceptions.ResponseError("BUSY a script"), "BUSY", StorageUnavailable, True),
        (exceptions.ResponseError("MISCONF no disk"), "MISCONF", StorageUnavailable, False),
        (exceptions.ResponseError("NOREPLICAS few"), "NOREPLICAS", StorageUnavailable, False),
        (exceptions.OutOfMemoryError("maxmemory"), "OOM", StorageFull, False),
        (exceptions.AuthenticationError("invalid pair"), "WRONGPASS", StorageError, False),
        (exceptions.AuthenticationError("auth required."), "NOAUTH", StorageError, False),
        (exceptions.NoPermissionError("no 'evalsha'"), "NOPERM", StorageError, False),
        (exceptions.ResponseError("WINDLASSEPOCH x"), "WINDLASSEPOCH", StorageReplaced, False),
        (exceptions.ResponseError(WRAPPED.format("OOM")), "OOM", StorageFull, False),
        (
            exceptions.ResponseError(WRAPPED.format("READONLY")),
            "READONLY",
            StorageUnavailable,
            True,
        ),
        (exceptions.ResponseError("whatever else"), "whatever", StorageError, False),
    ],
)
def test_an_error_is_known_for_what_it_is(
    error: Exception, code: str, kind: type[StorageError], *, again: bool
) -> None:
    assert code_of(error) == code
    assert is_transient(error) is again
    told = translate(error, "queue.example:6379", "insert")
    assert type(told) is kind
    assert "queue.example:6379" in str(told)
    assert ".." not in str(told)


def test_moved_and_read_only_errors_mean_a_lost_primary() -> None:
    assert is_lost(exceptions.ReadOnlyError("replica"))
    assert is_lost(exceptions.MovedError("1 127.0.0.1:1"))
    assert not is_lost(exceptions.ResponseError("BUSY a script"))
