"""``app.blocking.admin`` is generated, up to date, and has all that ``app.admin`` has."""

from __future__ import annotations

import ast
import inspect
import runpy
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.architecture.source import PACKAGE, ROOT
from windlass import Windlass

FOLDER = PACKAGE / "_app" / "blocking_admin"
GENERATE: Callable[[], Mapping[str, str]] = runpy.run_path(
    str(ROOT / "scripts" / "blocking_admin.py")
)["modules"]


def stale(folder: Path, generated: Mapping[str, str]) -> list[str]:
    """Every module that is missing, left over or different; its layout aside."""
    there = {file.name: file.read_text(encoding="utf-8") for file in folder.glob("*.py")}
    del there["__init__.py"]
    trees = [
        {name: ast.dump(ast.parse(text)) for name, text in a.items()} for a in (there, generated)
    ]
    return sorted(name for name in {*there, *generated} if trees[0].get(name) != trees[1].get(name))


def unlike(part: type, twin: type) -> list[str]:
    """Every public method that ``twin`` lacks, adds, or has with another signature or docstring."""
    theirs, ours = _public(part), _public(twin)
    return sorted(name for name in {*theirs, *ours} if theirs.get(name) != ours.get(name))


def _public(part: type) -> dict[str, tuple[str, str]]:
    return {
        name: (str(inspect.signature(method)), inspect.getdoc(method) or "")
        for name, method in inspect.getmembers(part, inspect.isfunction)
        if not name.startswith("_")
    }


def parts_of(admin: object) -> dict[str, type]:
    return {name: type(part) for name, part in vars(admin).items() if not name.startswith("_")}


def test_the_generated_modules_are_up_to_date() -> None:
    assert stale(FOLDER, GENERATE()) == [], "run `make generate`"


def test_every_part_of_the_admin_has_a_blocking_twin() -> None:
    app = Windlass("memory://")
    theirs, ours = parts_of(app.admin), parts_of(app.blocking.admin)
    assert list(theirs) == list(ours)
    assert len(theirs) == 15
    found = {name: unlike(part, ours[name]) for name, part in theirs.items()}
    assert {name: methods for name, methods in found.items() if methods} == {}


def test_a_module_that_is_changed_lost_or_left_over_is_found(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(FOLDER, tmp_path / "twin"))
    (folder / "audit.py").write_text("class BlockingAuditAdmin: ...", encoding="utf-8")
    (folder / "jobs.py").unlink()
    (folder / "old.py").touch()
    assert stale(folder, GENERATE()) == ["audit.py", "jobs.py", "old.py"]


@pytest.mark.parametrize(
    "twin",
    [
        "class Twin: ...",
        "class Twin:\n    def pause(self, queue: str) -> None:\n        '''Pause.'''",
        "class Twin:\n    def pause(self, name: str) -> None:\n        '''Stop.'''",
        "class Twin:\n    def pause(self, name: str) -> int:\n        '''Pause.'''",
    ],
)
def test_a_method_that_is_missing_or_different_is_found(twin: str) -> None:
    class Part:
        async def pause(self, name: str) -> None:
            """Pause."""

    names: dict[str, type] = {}
    exec(f"from __future__ import annotations\n{twin}", names)  # noqa: S102 -- one of four lines above
    assert unlike(Part, names["Twin"]) == ["pause"]
