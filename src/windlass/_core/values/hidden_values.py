"""Values that must not turn up in texts, however many they are.

To look for each of some thousand values in each of some thousand texts takes minutes. Many are
looked for together: a text is read once, by what values begin with.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["HiddenValues", "mask_values"]

_FEW = 64
"""Up to this number of values are searched one by one, which is quicker."""
_HEAD = 4
"""Characters of a value's beginning."""
_LENGTHS = 32
"""Lengths of values that begin alike. If there are more, all behind such a beginning is hidden."""


class HiddenValues(tuple[str, ...]):  # noqa: SLOT001 -- it keeps what it has prepared
    """The values, the longest first."""

    _all: frozenset[str] = frozenset()
    _lengths: dict[str, list[int]]
    """By beginning, the longest first. Values that are shorter than a beginning are under ''."""

    def __contains__(self, value: object) -> bool:
        """Return whether it is one of them, whole."""
        if len(self) <= _FEW:
            return super().__contains__(value)
        self._prepare()
        return value in self._all

    def out_of(self, text: str, mask: str) -> str:
        """Return the text with a mask in place of each. Overlapping values are hidden together."""
        if len(self) <= _FEW:
            return mask_values(text, self, mask)
        self._prepare()
        told: list[str] = []
        end, heads = 0, self._lengths
        for at in range(len(text)):
            if text[at : at + _HEAD] not in heads and "" not in heads:
                continue
            until = self._end_of(text, at)
            if until > max(at, end):
                if at >= end:
                    told += (text[end:at], mask)
                end = until
        return "".join((*told, text[end:])) if told else text

    def _prepare(self) -> None:
        if self._all:
            return
        found: dict[str, dict[int, None]] = {}
        for value in self:
            head = value[:_HEAD] if len(value) >= _HEAD else ""
            found.setdefault(head, {})[len(value)] = None
        self._lengths = {head: list(lengths) for head, lengths in found.items()}
        self._all = frozenset(self)

    def _end_of(self, text: str, at: int) -> int:
        """Return where the longest value that begins here ends; 0: none does."""
        lengths = self._lengths.get(text[at : at + _HEAD], ())
        if len(lengths) > _LENGTHS:
            return len(text)
        for lengths_here in (lengths, self._lengths.get("", ())):
            for length in lengths_here:
                if text[at : at + length] in self._all:
                    return at + length
        return 0


def mask_values(text: str, values: Sequence[str], mask: str) -> str:
    """Return the text with a mask in place of each value, one after the other."""
    for value in values:
        if value in text:
            text = text.replace(value, mask)
    return text
