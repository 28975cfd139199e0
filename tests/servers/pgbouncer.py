"""PgBouncer before a PostgreSQL server, where its binary is on the machine."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from pathlib import Path

from tests.servers.binaries import PATIENCE, free_port, give, launch, until_ready

_ELSEWHERE = "/usr/sbin:/usr/local/sbin:/opt/homebrew/bin"
"""Packages put it where an ordinary user's path does not lead."""


def find_pgbouncer() -> str | None:
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:{_ELSEWHERE}")


class PgBouncer:
    """In transaction mode it gives each transaction whichever connection is free, so nothing on a
    session lasts.
    """

    def __init__(
        self,
        folder: Path,
        binary: str,
        upstream_port: int,
        *,
        mode: str = "transaction",
        size: int = 4,
    ) -> None:
        self.port = free_port()
        self.folder = folder / f"pool-{self.port}"
        self.folder.mkdir()
        self._log = self.folder / "log"
        config = self.folder / "pgbouncer.ini"
        config.write_text(
            f"[databases]\n* = host=127.0.0.1 port={upstream_port} user=postgres\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self.port}\n"
            f"unix_socket_dir =\nauth_type = any\npool_mode = {mode}\n"
            f"default_pool_size = {size}\nmax_client_conn = 500\n",
            encoding="utf-8",
        )
        for path in (self.folder, config):
            give(path)
        self._process = launch(
            [binary, "-q", config], self.folder, self._log, dies_by=signal.SIGKILL
        )
        until_ready(self._is_ready, self._process, self._log)

    def _is_ready(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1.0).close()
        except OSError:
            return False
        return True

    def url_of(self, direct: str) -> str:
        """The same database, through the pool."""
        database = direct.rpartition("/")[2]
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    @property
    def words(self) -> str:
        return Path(self._log).read_text(encoding="utf-8", errors="replace")

    def close(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE)
        shutil.rmtree(self.folder, ignore_errors=True)
