"""Search texts, compared with the visible part of jobs.

A search that reads hidden text tells it, letter by letter: by what it finds, by where it stops and
by how long it takes. So words are compared with the redacted form of a job. The redaction depends
on the jobs alone, never on the words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from windlass._core.job.job import AttemptError, JobRecord
from windlass._core.values.redaction import (
    redacted_json,
    redacted_text,
    secret_names,
    secret_values,
    suspicious_words_in,
)

__all__ = ["SearchTexts", "SearchWords", "texts_of"]

_BETWEEN = b"\x00"
"""Characters that are in no searched word; else a few more jobs are read."""


class SearchTexts(NamedTuple):
    """The texts of a job that are searched."""

    payload: bytes
    tags: Sequence[str]
    error: AttemptError | None


def texts_of(job: JobRecord) -> SearchTexts:
    """Return those of a job."""
    return SearchTexts(job.payload, job.tags, job.error)


class SearchWords:
    """Words that people look for in jobs."""

    __slots__ = ("_exact", "_text")

    def __init__(self, text: str | None, exact: Iterable[str] = ()) -> None:
        """Make a search. ``text`` is anywhere in a job. ``exact`` are whole values (a key, a tag)
        that the job is already known to have: it is found by them only if it shows them.
        """
        # Bytes: their lower() knows the letters of ASCII alone, as is promised.
        self._text = None if text is None else text.encode(errors="replace").lower()
        self._exact = tuple(exact)

    @property
    def compares_whole(self) -> bool:
        """Whether whole values are sought, of which a store has already found the jobs."""
        return bool(self._exact)

    def shown_in(self, texts: SearchTexts) -> bool:
        """Check whether all words are in the visible part of a job."""
        return self.shown_among([texts])[0]

    def shown_among(self, many: Sequence[SearchTexts]) -> list[bool]:
        """Return the same for each of some jobs. Many at a time cost a tenth of what each alone
        costs: most have nothing to hide, and all together say so as quickly as one.
        """
        low = [texts.payload.lower() for texts in many]
        traces = suspicious_words_in(_BETWEEN.join(low))
        told: list[bytes | None] = []
        for texts, plain in zip(many, low, strict=True):
            names = secret_names(texts.tags) if texts.tags else frozenset[str]()
            hides = bool(names) or (bool(traces) and any(trace in plain for trace in traces))
            if not hides and texts.error is None and not self._exact:
                told.append(plain)
            else:
                values = secret_values(texts.payload, names) if hides else ()
                shown = redacted_json(texts.payload, names, values).lower() if hides else plain
                told.append(self._told(shown, values, texts.error))
        if self._text is None:
            return [text is not None for text in told]
        if self._text not in _BETWEEN.join(text for text in told if text is not None):
            return [False] * len(told)
        return [text is not None and self._text in text for text in told]

    def _told(
        self, payload: bytes, values: Sequence[str], error: AttemptError | None
    ) -> bytes | None:
        """Return all that a job shows, in small letters; None if it hides one of the
        whole values.
        """
        if any(redacted_text(word, values) != word for word in self._exact):
            return None
        if error is None:
            return payload
        said = (error.kind, redacted_text(error.message, values))
        return _BETWEEN.join((payload, *(one.encode(errors="replace").lower() for one in said)))
