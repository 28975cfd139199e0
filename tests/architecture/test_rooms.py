"""Folders stay small and say what they hold, and users import public names only."""

from __future__ import annotations

import ast
import importlib
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from types import ModuleType

import pytest

from tests.architecture import exceptions
from tests.architecture.source import ROOT, Module, definitions, modules, parse

MODULES_PER_FOLDER = 15

DOORS = frozenset(
    {
        "windlass",
        "windlass.admin",
        "windlass.errors",
        "windlass.observe",
        "windlass.plugins",
        "windlass.storage",
        "windlass.testing",
        "windlass.testing.conformance",
        "windlass.web",
    }
)
"""What users import from, besides ``windlass.integrations``."""

PUBLIC_TREES = (
    "windlass.integrations",
    "windlass.testing.conformance",
)
"""Packages whose modules are public unless an underscore says otherwise."""

LOADED_BY_NAME = frozenset({"windlass.__main__", "windlass.testing.fixtures"})
"""Modules that users do not import: ``python -m windlass`` and pytest load them."""

FULLER: Mapping[str, str] = {
    "src/windlass/_app/blocking_admin": "generated: one module for each part of the admin",
}
"""Folders that may hold more modules, each with its reason."""

SAME_NAME: Mapping[str, str] = {
    "Throttled": "a handler raises the exception, and the worker makes the outcome of it: one "
    "thing on both sides",
    "WindlassBackend": "Django's settings name it by its module: one for django.tasks, one for the "
    "package django-tasks",
}
"""Classes that may share a name, each with its reason."""

_FENCE = re.compile(r"^[ \t]*```(?:python|py)\b[^\n]*\n(.*?)^[ \t]*```", re.MULTILINE | re.DOTALL)
_SENTENCE = re.compile(r"[.!?](?=\s|$)")


def crowded(folders: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Every folder with more modules than a room holds."""
    for folder in folders:
        count = sum(file.name != "__init__.py" for file in folder.glob("*.py"))
        if count > MODULES_PER_FOLDER:
            yield folder.relative_to(ROOT).as_posix(), f"{count} modules"


def folders() -> list[Path]:
    trees = [ROOT / "src" / "windlass", ROOT / "tests", ROOT / "benchmarks"]
    return [folder for tree in trees for folder in [tree, *tree.rglob("*")] if folder.is_dir()]


def silent_packages(packages: Iterable[Module]) -> Iterator[tuple[str, str]]:
    """Every package whose docstring has fewer than two sentences."""
    for module in packages:
        said = ast.get_docstring(module.tree) or ""
        if len(_SENTENCE.findall(said)) < 2:
            yield module.path, f"its docstring is {said!r}"


def packages() -> list[Module]:
    return [module for module in modules() if module.path.endswith("__init__.py")]


def private_imports(text: str) -> Iterator[str]:
    """Every name that ``text`` imports and that is not public."""
    for node in ast.walk(_tree(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if not _is_door(alias.name))
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (
                f"{node.module}.{alias.name}"
                for alias in node.names
                if not _is_public(node.module, alias.name)
            )


def _is_door(module: str) -> bool:
    if module.partition(".")[0] != "windlass" or module in DOORS:
        return True
    return module.startswith("windlass.integrations.") and not _is_marked(module)


def _is_marked(module: str) -> bool:
    return any(part.startswith("_") for part in module.split("."))


def _is_public(module: str, name: str) -> bool:
    if module.partition(".")[0] != "windlass":
        return True
    if f"{module}.{name}" in DOORS:
        return True
    return _is_door(module) and name in importlib.import_module(module).__all__


def missing_names(door: ModuleType) -> list[str]:
    """Every name of ``__all__`` that the module lacks or lists twice."""
    names = list(door.__all__)
    return [name for name in names if not hasattr(door, name) or names.count(name) > 1]


def shown_code() -> Iterator[tuple[str, str]]:
    """Every piece of Python that a user reads, and where."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for block in _FENCE.findall(page.read_text(encoding="utf-8")):
            yield page.relative_to(ROOT).as_posix(), block
    for file in sorted((ROOT / "examples").rglob("*.py")):
        yield file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")


def shared_names(sources: Iterable[Module]) -> dict[str, str]:
    """Every class name, underscores aside, that stands for more than one class."""
    found = defaultdict(list)
    for module in sources:
        for name, node in definitions(module.tree):
            if isinstance(node, ast.ClassDef) and "." not in name:
                found[node.name.lstrip("_")].append(module.path)
    return {name: ", ".join(paths) for name, paths in found.items() if len(paths) > 1}


def unmarked(sources: Iterable[Module]) -> Iterator[str]:
    """Every module that is neither public nor visibly private."""
    for module in sources:
        parts = PurePosixPath("windlass", module.path).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        public = name in DOORS | LOADED_BY_NAME or name.startswith(PUBLIC_TREES)
        if not public and not _is_marked(name):
            yield name


def test_no_folder_holds_more_modules_than_a_room() -> None:
    exceptions.check(dict(crowded(folders())), FULLER)


def test_every_package_says_what_lives_there_and_what_does_not() -> None:
    assert dict(silent_packages(packages())) == {}


@pytest.mark.parametrize("where", sorted({where for where, _ in shown_code()}))
def test_documentation_and_examples_import_public_names_only(where: str) -> None:
    code = [code for place, code in shown_code() if place == where]
    found = [name for block in code for name in private_imports(block)]
    assert not found, f"{where} imports what is not public: {', '.join(found)}"


@pytest.mark.parametrize("door", sorted(DOORS))
def test_every_name_that_a_door_lists_exists_there(door: str) -> None:
    assert missing_names(importlib.import_module(door)) == []


def test_one_class_name_means_one_thing() -> None:
    exceptions.check(shared_names(modules()), SAME_NAME)


def test_every_module_is_public_or_visibly_private() -> None:
    assert list(unmarked(modules())) == []


def test_a_crowded_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    for number in range(MODULES_PER_FOLDER + 1):
        (tmp_path / f"part_{number}.py").touch()
    assert dict(crowded([tmp_path])) == {".": "16 modules"}


def test_a_package_that_says_one_sentence_is_found() -> None:
    sample = parse('"""Everything about jobs."""', "jobs/__init__.py")
    assert [name for name, _ in silent_packages([sample])] == ["jobs/__init__.py"]


@pytest.mark.parametrize(
    "line",
    [
        "from windlass._tasks.task import Task",
        "import windlass._core",
        "from windlass import _core",
        "from windlass.admin import no_such_name",
        "from windlass.integrations.django._reading import Reader",
        "from windlass.integrations.fastapi import no_such_name",
        "    await app.start()\n    from windlass._tasks.task import Task",
    ],
)
def test_a_private_import_is_found(line: str) -> None:
    assert list(private_imports(line))


@pytest.mark.parametrize(
    "line",
    [
        "from windlass import Windlass, errors",
        "from windlass.testing import conformance",
        "from windlass.integrations.fastapi import lifespan",
        "import asyncio",
    ],
)
def test_a_public_import_passes(line: str) -> None:
    assert list(private_imports(line)) == []


def test_a_listed_name_that_does_not_exist_is_found() -> None:
    door = ModuleType("door")
    door.__dict__.update(__all__=["Job", "Lost", "Twice", "Twice"], Job=int, Twice=int)
    assert missing_names(door) == ["Lost", "Twice", "Twice"]


def test_two_classes_of_one_name_are_found() -> None:
    first, second = parse("class Line: ...", "a.py"), parse("class _Line: ...", "b.py")
    assert shared_names([first, second]) == {"Line": "a.py, b.py"}


def test_a_class_inside_a_condition_is_seen() -> None:
    first = parse("if VERSION > 5:\n    class Line: ...", "a.py")
    assert shared_names([first, parse("class Line: ...", "b.py")]) == {"Line": "a.py, b.py"}


def test_an_unmarked_module_is_found() -> None:
    assert list(unmarked([parse("", "runtime/engine.py")])) == ["windlass.runtime.engine"]


def _tree(block: str) -> ast.Module:
    """Parse a block, which may be indented and hold ``await`` outside a function."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST
    tree = compile(textwrap.dedent(block), "<shown code>", "exec", flags=flags)
    assert isinstance(tree, ast.Module)
    return tree
