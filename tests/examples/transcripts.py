"""Terminal sessions that a page shows: run their commands and compare the output.

A session is a block without a language whose first line begins with ``$ ``. Times, sizes, ids and
versions may differ from the page. The order of lines may differ too, since jobs run side by side.
A line ``…`` on the page stands for lines that it leaves out.

``python -m tests.examples.transcripts docs/tutorial/1-first-job.md`` prints the real output.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

FILE = re.compile(r"^```(?:python|toml) title=\"([^\"]+)\"\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SESSION = re.compile(r"^```\n(\$ .*?)^```$", re.MULTILINE | re.DOTALL)
ID = re.compile(r"\b[0-9a-f]{32}\b|\b[0-9a-f]{8}…[0-9a-f]{6}\b")
CHANGING = re.compile(
    r"\b[0-9a-f]{32}\b|\b[0-9a-f]{8}(?:…[0-9a-f]{6})?\b|\bw[0-9a-f]{12}\b"  # ids
    r"|\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d"
    r"|\b\d+(?:\.\d+)? ?(?:ms|s|m|h|d)\b(?: \d+ [smh]\b)*|\b\d+(?:\.\d+)?/s"
    r"|(?:\d+(?:\.\d+)? )?[KMGT]?i?B\b"
    r"|\bactive +(?:now|in [\d.]+ m?s)\b"  # on a busy machine a slot may have come meanwhile
    r"|none yet|\d+ jobs removed|\bdone\b"  # a chore may have run
    r"|(?:pid|SQLite|PostgreSQL|windlass|event loop) [\w.]+|\b[\w.]+:\d+/\w+|\(\w+\)"
)
HOME = "/home/you/shop"
"""The folder of the project on the pages."""


class Command(NamedTuple):
    """One line after a ``$``, and the lines that the page shows below it."""

    words: list[str]
    shown: list[str]


def sessions(page: Path) -> list[Command]:
    """Return the commands of a page in their order."""
    found = []
    for text in SESSION.findall(page.read_text(encoding="utf-8")):
        for line in text.splitlines():
            if line.startswith("$ "):
                found.append(Command(shlex.split(line.removeprefix("$ "), comments=True), []))
            elif line.strip():
                found[-1].shown.append(line)
    return found


def files(pages: Iterable[Path]) -> dict[str, str]:
    """Return the files as they are after these pages. Blocks of one page and title are one file."""
    written: dict[str, str] = {}
    for page in pages:
        here: dict[str, str] = {}
        for name, text in FILE.findall(page.read_text(encoding="utf-8")):
            here[name] = f"{here[name]}\n\n{text}" if name in here else text
        written |= here
    return written


def run(command: Command, folder: Path, environment: Mapping[str, str]) -> list[str]:
    """Run one command in the folder and return its lines."""
    program, *rest = command.words
    python = [sys.executable, "-W", "error"]
    start = {
        "python": python,
        "windlass": [*python, "-m", "windlass"],
        "pytest": [*python, "-m", "pytest", "-p", "no:cacheprovider"],
    }[program]
    ran = subprocess.run(
        [*start, *rest],
        cwd=folder,
        env={**os.environ, **environment, "COLUMNS": "200", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    text = ran.stdout.replace(str(folder), HOME).replace(folder.name, "shop")
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def plain(line: str) -> str:
    """Remove what differs from run to run."""
    return re.sub(r"─+", "─", re.sub(r"\s+", " ", CHANGING.sub("~", line))).strip()


def compare(shown: Iterable[str], real: Iterable[str]) -> dict[str, str]:
    """Return the real id of every id that the page shows. Raise if a line is missing or new."""
    left = list(real)
    ids: dict[str, str] = {}
    whole = True
    for line in shown:
        if line.strip() == "…":
            whole = False
            continue
        match = next((one for one in left if plain(one) == plain(line)), None)
        assert match is not None, f"not printed: {line}\nprinted: {left}"
        left.remove(match)
        ids |= dict(zip(ID.findall(line), ID.findall(match), strict=True))
    assert not (whole and left), f"not on the page: {left}"
    return ids


def follow(page: Path, folder: Path, environment: Mapping[str, str], *, show: bool = False) -> None:
    """Run the commands of a page in a folder that has its files."""
    ids: dict[str, str] = {}
    for command in sessions(page):
        words = [ids.get(word, word) for word in command.words]
        real = run(command._replace(words=words), folder, environment)
        if show:
            sys.stdout.write("\n".join(["$ " + shlex.join(words), *real, ""]))
            ids |= dict(
                zip(
                    ID.findall("\n".join(command.shown)),
                    ID.findall("\n".join(real)),
                    strict=False,
                )
            )
        else:
            ids |= compare(command.shown, real)


if __name__ == "__main__":
    chapter = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as project:
        before = [page for page in chapter.parent.glob("*.md") if page.name <= chapter.name]
        for name, text in files(sorted(before)).items():
            (Path(project) / name).write_text(text, encoding="utf-8")
        follow(chapter, Path(project), {}, show=True)
