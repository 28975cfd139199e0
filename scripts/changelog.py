"""Move the fragments of ``changelog.d`` into CHANGELOG.md, under *Unreleased*: ``make changelog``.

A fragment is ``NAME.SECTION.md`` with one or more list items. Its items go to the end of their
section, and the fragment is deleted.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SECTIONS = ("added", "changed", "deprecated", "removed", "fixed", "security")
_UNRELEASED = "## Unreleased"


def problem_of(file: Path) -> str | None:
    """Return why a file is no fragment; None if it is one."""
    _name, _, section = file.stem.rpartition(".")
    if section not in SECTIONS or not _name or file.suffix != ".md":
        return f"{file.name}: name it NAME.SECTION.md, with a section of {', '.join(SECTIONS)}"
    lines = file.read_text(encoding="utf-8").splitlines()
    if not lines or not all(line.startswith(("- ", "  ")) for line in lines):
        return f"{file.name}: write list items alone, each beginning with '- '"
    return None


def fragments_in(folder: Path) -> list[Path]:
    """Return every file of the folder but its README, in the order of their names."""
    return sorted(file for file in folder.iterdir() if file.name != "README.md")


def merged(changelog: str, items: Mapping[str, Sequence[str]]) -> str:
    """Return the changelog with the items at the end of their sections of *Unreleased*.

    A section that is missing is added after the others.
    """
    head, found, rest = changelog.partition(f"{_UNRELEASED}\n")
    if not found:
        message = f"CHANGELOG.md has no line '{_UNRELEASED}': add it above the newest version"
        raise ValueError(message)
    split = re.search(r"^## ", rest, re.MULTILINE)
    cut = len(rest) if split is None else split.start()
    unreleased, older = rest[:cut].rstrip("\n"), rest[cut:]
    for section, lines in items.items():
        title = f"### {section.capitalize()}"
        begun = re.search(rf"^{title}\n", unreleased, re.MULTILINE)
        if begun is None:
            unreleased += f"\n\n{title}\n\n" + "\n".join(lines)
            continue
        following = re.search(r"^### ", unreleased[begun.end() :], re.MULTILINE)
        end = len(unreleased) if following is None else begun.end() + following.start()
        before, after = unreleased[:end].rstrip("\n"), unreleased[end:]
        unreleased = f"{before}\n" + "\n".join(lines) + (f"\n\n{after}" if after else "")
    return f"{head}{found}{unreleased}\n" + (f"\n{older}" if older else "")


def main() -> int:
    files = fragments_in(ROOT / "changelog.d")
    problems = [problem for file in files if (problem := problem_of(file))]
    if problems:
        print("\n".join(problems), file=sys.stderr)
        return 1
    items: dict[str, list[str]] = {}
    for section in SECTIONS:
        for file in files:
            if file.stem.endswith(f".{section}"):
                lines = file.read_text(encoding="utf-8").splitlines()
                items.setdefault(section, []).extend(lines)
    changelog = ROOT / "CHANGELOG.md"
    changelog.write_text(merged(changelog.read_text(encoding="utf-8"), items), encoding="utf-8")
    for file in files:
        file.unlink()
    print(f"windlass: moved {len(files)} fragments into CHANGELOG.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
