"""Check a tag before its version is published: ``python scripts/check_release.py v0.2.0``.

Tag, package, changelog and project URLs must agree. It needs nothing but Python.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def problems_of(tag: str, repository: str, root: Path = ROOT) -> list[str]:
    """Return what is missing before this tag may be published."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    source = (root / "src" / "windlass" / "_version.py").read_text(encoding="utf-8")
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    version = project["version"]
    found = []
    if tag != f"v{version}":
        found.append(f"the tag is {tag}, and pyproject.toml says {version}")
    if f'"{version}"' not in source:
        found.append(f"src/windlass/_version.py does not say {version}")
    if not re.search(rf"^## {re.escape(version)}\b", changelog, re.MULTILINE):
        found.append(f"CHANGELOG.md has no section '## {version}': rename *Unreleased*")
    waiting = [file for file in (root / "changelog.d").iterdir() if file.name != "README.md"]
    if waiting:
        found.append(f"changelog.d has {len(waiting)} fragments: run make changelog")
    if repository not in project.get("urls", {}).values():
        found.append(f"[project.urls] in pyproject.toml does not name {repository}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tag")
    parser.add_argument("--repository", required=True, help="Address of the repository.")
    given = parser.parse_args()
    found = problems_of(given.tag, given.repository)
    for problem in found:
        print(f"windlass: {problem}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
