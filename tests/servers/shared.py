"""The servers that all tests of one run share, whichever process a test runs in."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.servers.binaries import PATIENCE, ServerFailed, new_folder
from tests.servers.keeper import SOCKET

_ROOT = Path(__file__).parents[2]


class SharedServers:
    """The way to the warden, from any process of the run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def postgres(self) -> str:
        """The URL of the PostgreSQL server; its own database is nobody's."""
        return str(self._ask("postgres")["url"])

    def valkey(self) -> tuple[str, int]:
        """The URL of the Valkey server, and a numbered database that nobody else was given."""
        answer = self._ask("valkey")
        return str(answer["url"]), int(answer["database"])

    def _ask(self, what: str) -> dict[str, Any]:
        with self._line() as line:
            line.sendall(what.encode())
            answer = b""
            while part := line.recv(65536):
                answer += part
        parsed: dict[str, Any] = json.loads(answer)
        if "error" in parsed:
            raise ServerFailed(parsed["error"])
        return parsed

    def _line(self) -> socket.socket:
        """A connection to the warden, who may be about to listen."""
        deadline = time.monotonic() + PATIENCE
        while True:
            line = socket.socket(socket.AF_UNIX)
            line.settimeout(3 * PATIENCE)
            try:
                line.connect(str(self.folder / SOCKET))
                return line
            except (FileNotFoundError, ConnectionRefusedError):
                line.close()
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)


class Run(SharedServers):
    """The run itself: owned by the process that began it."""

    def __init__(self) -> None:
        super().__init__(new_folder("servers", in_memory=True))
        self._warden: subprocess.Popen[bytes] | None = None

    def open(self) -> None:
        """Start the warden, which starts nothing before it is asked."""
        if self._warden is not None:
            return
        self._warden = subprocess.Popen(
            [sys.executable, "-m", "tests.servers.keeper", str(self.folder)],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the tests; they may still need the servers
        )

    def _ask(self, what: str) -> dict[str, Any]:
        self.open()
        return super()._ask(what)

    def close(self) -> None:
        """Stop everything, and wait until it has stopped."""
        if self._warden is not None:
            assert self._warden.stdin is not None
            self._warden.stdin.close()
            self._warden.wait(2 * PATIENCE)
        shutil.rmtree(self.folder, ignore_errors=True)
