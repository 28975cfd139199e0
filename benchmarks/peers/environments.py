"""A virtual environment for each job system, in ``.venv-peers``.

They cannot share one: arq wants redis-py below 6, SAQ one below 8, and Taskiq one from 8 on. With
its own environment each system also gets the newest libraries that it allows.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

from benchmarks.peers.catalogue import Entry

__all__ = ["FOLDER", "ROOT", "InstallFailed", "python_of"]

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".venv-peers"


class InstallFailed(Exception):
    """pip could not install a job system; its last lines are in the text."""


def python_of(entry: Entry) -> Path:
    """Return the interpreter of an entry's environment; make or renew that environment first."""
    folder = FOLDER / entry.library
    python, stamp = folder / "bin" / "python", folder / ".installed"
    wanted = "\n".join(entry.requirements)
    if not _is_current(stamp, wanted):
        venv.create(folder, symlinks=True)
        _install(python, entry)
        stamp.write_text(wanted, encoding="utf-8")
    return python


def _is_current(stamp: Path, wanted: str) -> bool:
    # pyproject.toml says what Windlass itself needs.
    return (
        stamp.exists()
        and stamp.read_text(encoding="utf-8") == wanted
        and stamp.stat().st_mtime > (ROOT / "pyproject.toml").stat().st_mtime
    )


def _install(python: Path, entry: Entry) -> None:
    command = [sys.executable, "-m", "pip", "--python", str(python), "-qq", "install"]
    done = subprocess.run(
        [*command, "--disable-pip-version-check", *entry.requirements],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise InstallFailed(f"{entry.title} could not be installed:\n{done.stderr[-2000:]}")
