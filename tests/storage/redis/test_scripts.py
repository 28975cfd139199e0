"""Scripts in both forms: the server takes them, and functions keep nothing between two calls."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources
from typing import Any

import pytest
from redis.asyncio import Redis

from windlass._storage.redis.io.scripts import eval_form, library, script

LUA = resources.files("windlass._storage.redis") / "lua"
NAMES = sorted(
    path.name.removesuffix(".lua") for path in LUA.iterdir() if path.name.endswith(".lua")
)
PARTS = sorted(path.name for path in (LUA / "shared").iterdir())
REMEMBERED = {"specials.lua": ["specials", "known_specials"]}
"""Memories whose content depends on their argument alone, not on the call."""
VALUE = re.compile(r"^local (\w+(?:, *\w+)*) *= *(.*)$", re.MULTILINE)


def remembering(text: str) -> list[str]:
    """Name the locals of a file that one call could change for the next.

    Those are tables and other values that have a value when the code is loaded, but for constants,
    whose names are in capitals, and tables that hold functions.
    """
    names = [name.strip() for names, _ in VALUE.findall(text) for name in names.split(",")]
    return [
        name for name in names if not name.isupper() and not re.search(rf"function {name}\.", text)
    ]


def by_name(pairs: Sequence[Any]) -> dict[bytes, Any]:
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


@pytest.mark.parametrize("name", NAMES)
async def test_the_server_compiles_the_text_for_eval(name: str, redis_url: str) -> None:
    form = eval_form(name)
    async with Redis.from_url(redis_url) as server:
        assert await server.script_load(form.text) == form.sha


async def test_the_library_has_a_function_for_every_script(redis_url: str) -> None:
    async with Redis.from_url(redis_url, protocol=2) as server:
        await server.function_load(library().text, replace=True)
        (found,) = await server.function_list(library().name)
    functions = [by_name(one)[b"name"].decode() for one in by_name(found)[b"functions"]]
    assert sorted(functions) == [library().function_of(script(name)) for name in NAMES]


def test_the_name_of_the_library_follows_its_content() -> None:
    name, text = library().name, library().text
    assert re.fullmatch("windlass_[0-9a-f]{16}", name)
    assert text.startswith(f"#!lua name={name}\n")


@pytest.mark.parametrize("part", PARTS)
def test_a_shared_part_keeps_nothing_between_two_calls(part: str) -> None:
    found = remembering((LUA / "shared" / part).read_text(encoding="utf-8"))
    assert found == REMEMBERED.get(part, [])


@pytest.mark.parametrize("name", NAMES)
def test_what_a_script_makes_once_keeps_nothing_between_two_calls(name: str) -> None:
    above, line, _ = script(name).body.rpartition("-- --- run ---\n")
    assert remembering(above + line) == []


def test_a_local_that_would_outlive_its_call_is_found() -> None:
    text = "local MOST = 5\nlocal held\nlocal seen, more = {}, 0\nlocal ending = {}\n"
    text += "function ending.begin()\n  local inside = 1\nend\n"
    assert remembering(text) == ["seen", "more"]
