"""The repository's text: no hosts that serve packages or scripts, no paths of one machine."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.architecture.source import ROOT

# Written in halves, so that this file does not hold what it forbids. Pages load nothing from
# elsewhere, and where packages come from is the reader's own choice.
HOSTS = [
    "py" + "pi.org",
    "python" + "hosted.org",
    "npm" + "js.",
    "yarn" + "pkg.com",
    "js" + "delivr",
    "un" + "pkg.com",
    "cdn" + "js.",
    "esm" + ".sh",
    "sky" + "pack.dev",
    "fonts.google" + "apis",
    "g" + "static.com",
    "boot" + "strapcdn",
    "docker" + ".io",
    "gh" + "cr.io",
    "quay" + ".io",
    "crates" + ".io",
    "ana" + "conda.org",
]
HOST = re.compile("|".join(re.escape(host) for host in HOSTS) + r"|\bcdn\.\w", re.IGNORECASE)
MACHINE_PATH = re.compile(
    r"(?<![\w.$~}*/-])/(?:" + "|".join(["wo" + "rk", "ro" + "ot"]) + r")/[\w.]"
)

# Texts that are not ours to change.
FOREIGN = {"LICENSE"}


def tracked_files() -> list[Path]:
    """What git knows; in an unpacked source archive, everything that is not hidden."""
    if (ROOT / ".git").exists():
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
        )
        files = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        files = [f for f in ROOT.rglob("*") if not f.relative_to(ROOT).as_posix().startswith(".")]
    return [f for f in files if f.is_file() and f.name not in FOREIGN]


def mentions(pattern: re.Pattern[str]) -> list[str]:
    found = []
    for file in tracked_files():
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # an image or another binary file
        for number, line in enumerate(text.splitlines(), 1):
            if pattern.search(line):
                found.append(f"{file.relative_to(ROOT)}:{number}: {line.strip()[:80]}")
    return found


def test_no_registry_and_no_content_network_is_named() -> None:
    assert mentions(HOST) == []


def test_no_path_of_one_machine_is_written_down() -> None:
    assert mentions(MACHINE_PATH) == []


@pytest.mark.parametrize("host", HOSTS)
def test_a_forbidden_host_is_found_in_a_link(host: str) -> None:
    assert HOST.search(f'<script src="https://{host}/htmx">')


def test_machine_paths_are_distinguished_from_ordinary_ones() -> None:
    assert MACHINE_PATH.search("see /" + "work/main")
    assert MACHINE_PATH.search("'/" + "root/.cache'")
    assert not MACHINE_PATH.search("docs/" + "work/start.md and net" + "work/x and ./" + "work/x")
