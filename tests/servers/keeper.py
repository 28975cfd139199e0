"""The process that keeps the servers of one test run: it starts them when first asked.

It is a child of the process that began the run, and ends with it: its standard input is a pipe
that the kernel closes however that process went. Every test process asks it through a socket.
"""

from __future__ import annotations

import json
import selectors
import shutil
import socket
import sys
from pathlib import Path

from tests.servers.binaries import ServerFailed
from tests.servers.postgres import PostgresServer
from tests.servers.valkey import DATABASES, ValkeyServer

SOCKET = "ask"


class Warden:
    """Answers one question after the other; a second asker waits for the first one's server."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._postgres: PostgresServer | None = None
        self._valkey: ValkeyServer | None = None
        self._given = 0

    def run(self) -> None:
        """Until nobody holds the other end of standard input."""
        line = socket.socket(socket.AF_UNIX)
        line.bind(str(self._folder / SOCKET))
        line.listen(64)
        with selectors.DefaultSelector() as selector, line:
            selector.register(sys.stdin, selectors.EVENT_READ)
            selector.register(line, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select()}
                if sys.stdin in ready:
                    return
                asker, _ = line.accept()
                with asker:
                    asker.sendall(self._answer(asker.recv(64).decode()).encode())

    def close(self) -> None:
        """Stop what was started."""
        for server in (self._postgres, self._valkey):
            if server is not None:
                server.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answer(self, asked: str) -> str:
        try:
            match asked:
                case "postgres":
                    if self._postgres is None:
                        self._postgres = PostgresServer(self._folder / "postgres")
                    return json.dumps({"url": self._postgres.url})
                case "valkey":
                    if self._valkey is None:
                        self._valkey = ValkeyServer(self._folder / "valkey")
                    self._given += 1
                    number = 1 + self._given % (DATABASES - 1)  # 0 is for tests with a prefix
                    return json.dumps({"url": self._valkey.url, "database": number})
                case _:
                    return json.dumps({"error": f"{asked!r} is no server"})
        except ServerFailed as error:
            return json.dumps({"error": str(error)})


def main() -> None:
    warden = Warden(Path(sys.argv[1]))
    try:
        warden.run()
    finally:
        warden.close()


if __name__ == "__main__":
    main()
