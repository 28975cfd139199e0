from __future__ import annotations

import asyncio
import fcntl
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import apsw
import pytest

from windlass._storage.shared.worker_locks import (
    WorkerLock,
    as_signed_64,
    boot_id,
    forget,
    is_holder_dead,
)
from windlass._storage.sqlite.io import guards
from windlass._storage.sqlite.io.connection import connect, connect_reader, disconnect, translate
from windlass._storage.sqlite.io.files import DatabaseFiles, filesystem_of, prepare_file
from windlass._storage.sqlite.io.guards import FileGuard, FileWriteLock
from windlass._system.seams import SYSTEM_CLOCK
from windlass.errors import (
    StorageError,
    StorageFull,
    StorageRefused,
    StorageReplaced,
    StorageUnavailable,
    StoreBusy,
)


def mode(path: str | Path) -> int:
    return stat.S_IMODE(Path(path).stat().st_mode)


@pytest.fixture
def files(tmp_path: Path) -> DatabaseFiles:
    return prepare_file(str(tmp_path / "jobs.db"))


@pytest.fixture
def connection(files: DatabaseFiles) -> Iterator[apsw.Connection]:
    opened = connect(files.path)
    yield opened
    disconnect(opened)


# --- modes and places -----------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_every_file_is_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        files = prepare_file(str(tmp_path / "jobs.db"))
        connection = connect(files.path)
        connection.execute("CREATE TABLE t (x)")
        turn = FileWriteLock(files)
        lock = WorkerLock.hold(files.workers, "w1")
    finally:
        os.umask(before)
    made = [files.path, files.wal, files.shm, files.lock, f"{files.workers}/w1"]
    assert {path: mode(path) for path in made} == dict.fromkeys(made, 0o600)
    assert mode(files.workers) == 0o700
    lock.release()
    turn.close()
    disconnect(connection)


def test_the_lock_file_is_shared_as_far_as_the_database_is(files: DatabaseFiles) -> None:
    Path(files.path).chmod(0o660)
    FileWriteLock(files).close()
    assert mode(files.lock) == 0o660


def test_an_existing_file_keeps_its_mode_and_its_rows(files: DatabaseFiles) -> None:
    connection = connect(files.path)
    connection.execute("CREATE TABLE t (x)")
    disconnect(connection)
    Path(files.path).chmod(0o640)
    assert prepare_file(files.path) == files
    assert mode(files.path) == 0o640
    reader = connect_reader(files.path)
    assert reader.execute("SELECT count(*) FROM t").get == 0
    disconnect(reader)


def test_a_folder_that_is_missing_is_named_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(StorageRefused, match=re.escape(f"The folder {tmp_path}/new does not")):
        prepare_file(str(tmp_path / "new" / "deep" / "jobs.db"))
    assert not any(tmp_path.iterdir())


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable, match="is a directory; name a file"):
        prepare_file(str(tmp_path))


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "jobs.db")
    with pytest.raises(StorageUnavailable, match="not an ordinary file"):
        prepare_file(str(tmp_path / "jobs.db"))


def test_a_path_below_a_file_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageUnavailable, match=r"file/jobs\.db: Not a directory"):
        prepare_file(str(tmp_path / "file" / "jobs.db"))


def test_a_file_that_is_not_a_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    text = "This is a diary, not a database. " * 100
    (tmp_path / "diary.txt").write_text(text)
    files = prepare_file(str(tmp_path / "diary.txt"))
    with pytest.raises(StorageError, match="is not a SQLite database"):
        connect(files.path)
    assert (tmp_path / "diary.txt").read_text() == text


def test_a_link_of_ones_own_leads_to_the_real_file(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "real" / "jobs.db")
    files = prepare_file(str(tmp_path / "link.db"))
    assert files.path == str(tmp_path / "real" / "jobs.db")
    assert mode(files.path) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make somebody else's link")
def test_a_link_that_somebody_else_planted_is_refused(tmp_path: Path) -> None:
    link = tmp_path / "jobs.db"
    link.symlink_to(tmp_path / "elsewhere")
    os.chown(link, 12345, 12345, follow_symlinks=False)
    with pytest.raises(StorageUnavailable, match="link made by another user"):
        prepare_file(str(link))
    assert not (tmp_path / "elsewhere").exists()


def test_a_network_file_system_is_refused_unless_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass._storage.sqlite.io.files.filesystem_of", lambda _: "nfs4")
    with pytest.raises(StorageUnavailable, match=r"network file system \(nfs4\)"):
        prepare_file(str(tmp_path / "jobs.db"))
    assert not (tmp_path / "jobs.db").exists()
    prepare_file(str(tmp_path / "jobs.db"), allow_network_filesystem=True)


def test_the_file_system_is_the_one_of_the_innermost_and_latest_mount(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "40 22 0:50 / /srv/my\\040share rw,relatime shared:1 - cifs //host/share rw\n"
        "41 22 0:51 / /srv/dev rw - nfs4 host:/dev rw\n"
        "42 22 0:52 / /srv/dev rw - tmpfs tmpfs rw\n"
        "a line that is not a mount\n"
    )
    assert filesystem_of("/srv/my share/jobs.db", str(table)) == "cifs"
    assert filesystem_of("/srv/dev/jobs.db", str(table)) == "tmpfs"
    assert filesystem_of("/srv/device/jobs.db", str(table)) == "ext4"
    assert filesystem_of("/srv/jobs.db", str(tmp_path / "missing")) == ""


# --- connections ----------------------------------------------------------------------------


def test_a_connection_is_durable_and_patient_only_on_purpose(connection: apsw.Connection) -> None:
    settings = {
        name: connection.pragma(name)
        for name in ("journal_mode", "synchronous", "mmap_size", "foreign_keys", "busy_timeout")
    }
    assert settings == {
        "journal_mode": "wal",
        "synchronous": 2,
        "mmap_size": 0,
        "foreign_keys": 0,
        "busy_timeout": 0,
    }
    assert connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, -1) == 1


def test_normal_durability_has_to_be_asked_for(files: DatabaseFiles) -> None:
    connection = connect(files.path, durability="normal")
    assert connection.pragma("synchronous") == 1
    disconnect(connection)


def test_a_reader_cannot_write(files: DatabaseFiles, connection: apsw.Connection) -> None:
    connection.execute("CREATE TABLE t (x)")
    reader = connect_reader(files.path)
    with pytest.raises(apsw.ReadOnlyError):
        reader.execute("INSERT INTO t VALUES (1)")
    disconnect(reader)


def test_a_connection_never_creates_a_file_by_itself(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable, match=r"jobs\.db cannot be opened"):
        connect(str(tmp_path / "jobs.db"))


async def test_opening_waits_for_whoever_is_creating_the_database(
    files: DatabaseFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    waiting = asyncio.Event()

    def nap(seconds: float) -> None:
        assert 0 < seconds <= 0.002
        loop.call_soon_threadsafe(waiting.set)

    monkeypatch.setattr("windlass._storage.sqlite.io.connection.sleep", nap)
    creator = apsw.Connection(files.path)
    creator.execute("BEGIN EXCLUSIVE")
    opening = asyncio.create_task(asyncio.to_thread(connect, files.path))
    await waiting.wait()
    creator.execute("CREATE TABLE t (x)")
    creator.execute("COMMIT")
    connection = await opening
    assert connection.execute("SELECT count(*) FROM t").get == 0
    creator.close()
    disconnect(connection)


_FORK = """
import gc, os, sys
from pathlib import Path
from windlass._storage.sqlite.io.connection import connect, disconnect

def still_open():
    return sum(str(fd.resolve()) == sys.argv[1] for fd in Path("/proc/self/fd").iterdir())

connection = connect(sys.argv[1])
before = still_open()
if (child := os.fork()) == 0:
    disconnect(connection)
    del connection
    gc.collect()
    os._exit(0 if still_open() == before == 1 else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_forked_child_never_closes_the_connection_of_its_parent(files: DatabaseFiles) -> None:
    done = subprocess.run([sys.executable, "-c", _FORK, files.path], check=False)
    assert done.returncode == 0


def test_a_full_disk_is_named_as_such(connection: apsw.Connection) -> None:
    connection.execute("CREATE TABLE t (x)")
    connection.pragma("max_page_count", connection.pragma("page_count"))
    with pytest.raises(apsw.FullError) as caught:
        connection.execute("INSERT INTO t VALUES (zeroblob(100000))")
    error = translate(caught.value, "jobs.db")
    assert isinstance(error, StorageFull)
    assert "disk that holds jobs.db is full: free some space. Nothing was lost" in str(error)


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (apsw.SQLITE_BUSY, StoreBusy, "locked by another process"),
        (apsw.SQLITE_LOCKED, StoreBusy, "locked by another process"),
        (apsw.SQLITE_IOERR_FSYNC, StorageUnavailable, "Check the disk"),
        (apsw.SQLITE_READONLY, StorageRefused, "permissions"),
        (apsw.SQLITE_READONLY_DBMOVED, StorageReplaced, "restart the process"),
        (apsw.SQLITE_CANTOPEN, StorageRefused, "its folder exists"),
        (apsw.SQLITE_CORRUPT, StorageError, "restore a backup"),
        (apsw.SQLITE_NOTADB, StorageError, "Name another file"),
        (apsw.SQLITE_ERROR, StorageError, "refused a statement"),
    ],
)
def test_every_error_of_sqlite_says_which_file_and_what_to_do(
    code: int, kind: type[StorageError], text: str
) -> None:
    error = apsw.exception_for(code)
    assert isinstance(error, apsw.Error)
    translated = translate(error, "/srv/jobs.db")
    assert type(translated) is kind
    assert "/srv/jobs.db" in str(translated)
    assert text in str(translated)


# --- guard ----------------------------------------------------------------------------------


def test_an_untouched_database_passes_the_guard(
    files: DatabaseFiles, connection: apsw.Connection
) -> None:
    guard = FileGuard(files)
    connection.execute("CREATE TABLE t (x)")
    guard.check()


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
def test_a_deleted_file_is_noticed(
    files: DatabaseFiles, connection: apsw.Connection, suffix: str
) -> None:
    guard = FileGuard(files)
    Path(files.path + suffix).unlink()
    with pytest.raises(StorageReplaced, match=r"deleted or replaced .* restart the process"):
        guard.check()


def test_a_file_that_was_put_in_its_place_is_noticed(
    files: DatabaseFiles, connection: apsw.Connection, tmp_path: Path
) -> None:
    guard = FileGuard(files)
    (tmp_path / "backup").write_bytes(Path(files.path).read_bytes())
    (tmp_path / "backup").rename(files.path)
    with pytest.raises(StorageReplaced):
        guard.check()


@pytest.mark.parametrize("step", [1.0, 2.0])  # ext3 and HFS+, FAT
def test_a_deletion_is_noticed_where_times_have_coarse_steps(
    files: DatabaseFiles, connection: apsw.Connection, monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    real = os.stat
    began = real(Path(files.path).parent).st_mtime

    def coarse(path: str) -> object:
        """Give every change within a step of the first one its time."""
        found = real(path)
        changed = began if found.st_mtime < began + step else found.st_mtime
        return SimpleNamespace(
            st_dev=found.st_dev,
            st_ino=found.st_ino,
            st_nlink=found.st_nlink,
            st_mtime_ns=int(changed * 1e9),
            st_ctime_ns=int(changed * 1e9),
        )

    monkeypatch.setattr(guards, "os", SimpleNamespace(stat=coarse))
    now = datetime.fromtimestamp(began + 0.9 * step, UTC)
    monkeypatch.setattr(guards, "SYSTEM_CLOCK", SimpleNamespace(now=lambda: now))
    guard = FileGuard(files)
    Path(files.wal).unlink()
    with pytest.raises(StorageReplaced):
        guard.check()


def test_a_folder_that_stays_the_same_spares_looks_at_the_files(
    files: DatabaseFiles, connection: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = SYSTEM_CLOCK.now() + timedelta(seconds=3)
    monkeypatch.setattr(guards, "SYSTEM_CLOCK", SimpleNamespace(now=lambda: later))
    monkeypatch.setattr(guards, "monotonic", lambda: 1.0)
    guard = FileGuard(files)
    looks: list[str] = []
    monkeypatch.setattr(guards, "file_identity_of", looks.append)
    guard.check()
    assert looks == []


# --- locks ----------------------------------------------------------------------------------


def test_a_turn_excludes_every_other_holder_until_it_ends(files: DatabaseFiles) -> None:
    turn = FileWriteLock(files)
    other = os.open(files.lock, os.O_RDWR)
    with turn, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)
    turn.close()


def test_a_living_worker_is_not_proven_dead(tmp_path: Path) -> None:
    lock = WorkerLock.hold(str(tmp_path / "workers"), "w1")
    assert not is_holder_dead(str(tmp_path / "workers"), "w1", lock.device, lock.inode)
    lock.release()


def test_a_worker_that_left_in_order_proves_nothing(tmp_path: Path) -> None:
    lock = WorkerLock.hold(str(tmp_path), "w1")
    lock.release()
    lock.release()
    assert not (tmp_path / "w1").exists()
    assert not is_holder_dead(str(tmp_path), "w1", lock.device, lock.inode)


def test_a_killed_worker_is_proven_dead_until_it_is_forgotten(tmp_path: Path) -> None:
    script = """
import sys
from windlass._storage.shared.worker_locks import WorkerLock
lock = WorkerLock.hold(sys.argv[1], "w1")
print(lock.device, lock.inode, flush=True)
sys.stdin.read()
"""
    worker = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    device, inode = map(int, worker.stdout.readline().split())
    assert not is_holder_dead(str(tmp_path), "w1", device, inode)

    worker.kill()
    worker.wait()
    worker.stdin.close()
    worker.stdout.close()

    assert not is_holder_dead(str(tmp_path), "w1", device, inode + 1)  # another file of that name
    assert not is_holder_dead(str(tmp_path), "w2", device, inode)
    assert not is_holder_dead(str(tmp_path), "../w1", device, inode)
    assert is_holder_dead(str(tmp_path), "w1", device, inode)
    assert is_holder_dead(str(tmp_path), "w1", device, inode)
    forget(str(tmp_path), "w1")
    assert not is_holder_dead(str(tmp_path), "w1", device, inode)


def test_a_forked_child_does_not_keep_its_dead_parent_alive(tmp_path: Path) -> None:
    script = """
import os, sys
from windlass._storage.shared.worker_locks import WorkerLock
lock = WorkerLock.hold(sys.argv[1], "w1")
if os.fork() == 0:
    lock.release()  # it is not the child's to release
    print(os.getpid(), lock.device, lock.inode, flush=True)
    sys.stdin.read()
    os._exit(0)
os.kill(os.getpid(), 9)
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    child, device, inode = map(int, parent.stdout.readline().split())
    parent.wait()
    os.kill(child, 0)  # it lives
    assert is_holder_dead(str(tmp_path), "w1", device, inode)
    parent.stdin.close()
    parent.stdout.close()


def test_a_worker_id_is_never_a_path(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is no worker id"):
        WorkerLock.hold(str(tmp_path), "../../etc/passwd")


def test_a_worker_id_is_not_used_twice(tmp_path: Path) -> None:
    lock = WorkerLock.hold(str(tmp_path), "w1")
    with pytest.raises(StorageUnavailable, match="File exists"):
        WorkerLock.hold(str(tmp_path), "w1")
    lock.release()


def test_inodes_beyond_63_bits_fit_into_a_signed_column() -> None:
    assert as_signed_64(2**64 - 1) == 2**63 - 1
    assert as_signed_64(7) == 7


def test_the_boot_id_is_stable_and_unknown_where_the_system_has_none(tmp_path: Path) -> None:
    assert boot_id() == boot_id() != ""
    assert boot_id(str(tmp_path / "none")) == "unknown"
