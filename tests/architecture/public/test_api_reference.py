"""The API reference has every public name and option, and is up to date."""

from __future__ import annotations

import importlib
import inspect
import re
import sys

import pytest

from scripts import api_pages, api_reference
from tests.architecture.prose.texts import DOORS

PAGES = {
    file.name: file.read_text(encoding="utf-8")
    for file in sorted(api_reference.TARGET.glob("*.md"))
}
NAMES = api_reference.public_names()


@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="newer Pythons write some annotations otherwise"
)
def test_the_pages_are_up_to_date() -> None:
    stale = [name for name, text in api_reference.every_page().items() if PAGES.get(name) != text]
    assert stale == [], "run `make generate`"
    assert set(PAGES) == set(api_reference.every_page())


@pytest.mark.parametrize("door", DOORS)
def test_every_name_of_a_door_has_an_entry(door: str) -> None:
    module = importlib.import_module(door)
    known = {id(one.value) for one in NAMES}
    missing = [
        name
        for name in module.__all__
        if id(getattr(module, name)) not in known and (door, name) not in api_pages.LEFT_OUT
    ]
    assert missing == []


def without_text(names: tuple[api_reference.PublicName, ...]) -> list[str]:
    """Public names, methods and properties that no docstring explains."""
    found = []
    for one in names:
        if inspect.isclass(one.value):
            text = vars(one.value).get("__doc__")
            for name, member in api_reference.members_of(one.value):
                function = getattr(member, "__func__", member)
                if not (function.__doc__ or "").strip():
                    found.append(f"{one.door}.{one.name}.{name}")
        elif inspect.isfunction(one.value):
            text = one.value.__doc__
        else:
            text = api_reference.alias_text(one.door, one.name)
        if not (text or "").strip():
            found.append(f"{one.door}.{one.name}")
    return found


def test_no_public_name_is_without_a_docstring() -> None:
    assert without_text(NAMES) == []


def test_a_name_without_a_docstring_is_found() -> None:
    class Bare:
        def method(self) -> None: ...

    Bare.__module__ = "windlass.sample"
    bare = api_reference.PublicName("windlass", "Bare", Bare, "app")
    assert without_text((bare,)) == ["windlass.Bare.method", "windlass.Bare"]


@pytest.mark.parametrize("label", api_pages.OPTIONS)
def test_every_option_is_explained(label: str) -> None:
    name, _, method = label.partition(".")
    (one,) = (one for one in NAMES if one.name == name and one.door == "windlass")
    text = PAGES[f"{one.page}.md"]
    heading = f"### `{label}`" if method else f"## `{label}`"
    section = text.partition(f"{heading}\n")[2]
    section = re.split(r"^###? ", section, flags=re.MULTILINE)[0]
    rows = re.findall(r"^\| `(\w+)` \|(?: `[^`]*` \|)+ (\S.*) \|$", section, re.MULTILINE)
    explained = {option for option, told in rows if told.strip()}
    assert set(api_reference.option_types(label)) - explained == set()


def test_headings_have_their_own_anchors() -> None:
    for name, text in PAGES.items():
        titles = re.findall(
            r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE
        )
        slugs = [api_reference.slug(title) for title in titles]
        assert [one for one in slugs if slugs.count(one) > 1] == [], name
