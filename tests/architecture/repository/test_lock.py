"""The lock file has a version for everything that pyproject.toml asks for, and it is allowed."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.architecture.source import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
LOCKED_GROUPS = ("test", "lint", "docs", "dev")


def asked_for() -> Iterator[Requirement]:
    groups: dict[str, list[Any]] = PROJECT["dependency-groups"]
    extras: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
    lines = [
        *PROJECT["project"]["dependencies"],
        *(line for extra in extras.values() for line in extra),
        *(line for name in LOCKED_GROUPS for line in groups[name] if isinstance(line, str)),
    ]
    yield from (one for line in lines if (one := Requirement(line)).name != "windlass")


def unmet(lock: str) -> list[str]:
    versions = re.findall(r"^([\w.-]+)==([^ ;\\]+)", lock, re.MULTILINE)
    return sorted(
        {
            str(asked)
            for asked in asked_for()
            if not any(
                canonicalize_name(name) == canonicalize_name(asked.name)
                and asked.specifier.contains(version, prereleases=True)
                for name, version in versions
            )
        }
    )


def test_the_lock_file_is_up_to_date() -> None:
    assert unmet(LOCK) == [], "run `make lock`"


def test_a_missing_and_an_old_version_are_found() -> None:
    shortened = re.sub(r"^msgspec==.*\n", "", LOCK, flags=re.MULTILINE)
    old = re.sub(r"^click==\S+", "click==7.0", shortened, flags=re.MULTILINE)
    assert {one.partition(">")[0] for one in unmet(old)} == {"click", "msgspec"}


def test_every_version_has_its_hashes() -> None:
    entries = re.split(r"\n(?=\S)", LOCK.strip())
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []
