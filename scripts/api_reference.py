"""Write docs/reference/api from the docstrings of public names: ``make generate``.

Every name of every door has a page, a heading and an anchor. Options of ``@app.task``, ``options``,
``schedule``, `Windlass` and ``worker`` are tables. tests/architecture/public/test_api_reference.py
checks that nothing is missing and that the pages are up to date.
"""

from __future__ import annotations

import ast
import enum
import functools
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from scripts.api_pages import FIELDS, INTERNAL, OPTIONS, PAGES, SIGNATURES, ApiPage  # noqa: E402 -- by the line above

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "reference" / "api"
_SHOWN = 16
"""Names of a page that the overview lists."""


class PublicName(NamedTuple):
    """A name that users import, its object, and the page that it is on."""

    door: str
    name: str
    value: Any
    page: str


@functools.cache
def public_names() -> tuple[PublicName, ...]:
    """Return the names of all pages, in their order. A name that two doors have is shown once."""
    found: dict[str, PublicName] = {}
    for page in PAGES:
        for door, chosen in page.names.items():
            module = importlib.import_module(door)
            for name in chosen or module.__all__:
                value = getattr(module, name)
                known = found.get(name)
                if known is None or known.value is not value:
                    label = name if known is None else f"{door}.{name}"
                    found[label] = PublicName(door, name, value, page.file)
    return tuple(found.values())


# --- texts ---


@functools.cache
def anchors() -> Mapping[str, str]:
    """Return the page and anchor of each public name and of its members."""
    found: dict[str, str] = {}
    for one in public_names():
        found.setdefault(one.name, f"{one.page}.md#{slug(heading_of(one))}")
        if inspect.isclass(one.value):
            for member, _ in members_of(one.value):
                found.setdefault(
                    f"{one.name}.{member}", f"{one.page}.md#{slug(f'{one.name}.{member}')}"
                )
    return found


def title_of(one: PublicName) -> str:
    """Return the heading of a name. Integrations share names, so theirs have the module."""
    short = one.door.removeprefix("windlass.integrations.")
    return one.name if short == one.door else f"{short}.{one.name}"


def heading_of(one: PublicName) -> str:
    """Return the heading as Markdown. Names that differ in upper case alone need other anchors."""
    title = title_of(one)
    if inspect.isclass(one.value) or not any(
        other is not one and other.page == one.page and slug(title_of(other)) == slug(title)
        for other in public_names()
    ):
        return f"`{title}`"
    return f"`{title}` ({'function' if inspect.isfunction(one.value) else 'type'})"


def slug(title: str) -> str:
    return re.sub(r"[^\w -]", "", title).lower().replace(" ", "-")


def inline(text: str) -> str:
    """Return a text of a docstring as Markdown: code, and links to public names."""

    def link(match: re.Match[str]) -> str:
        name = match[1].removesuffix("()")
        target = anchors().get(name)
        return f"[`{match[1]}`]({target})" if target else f"`{match[1]}`"

    parts = re.split(r"(``.+?``)", " ".join(text.split()))
    return "".join(
        f"`{part[2:-2]}`" if part.startswith("``") else re.sub(r"`([^`]+)`", link, part)
        for part in parts
    )


def cell(text: str) -> str:
    """Return a text for a table. Inside code the site's Markdown takes a bar as it is."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else part.replace("|", "\\|") for part in parts)


def markdown(text: str, table: Mapping[str, str] | None = None) -> Iterator[str]:
    """Yield the paragraphs of a docstring. Lists of options become a table if types are given."""
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        if paragraph.startswith(("    ", ">>>")):
            yield f"```python3\n{textwrap.dedent(paragraph)}\n```"
        elif paragraph.startswith("- "):
            items = [item.strip() for item in re.split(r"^- ", paragraph, flags=re.MULTILINE)]
            yield from _list([item for item in items if item], table)
        else:
            yield inline(paragraph)


def _list(items: Sequence[str], table: Mapping[str, str] | None) -> Iterator[str]:
    rows = [(options_in(item), item) for item in items]
    if table is None or not all(names for names, _ in rows):
        yield "\n".join(f"- {inline(item)}" for item in items)
        return
    lines = ["| Option | Type | Meaning |", "|---|---|---|"]
    for names, item in rows:
        told = inline(re.sub(r"^(``\w+``,?\s*)+: ", "", item))
        for name in names:
            kind = f"`{table[name]}`" if name in table else ""
            lines.append(f"| `{name}` | {kind} | {cell(told[:1].upper() + told[1:])} |")
    yield "\n".join(lines)


def options_in(item: str) -> list[str]:
    """Return the options that a list item explains: those before its colon, and later ones."""
    head = re.match(r"((?:``\w+``(?:,\s+)?)+): ", item)
    return re.findall(r"``(\w+)``", head[1]) if head else []


# --- values ---


def members_of(value: type) -> list[tuple[str, Any]]:
    """Return the public methods and properties of a class, also those of private bases of ours."""
    public = {id(one.value) for one in public_names()}
    found: dict[str, Any] = {}
    for base in value.__mro__:
        ours = base.__module__.startswith("windlass") and (base is value or id(base) not in public)
        for name, member in vars(base).items() if ours else ():
            plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            hidden = name.startswith("_") or f"{value.__name__}.{name}" in INTERNAL
            if not hidden and (inspect.isfunction(plain) or isinstance(plain, property)):
                found.setdefault(name, member)
    return list(found.items())


def signature_of(name: str, function: Any) -> str:
    """Return ``name(parameters) -> result``, over several lines if it is long."""
    try:
        made = inspect.signature(function)
    except ValueError:
        return name
    parameters = [one for one in made.parameters.values() if one.name not in {"self", "cls"}]
    made = made.replace(parameters=parameters)
    text = name + _unquoted(str(made))
    if len(text) <= 88:
        return text
    lines, star, slash = [], False, any(one.kind is one.POSITIONAL_ONLY for one in parameters)
    for one in parameters:
        if slash and one.kind is not one.POSITIONAL_ONLY:
            lines.append("    /,")
            slash = False
        if one.kind is one.KEYWORD_ONLY and not star:
            lines.append("    *,")
            star = True
        star = star or one.kind is one.VAR_POSITIONAL
        lines.append(f"    {_unquoted(str(one))},")
    result = "" if made.return_annotation is made.empty else f" -> {made.return_annotation}"
    return "\n".join([f"{name}(", *lines, f"){_unquoted(result)}"])


def _unquoted(text: str) -> str:
    """Return a signature with annotations as they are written, without quotes and paths."""
    text = re.sub(r"'([^']*(?:'[^']*'[^']*)*?)'(?=[,)=\s]|$)", r"\1", text)
    return re.sub(r"<([\w.]+) object at 0x\w+>|<class '([\w.]+)'>|<(\w+)[^>]*>", r"…", text)


@functools.cache
def class_fields(module: str, name: str) -> tuple[tuple[str, str, str, str], ...]:
    """Return the fields of a class with type, default and docstring, as they are written."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == name:
            for field, after in zip(node.body, [*node.body[1:], None], strict=True):
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    default = "" if field.value is None else ast.unparse(field.value)
                    kind = ast.unparse(field.annotation)
                    found.append((field.target.id, kind, default, _text_of(after)))
    return tuple(found)


def _text_of(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return inspect.cleandoc(str(node.value.value))
    return ""


@functools.cache
def alias_text(door: str, name: str) -> str:
    """Return the text below an alias or a constant, where it is defined."""
    tree = ast.parse(inspect.getsource(importlib.import_module(door)))
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        targets: list[ast.expr] = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return _text_of(after)
    for imported in ast.walk(tree):
        if (
            isinstance(imported, ast.ImportFrom)
            and imported.module
            and name in {alias.name for alias in imported.names}
        ):
            return alias_text(imported.module, name)
    homes = getattr(importlib.import_module(door), "_HOMES", {})
    return alias_text(f"windlass.{homes[name]}", name) if name in homes else ""


def option_types(label: str) -> Mapping[str, str]:
    """Return the options that a callable takes as keywords, with their types."""
    if label not in OPTIONS:
        return {}
    module, name = OPTIONS[label]
    home = importlib.import_module(module)
    return {
        field: _spelled_out(kind.__forward_arg__, vars(home))
        for field, kind in getattr(home, name).__annotations__.items()
    }


def _spelled_out(kind: str, names: Mapping[str, Any]) -> str:
    """Return a type without private aliases: choices are written as they are given."""

    def alias(match: re.Match[str]) -> str:
        value = names.get(match[0])
        if value is None or inspect.isclass(value) or not get_args(value):
            return match[0]
        return re.sub(
            r"\b(?:typing|collections\.abc|datetime)\.|\bwindlass[\w.]*\.", "", str(value)
        )

    spelled = re.sub(r"\b[A-Z]\w*\b(?!\[)", alias, kind)
    return re.sub(
        r"Literal\[([^\]]*)\]",
        lambda found: found[1].replace("'", '"').replace(", ", " | "),
        spelled,
    )


def _shown_default(text: str) -> str:
    """Return a default as people write it: ``7 days``, ``64 KiB``."""
    if found := re.fullmatch(r"timedelta\((\w+)=(\d+)\)", text):
        return f"{found[2]} {found[1] if found[2] != '1' else found[1].removesuffix('s')}"
    return {"MIB": "1 MiB", "64 * 1024": "64 KiB"}.get(text, text.replace("'", '"'))


# --- pages ---


def option_table(label: str) -> str:
    """Return the options of a callable whose options are fields."""
    fields = {name: rest for name, *rest in class_fields(*FIELDS[label])}
    lines = ["| Option | Type | Default | Meaning |", "|---|---|---|---|"]
    for name, kind in option_types(label).items():
        _, default, told = fields[name]
        shown = _shown_default(default)
        lines.append(f"| `{name}` | `{kind}` | `{shown}` | {cell(inline(told))} |")
    return f"The settings, as keyword arguments:\n\n{chr(10).join(lines)}"


def entry(one: PublicName) -> Iterator[str]:
    """Yield the parts of one name: heading, signature, text, fields and members."""
    title, value = title_of(one), one.value
    yield f"## {heading_of(one)}"
    if inspect.isclass(value):
        yield from class_entry(one, value)
    elif inspect.isfunction(value):
        yield _signature(one, title, value)
        yield from markdown(value.__doc__ or "")
    else:
        yield f"`from {one.door} import {one.name}`"
        yield inline(alias_text(one.door, one.name))


def _signature(one: PublicName, label: str, function: Any) -> str:
    awaited = "async " if inspect.iscoroutinefunction(function) else ""
    return (
        f"```python3\nfrom {one.door} import {one.name}\n\n"
        f"{awaited}{signature_of(label, function)}\n```"
    )


def class_entry(one: PublicName, value: type) -> Iterator[str]:
    own_init = vars(value).get("__init__")
    if inspect.isfunction(own_init):
        yield _signature(one, one.name, own_init).replace(" -> None\n", "\n")
    else:
        yield f"```python3\nfrom {one.door} import {one.name}\n```"
    fields = fields_of(value)
    types = {name: kind for name, kind, _ in fields}
    yield from markdown(value.__doc__ or "", types or None)
    if inspect.isfunction(own_init) and own_init.__doc__:
        yield from markdown(own_init.__doc__)
    if one.name in FIELDS:
        yield option_table(one.name)
    explained = set(
        re.findall(r"^- ``(\w+)``", inspect.cleandoc(value.__doc__ or ""), re.MULTILINE)
    )
    rows = [
        f"| `{name}` | `{kind}` | {cell(inline(told))} |"
        for name, kind, told in fields
        if told or name not in explained
    ]
    if rows:
        head = "| Member | Value |" if issubclass(value, enum.Enum) else "| Field | Type |"
        yield "\n".join([f"{head} Meaning |", "|---|---|---|", *rows])
    for name, member in members_of(value):
        yield from member_entry(one, name, member)


def fields_of(value: type) -> list[tuple[str, str, str]]:
    """Return the public fields of a class, or the members of an enumeration, with their texts."""
    if issubclass(value, enum.Enum):
        return [
            (name, repr(member.value), alias_member(value, name))
            for name, member in value.__members__.items()
        ]
    return [
        (name, f"{kind} = {default}" if default and "(" not in default else kind, told)
        for name, kind, default, told in class_fields(value.__module__, value.__name__)
        if not name.startswith("_")
    ]


def alias_member(value: type, name: str) -> str:
    """Return the text below a member of an enumeration."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]
    body = tree.body if isinstance(tree, ast.ClassDef) else []
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return _text_of(after)
    return ""


def member_entry(one: PublicName, name: str, member: Any) -> Iterator[str]:
    label = f"{one.name}.{name}"
    yield f"### `{label}`"
    if isinstance(member, property):
        kind = inspect.signature(member.fget).return_annotation if member.fget else ""
        yield f"Property: `{kind}`"
        yield from markdown(member.__doc__ or "")
        return
    kind = {classmethod: "Class method", staticmethod: "Static method"}.get(type(member))
    function = getattr(member, "__func__", member)
    awaited = "async " if inspect.iscoroutinefunction(function) else ""
    shown = SIGNATURES.get(label, f"{awaited}{signature_of(name, function)}")
    yield f"```python3\n{shown}\n```"
    if kind:
        yield f"{kind}."
    types = option_types(label)
    yield from markdown(function.__doc__ or "", types or None)
    if label in FIELDS:
        yield option_table(label)


def page_text(page: ApiPage) -> str:
    names = [one for one in public_names() if one.page == page.file]
    listed = ", ".join(f"[`{title_of(one)}`](#{slug(heading_of(one))})" for one in names)
    parts = [f"# {page.title}", page.about, *([listed] if len(names) > 1 else [])]
    parts += [part for one in names for part in entry(one) if part]
    return "\n\n".join(parts) + "\n"


def index_text() -> str:
    about = (
        "Every name that you can import, from the docstrings of this version. Names with a leading "
        "underscore are not public, and may change in any release."
    )
    parts = ["# API", about, "| Page | Names |\n|---|---|"]
    for page in PAGES:
        names = [one for one in public_names() if one.page == page.file]
        links = ", ".join(
            f"[`{title_of(one)}`]({page.file}.md#{slug(heading_of(one))})" for one in names[:_SHOWN]
        )
        more = f", [and {len(names) - _SHOWN} more]({page.file}.md)" if names[_SHOWN:] else ""
        parts[-1] += f"\n| [{page.title}]({page.file}.md) | {links}{more} |"
    return "\n\n".join(parts) + "\n"


def every_page() -> dict[str, str]:
    """Return the text of each file."""
    return {"index.md": index_text()} | {f"{page.file}.md": page_text(page) for page in PAGES}


def main() -> int:
    TARGET.mkdir(parents=True, exist_ok=True)
    pages = every_page()
    for stale in set(TARGET.glob("*.md")) - {TARGET / name for name in pages}:
        stale.unlink()
    for name, text in pages.items():
        (TARGET / name).write_text(text, encoding="utf-8")
    print(f"windlass: wrote {len(pages)} pages with {len(public_names())} names")
    return 0


if __name__ == "__main__":
    sys.exit(main())
