"""Names in texts exist: modules, files and folders that pages, docstrings and comments mention."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.architecture.source import PACKAGE, ROOT
from tests.architecture.test_repository import tracked_files as list_tracked_files

DOTTED = re.compile(r"(?<![\w./\[-])windlass(?:\.[A-Za-z_]\w*)+")
FOLDERS = re.compile(r"(?<![\w./*-])(?:src|tests|docs|examples|benchmarks)/[\w./*-]*\w")
ROOMS = re.compile(r"(?<![\w./-])_[a-z]+(?:/[\w*]+)+(?:\.\w+)?")
HALF_NAMES = re.compile(r"(?<!`)`(?:core|runtime|seams)\.\w[\w.]*")
FILES = re.compile(r"(?<![\w./*-])[\w/-]+\.(?:py|lua|sql)\b")
# A docstring begins its line; a value in triple quotes is skipped, but for the modules it imports.
TEXT_IN_CODE = re.compile(r'(^ *)?"""(.*?)"""|(?<!["\'\w])#([^\n]*)', re.DOTALL | re.MULTILINE)
IMPORTS = re.compile(r"(?:from|import) windlass[\w.]+")

# `name`, `Name.name` and `name(…)`, between single quotes of this kind: names that code has.
QUOTED = re.compile(r"(?<!`)`([A-Za-z_]\w*(?:\.\w+)*)(?:\([^`\n]*)?`(?!`)")

# Names with dots that are no Python: files, a service, and what a plugin or a mount is called.
OTHER_NAMES = {
    "windlass.toml",
    "windlass.retention",
    "windlass.tidy",
    "windlass.upkeep",
    "windlass.dashboard",
}
# Files of the reader's own project, of other projects, and of Python.
OTHER_FILES = {"tasks.py", "manage.py", "jobs/mail.py"}


tracked_files = functools.cache(list_tracked_files)


class Text(NamedTuple):
    """What a person reads: a whole page, or a docstring or a comment in a Python file."""

    file: Path
    line: int
    text: str


def pages() -> Iterator[Text]:
    for file in tracked_files():
        if file.suffix == ".md" and "vendor" not in file.parts:
            yield Text(file, 1, current_names(file.name, file.read_text(encoding="utf-8")))


def current_names(name: str, text: str) -> str:
    """The page; of tables "Old | New" in the changelog only the new names, line by line."""
    if name != "CHANGELOG.md":
        return text
    return "\n".join(
        line.rstrip("| ").rpartition("|")[2] if line.startswith("|") else line
        for line in text.split("\n")
    )


def comments(file: Path, source: str) -> Iterator[Text]:
    """Docstrings, comments, and imports also inside strings: tests start programs from these."""
    for match in TEXT_IN_CODE.finditer(source):
        text = match[3] if match[2] is None else match[2] if match[1] is not None else ""
        if "windlass" in text or "/" in text or "." in text:
            yield Text(file, source.count("\n", 0, match.start()) + 1, text)
    for match in IMPORTS.finditer(source):
        if not is_python_name(match[0].split()[1].rstrip(".")):
            yield Text(file, source.count("\n", 0, match.start()) + 1, match[0])


@functools.cache
def code_texts() -> tuple[Text, ...]:
    # The tests here hold samples of what is wrong.
    here = Path(__file__).parent
    files = [f for f in tracked_files() if f.suffix == ".py" and f.parent != here]
    return tuple(text for f in files for text in comments(f, f.read_text(encoding="utf-8")))


def statements() -> Iterator[Text]:
    """SQL and Lua, but for migrations: these stay as they were applied."""
    for file in tracked_files():
        if file.suffix in {".sql", ".lua"} and file.parent.name != "migrations":
            yield Text(file, 1, file.read_text(encoding="utf-8"))


@functools.cache
def quoted_names() -> frozenset[str]:
    """Loggers, metrics, attributes and checks: what the package itself writes as a string."""
    source = "".join(f.read_text(encoding="utf-8") for f in PACKAGE.rglob("*.py"))
    return frozenset(re.findall(r'"(windlass\.[\w.]+)"', source)) | OTHER_NAMES


@functools.cache
def defined_names(file: Path) -> frozenset[str]:
    """What a module defines or imports, and the members of its classes as ``Class.member``."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Name | ast.alias):
            names.add(node.id if isinstance(node, ast.Name) else node.asname or node.name)
    return frozenset(names)


@functools.cache
def is_python_name(dotted: str) -> bool:
    """Whether modules lead to it: packages, then a module, then a name that is written there."""
    place, rest = PACKAGE, dotted.split(".")[1:]
    while rest and (place / rest[0]).is_dir():
        place /= rest.pop(0)
    if not rest:
        return True
    module = place / f"{rest[0]}.py"
    if module.is_file():
        rest.pop(0)
    else:
        module = place / "__init__.py"
    return module.is_file() and all(name in defined_names(module) for name in rest)


@functools.cache
def endings() -> frozenset[str]:
    """Every tracked file by every end of its path: ``c.py``, ``b/c.py``, ``a/b/c.py``."""
    parts = [f.relative_to(ROOT).parts for f in tracked_files()]
    return frozenset("/".join(p[i:]) for p in parts for i in range(len(p)))


def unknown(text: Text) -> Iterator[str]:
    """Names in a text that lead nowhere."""
    for match in DOTTED.finditer(text.text):
        if not is_python_name(match[0]) and match[0] not in quoted_names():
            yield place(text, match)
    for match in HALF_NAMES.finditer(text.text):  # whole names can be found, these cannot
        yield place(text, match)
    for match in FOLDERS.finditer(text.text):
        # Meant from the repository's root, or from an example's own.
        roots = [ROOT, *(p for p in text.file.parents if p.parent == ROOT / "examples")]
        if not any(any(root.glob(match[0])) for root in roots):
            yield place(text, match)
    for match in ROOMS.finditer(text.text):
        if (PACKAGE / match[0].split("/")[0]).is_dir() and not (
            any(PACKAGE.glob(match[0])) or any(PACKAGE.glob(f"{match[0]}.py"))
        ):
            yield place(text, match)


def unknown_files(text: Text) -> Iterator[str]:
    """File names that no tracked file's path ends with."""
    for match in FILES.finditer(text.text):
        if match[0] not in endings() and match[0] not in OTHER_FILES:
            yield place(text, match)


@functools.cache
def words_in_code() -> frozenset[str]:
    """Every word of the package and the tests of its pages, without docstrings; parts of paths."""
    words = {part for f in tracked_files() for part in re.findall(r"\w+", f.as_posix())}
    words.add("noqa")
    for file in (*(ROOT / "src").rglob("*.*"), *(ROOT / "tests" / "web").rglob("*.*")):
        if file.suffix in {".py", ".html", ".sql", ".lua", ".toml"}:
            words.update(re.findall(r"\w+", TEXT_IN_CODE.sub("", file.read_text(encoding="utf-8"))))
    return frozenset(words)


def unknown_words(text: Text) -> Iterator[str]:
    """Names in quotes that no code has, such as a class that was renamed since."""
    for match in QUOTED.finditer(text.text):
        if not words_in_code().issuperset(match[1].split(".")):
            yield place(text, match)


def place(text: Text, match: re.Match[str]) -> str:
    line = text.line + text.text.count("\n", 0, match.start())
    return f"{text.file.relative_to(ROOT)}:{line}: {match[0]}"


def for_contributors(text: Text) -> bool:
    """Not the pages for users, whose files are their own."""
    below = text.file.relative_to(ROOT).parts
    return below[0] == "src" or below in {("ARCHITECTURE.md",), ("CONTRIBUTING.md",)}


def test_pages_name_only_what_exists() -> None:
    assert [name for text in pages() for name in unknown(text)] == []


def test_docstrings_and_comments_name_only_what_exists() -> None:
    assert [name for text in code_texts() for name in unknown(text)] == []


def test_texts_for_contributors_name_only_files_that_exist() -> None:
    texts = [text for text in (*pages(), *code_texts(), *statements()) if for_contributors(text)]
    assert [name for text in texts for name in unknown_files(text)] == []


def test_texts_for_contributors_quote_only_names_that_code_has() -> None:
    texts = [text for text in (*pages(), *code_texts()) if for_contributors(text)]
    assert [name for text in texts for name in unknown_words(text)] == []


@pytest.mark.parametrize(
    "said",
    [
        "`windlass.gone`",
        "see windlass._core.gone",
        "windlass._core.job.outcome.gone",
        "windlass.errors.Gone.why",
        "tests/gone/test_x.py",
        "src/windlass/_core/gone.py",
        "`_core/gone.py`",
        "`core.outcome`",
        "`_worker/claim/gone`",
    ],
)
def test_a_name_that_leads_nowhere_is_found(said: str) -> None:
    assert len(list(unknown(Text(ROOT / "README.md", 1, f"One.\n{said}")))) == 1


@pytest.mark.parametrize(
    "said",
    [
        "`windlass.errors`, windlass.errors.WindlassError.",
        "windlass._core.job.outcome, tests/architecture/, tests/core/*/test_*.py and `_core/job`",
        "[windlass.plugins.newsletter] in windlass.toml",
        "`_core/job/outcome` and `_core/job/outcome.py`",
    ],
)
def test_a_name_that_exists_is_left_alone(said: str) -> None:
    assert list(unknown(Text(ROOT / "README.md", 1, said))) == []


def test_a_file_that_is_gone_is_found() -> None:
    text = Text(ROOT / "ARCHITECTURE.md", 7, "`job/outcome.py`\nand `job/gone.py`")
    assert list(unknown_files(text)) == ["ARCHITECTURE.md:8: job/gone.py"]


def test_a_name_that_no_code_has_is_found() -> None:
    said = (
        "`RenamedLongAgo`, `JobStore.claim`, `JobStore.seize` and `seize_all(…)`, not ``whatever``"
    )
    found = [name.split()[1] for name in unknown_words(Text(ROOT / "ARCHITECTURE.md", 1, said))]
    assert found == ["`RenamedLongAgo`", "`JobStore.seize`", "`seize_all(…)`"]


def test_docstrings_comments_and_imports_are_read_and_other_strings_are_not() -> None:
    source = (
        '"""One.\n\nwindlass.a"""\nname = "windlass.b"\n# See windlass.c\nrun("import windlass.d")'
    )
    found = [name for text in comments(ROOT / "x.py", source) for name in unknown(text)]
    assert found == ["x.py:3: windlass.a", "x.py:5: windlass.c", "x.py:6: windlass.d"]


def test_the_changelog_may_name_what_has_gone_in_its_tables() -> None:
    table = "| `windlass.gone` | `windlass.also_gone` |"
    assert current_names("CHANGELOG.md", table).strip() == "`windlass.also_gone`"
    assert current_names("README.md", table) == table
