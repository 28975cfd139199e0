"""Which Python files of an app have changed."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

__all__ = ["FileChanges", "source_folders"]

_NOT_OURS = frozenset({"__pycache__", "node_modules", "site-packages"})
_ENVIRONMENT = "pyvenv.cfg"
"""A folder with this file is a virtual environment."""

Stamps = Mapping[Path, tuple[int, int]]


def source_folders(target: str) -> list[Path]:
    """Return the folders of an app's code: its package, or the folder that its module is in.

    Nothing is imported: code that fails is watched, too.
    """
    here = Path.cwd()
    if str(here) not in sys.path:
        sys.path.insert(0, str(here))
    name = target.partition(":")[0].partition(".")[0]
    try:
        spec = importlib.util.find_spec(name) if name else None
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin in (None, "built-in", "frozen"):
        places = [] if spec is None else list(spec.submodule_search_locations or ())
        return [Path(place) for place in places] or [here]
    return [Path(str(spec.origin)).parent]


class FileChanges:
    """The Python files below some folders, compared with how they were."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """Remember the files as they are now."""
        self._folders = folders
        self._known: Stamps = self._read()

    def since(self) -> list[Path]:
        """Return the files that were added, changed or removed since the last call."""
        before, self._known = self._known, self._read()
        names = before.keys() | self._known.keys()
        return sorted(name for name in names if before.get(name) != self._known.get(name))

    def _read(self) -> Stamps:
        stamps: dict[Path, tuple[int, int]] = {}
        for folder in self._folders:
            for file in _python_files(folder):
                try:
                    found = file.stat()
                except OSError:
                    continue  # removed meanwhile: the next look sees it
                stamps[file] = (found.st_mtime_ns, found.st_size)
        return stamps


def _python_files(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        if _ENVIRONMENT in files:
            folders.clear()
            continue
        folders[:] = [name for name in folders if name[0] != "." and name not in _NOT_OURS]
        yield from (Path(place, name) for name in files if name.endswith(".py"))
