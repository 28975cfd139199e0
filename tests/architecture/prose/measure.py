"""Count words, listed words and long sentences."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

LISTED = (
    *("whoever", "whatever", "nobody", "somebody", "of its own", "so many", "befall", "befalls"),
    *("stands", "is told", "are told", "rests", "goes on", "go on", "bite", "bites"),
)
"""Words and phrases of a private dialect. The industry's word, or the actor, replaces them."""
LONGEST = 25
"""Words in a sentence."""
LONG_SHARE = 0.05
"""Sentences that may be longer."""
PER_WORDS = 1_000
"""A page may use a listed word once in this number of words."""

_LISTED = re.compile(r"\b(?:" + "|".join(map(re.escape, LISTED)) + r")\b", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"')\]*_]*\s+(?=[\"'(\[*_`]*[A-Z0-9X])")
_WORD = re.compile(r"[\w’'-]+")


class Passage(NamedTuple):
    """Running text of one place: a paragraph, a list item, a table cell, an option's help."""

    place: str
    text: str


class Page(NamedTuple):
    """Texts that are judged together."""

    name: str
    passages: Sequence[Passage]


class Sentence(NamedTuple):
    """A sentence that is too long."""

    place: str
    text: str
    words: int


class Measure(NamedTuple):
    """What the gate counts on one page."""

    name: str
    words: int
    listed: Sequence[tuple[str, str]]
    sentences: int
    long: Sequence[Sentence]

    @property
    def listed_allowed(self) -> int:
        return -(-self.words // PER_WORDS)

    @property
    def long_allowed(self) -> int:
        return int(self.sentences * LONG_SHARE) + 1

    @property
    def problems(self) -> list[str]:
        found = []
        if len(self.listed) > self.listed_allowed:
            where = ", ".join(f"{word!r} ({place})" for place, word in self.listed)
            found.append(f"{len(self.listed)} listed words, {self.listed_allowed} allowed: {where}")
        if len(self.long) > self.long_allowed:
            found.append(
                f"{len(self.long)} of {self.sentences} sentences are longer than {LONGEST} words, "
                f"{self.long_allowed} allowed"
            )
            found += [f"  {one.place}, {one.words} words: {one.text}" for one in self.long]
        return found


def measure(page: Page) -> Measure:
    """Count words, listed words and long sentences of a page."""
    words, listed, sentences, long = 0, [], 0, []
    for place, text in page.passages:
        words += len(_WORD.findall(text))
        listed += [(place, found.group()) for found in _LISTED.finditer(text)]
        for sentence in _SENTENCE_END.split(text):
            size = len(_WORD.findall(sentence))
            sentences += size > 0
            if size > LONGEST:
                long.append(Sentence(place, sentence.strip(), size))
    return Measure(page.name, words, listed, sentences, long)
