"""Pages, help texts, templates and public docstrings are written in plain words."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import pytest

from tests.architecture.exceptions import check
from tests.architecture.prose.measure import Measure, Page, Passage, measure
from tests.architecture.prose.source_texts import docstrings_of, source_page
from tests.architecture.prose.texts import (
    DOORS,
    Documented,
    documented,
    every_page,
    first_word,
    markdown,
    templates,
)
from tests.architecture.prose.verbs import VERBS
from tests.architecture.source import modules

TO_REWRITE: dict[str, str] = {}
"""Texts that do not pass yet, with a reason. A text that passes is taken off the list."""


def measures() -> list[Measure]:
    return [measure(page) for page in every_page()]


def test_texts_use_plain_words_and_short_sentences() -> None:
    failed = {one.name: "\n".join(one.problems) for one in measures() if one.problems}
    check(failed, TO_REWRITE)


SHORT = "The worker renews its lease. "
LONG = "The worker renews its lease " + "and stores the outcome of every job " * 4 + "at once. "


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (SHORT * 40, ""),
        (SHORT * 40 + "Whoever asks is told. ", "2 listed words, 1 allowed"),
        (SHORT * 38 + LONG * 2, ""),
        (SHORT * 37 + LONG * 4, "4 of 41 sentences are longer"),
    ],
)
def test_the_gate_tells_plain_words_from_dialect(text: str, told: str) -> None:
    problems = measure(Page("page", [Passage("line 1", text)])).problems
    assert told in "\n".join(problems) if told else not problems


def test_code_tables_and_links_are_read_as_people_read_them() -> None:
    page = markdown(
        "page",
        "# Limits\n\nSet `Limit(concurrency=2)` [here](a/very/long/target.md).\n\n"
        "```python\nnobody = whatever\n```\n\n| Option | Effect |\n|---|---|\n| `a` | Stops it |\n",
    )
    assert [one.text for one in page.passages] == [
        *("Limits", "Set X here.", "Option", "Effect", "X", "Stops it")
    ]


def test_texts_in_expressions_of_templates_are_read() -> None:
    said = {one.text for one in templates().passages}
    assert "No worker yet" in said
    assert not any("async def" in text for text in said)


# --- public docstrings ---

NO_VERB: dict[str, str] = {}
"""Public callables whose docstring starts otherwise, each with a reason."""


def public_callables() -> Iterator[Documented]:
    for door in DOORS:
        yield from (one for one in documented(door) if inspect.isfunction(one.value))


def without_verb(named: Iterator[Documented]) -> dict[str, str]:
    return {
        one.name: one.text.partition("\n")[0] for one in named if not starts_with_verb(one.text)
    }


def starts_with_verb(text: str) -> bool:
    return first_word(text) in VERBS


def test_docstrings_of_public_callables_start_with_a_verb() -> None:
    check(without_verb(public_callables()), NO_VERB)


def test_the_gate_tells_a_verb_from_a_description() -> None:
    texts = {
        "good": "Return the jobs, in order.",
        "noun": "The jobs, in order.",
        "question": "What the worker holds.",
        "third person": "Returns the jobs.",
        "missing": "",
    }
    named = (Documented(name, None, text) for name, text in texts.items())
    assert set(without_verb(named)) == set(texts) - {"good"}


def test_the_gate_reads_functions_and_methods_behind_every_door() -> None:
    names = {one.name for one in public_callables()}
    assert {
        *("windlass.Windlass.task", "windlass.storage.JobStore.claim", "windlass.testing.isolated"),
        *("windlass.integrations.django.on_commit", "windlass.integrations.flask.init_app"),
        "windlass.integrations.fastapi.lifespan",
    } <= names


# --- docstrings and comments of the package ---

_RIDDLE = re.compile(r"(?:What|Who|Whoever|Whatever|Whom|Whose)\b")
"""First words of a docstring that is a relative clause: it names neither actor nor thing."""


def riddles(source: str) -> list[str]:
    return [
        f"line {one.line}: {one.text.strip().partition(chr(10))[0]}"
        for one in docstrings_of(source)
        if _RIDDLE.match(one.text.strip())
    ]


def test_no_docstring_begins_with_what_or_who() -> None:
    found = {one.path: riddles(one.text) for one in modules()}
    check({path: "\n".join(lines) for path, lines in found.items() if lines}, {})


def test_docstrings_and_comments_use_plain_words() -> None:
    measured = [measure(source_page(one.path, one.text)) for one in modules()]
    listed = {
        one.name: ", ".join(f"{word!r} ({place})" for place, word in one.listed)
        for one in measured
        if len(one.listed) > one.listed_allowed
    }
    check(listed, {})


SAMPLE = '''"""What this is about."""

LEASE = 30
"""Whoever waits longer is told."""


class Worker:
    """A worker."""

    def run(self) -> None:
        """Run jobs."""
        # Whatever happens, nobody bites.
        self.name = "somebody"  # noqa: E501 whoever
'''


def test_the_gate_reads_docstrings_and_comments_but_no_code() -> None:
    assert riddles(SAMPLE) == [
        "line 1: What this is about.",
        "line 4: Whoever waits longer is told.",
    ]
    listed = [word for _place, word in measure(source_page("sample.py", SAMPLE)).listed]
    assert listed == ["Whoever", "is told", "Whatever", "nobody", "bites"]
