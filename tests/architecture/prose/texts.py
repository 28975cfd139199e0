"""Read the texts that people read, without their code and marks."""

from __future__ import annotations

import html
import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import click

from tests.architecture.prose.measure import Page, Passage
from tests.architecture.source import PACKAGE, ROOT

DOORS = (
    *("windlass", "windlass.errors", "windlass.admin", "windlass.storage", "windlass.plugins"),
    *("windlass.observe", "windlass.web", "windlass.testing", "windlass.integrations.django"),
    *("windlass.integrations.celery", "windlass.integrations.fastapi"),
    *("windlass.integrations.flask", "windlass.integrations.sentry"),
)
"""Modules whose names users import."""

_FENCE = re.compile(r"^( *)(```|~~~).*?^\1\2[ \t]*$", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_CODE = re.compile(r"[<>{}=@\\]|^/")


def markdown(name: str, text: str) -> Page:
    """A page without its code. A span of code, and the target of a link, are one word or none."""
    text = _FENCE.sub(lambda found: "\n" * found.group().count("\n"), text)
    text = _COMMENT.sub(lambda found: "\n" * found.group().count("\n"), text)
    text = re.sub(r"`+[^`\n]+`+", "X", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    passages: list[Passage] = []
    lines: list[str] = []
    begun = 0

    def end() -> None:
        if lines:
            passages.append(Passage(f"line {begun}", " ".join(lines)))
            lines.clear()

    for number, line in enumerate(text.splitlines(), 1):
        said = line.strip().lstrip("> ")
        if not said or set(said) <= set("|-: ="):
            end()
        elif said.startswith("|"):
            end()
            cells = [cell.strip() for cell in said.split("|")]
            passages += [Passage(f"line {number}", cell) for cell in cells if cell]
        else:
            if said.startswith(("#", "- ", "* ", "!!!", "???")) or re.match(r"\d+\. ", said):
                end()
            if not lines:
                begun = number
            lines.append(re.sub(r"^(#+|[-*]|\d+\.|!!!|\?\?\?)\s+", "", said))
            if said.startswith("#"):
                end()
    end()
    return Page(name, passages)


def pages() -> Iterator[Page]:
    """Yield the documentation and the pages at the root of the repository."""
    for file in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))):
        yield markdown(str(file.relative_to(ROOT)), file.read_text(encoding="utf-8"))


def help_texts() -> Page:
    """Collect the help of every command and option."""
    from windlass._cli.main import cli  # noqa: PLC0415 -- only those who ask for it pay

    return Page("help", list(_command_help(cli, click.Context(cli, info_name="windlass"))))


def _command_help(command: click.Command, context: click.Context) -> Iterator[Passage]:
    path = context.command_path
    for text in (command.help, command.epilog, command.short_help):
        # Examples are indented or marked as they are: no prose.
        for paragraph in (text or "").split("\n\n"):
            if "\b" not in paragraph and "$ " not in paragraph:
                yield Passage(path, _without_code(paragraph))
    for option in command.params:
        yield Passage(path, _without_code(getattr(option, "help", None) or ""))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None:
                yield from _command_help(
                    child, click.Context(child, parent=context, info_name=name)
                )


def templates() -> Page:
    """Collect what the dashboard's templates say."""
    passages = []
    for file in sorted(PACKAGE.rglob("*.html")):
        text = file.read_text(encoding="utf-8")
        text = re.sub(r"\{#.*?#\}|<(script|style|svg)\b.*?</\1>", "", text, flags=re.DOTALL)
        for expression in re.findall(r"\{[{%](.*?)[%}]\}", text, re.DOTALL):
            said = _QUOTED.findall(expression)
            passages += [Passage(file.name, one) for one in said if not _CODE.search(one)]
        text = re.sub(r"\{%.*?%\}", "\0", text, flags=re.DOTALL)
        text = re.sub(r"\{\{.*?\}\}", "X", text, flags=re.DOTALL)
        text = re.sub(r"</?(?:a|b|em|strong|code|span|i|small|time|abbr)\b[^>]*>", "", text)
        text = re.sub(r"<[^>]*>", "\0", text)
        parts = [" ".join(html.unescape(part).split()) for part in text.split("\0")]
        passages += [Passage(file.name, part) for part in parts if part]
    return Page("templates", passages)


# --- docstrings ---


class Documented(NamedTuple):
    """A public name and its docstring."""

    name: str
    value: Any
    text: str


def documented(door: str) -> Iterator[Documented]:
    """Yield the public names of a module and their public methods."""
    module = importlib.import_module(door)
    yield Documented(door, module, inspect.getdoc(module) or "")
    for name in getattr(module, "__all__", ()):
        value = getattr(module, name)
        if inspect.ismodule(value) or not (inspect.isclass(value) or callable(value)):
            continue
        if not (getattr(value, "__module__", "") or "").startswith("windlass"):
            continue
        yield Documented(f"{door}.{name}", value, _own_doc(value))
        if inspect.isclass(value):
            yield from _methods(f"{door}.{name}", value)


def _own_doc(value: Any) -> str:
    return inspect.cleandoc(value.__doc__) if isinstance(value.__doc__, str) else ""


def _methods(name: str, value: type) -> Iterator[Documented]:
    for base in value.__mro__:
        if not base.__module__.startswith("windlass"):
            continue
        for attribute, found in vars(base).items():
            function = found.__func__ if isinstance(found, classmethod | staticmethod) else found
            if not attribute.startswith("_") and inspect.isfunction(function):
                yield Documented(f"{name}.{attribute}", function, _own_doc(function))


def docstrings() -> Iterator[Page]:
    """Yield the docstrings behind each door as one page."""
    for door in DOORS:
        passages = [
            Passage(one.name, text) for one in documented(door) for text in paragraphs(one.text)
        ]
        yield Page(door, passages)


def paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs and list items of a docstring. Indented paragraphs are examples."""
    for paragraph in re.split(r"\n\s*\n", text):
        if not paragraph.startswith(("    ", ">>>")):
            for part in re.split(r"^- ", paragraph, flags=re.MULTILINE):
                if part.strip():
                    yield _without_code(part)


def _without_code(text: str) -> str:
    """Join the lines of a text; a span of code counts as one word."""
    return re.sub(r"`+[^`]+`+", "X", " ".join(text.split()))


def first_word(text: str) -> str:
    """Return the first word of a docstring, without marks."""
    found = re.match(r"[`*\"(]*([A-Za-z]+)", text)
    return found.group(1) if found else ""


def every_page() -> Iterator[Page]:
    yield from pages()
    yield help_texts()
    yield templates()
    yield from docstrings()
