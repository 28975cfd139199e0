"""Pages, help texts, templates and public docstrings are written in plain words."""

from __future__ import annotations

import pytest

from tests.architecture.exceptions import check
from tests.architecture.prose.measure import Measure, Page, Passage, measure
from tests.architecture.prose.texts import every_page, markdown, templates

TO_REWRITE = {"windlass.storage": "its docstrings are rewritten with their room"}
"""Texts that do not pass yet. A text that passes is taken off the list."""


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
