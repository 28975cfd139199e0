"""Visible form of keys that are made of secret arguments.

A key that is made of all arguments, or of a secret one, holds an unsalted digest: it must be the
same in every process that makes it. Short secrets are found from such a digest by trying them all.
People see an HMAC of it, under a secret of the installation: as good for telling keys apart, and
useless for guessing.
"""

from __future__ import annotations

import functools
import hmac
import re
from collections.abc import Callable

__all__ = ["has_digest", "has_masked_digest", "map_around_digests", "mask_digests"]

_DIGITS = 20
_MASK = "***"


def _escaped(word: str) -> str:
    return "".join(rf"\\*{letter}" for letter in word)


# As `unique` and `templates` make them. Between two arguments of a template letters of theirs may
# be escaped by backslashes, and these again where a text is quoted.
_DIGEST = re.compile(
    rf"{_escaped('arguments:')}(?:\\*[0-9a-f]){{64}}"
    rf"|{_escaped('secret:')}(?:\\*[0-9a-f]){{20}}"
    # Of a text that was cut in the middle of one:
    rf"|(?P<cut>(?:{_escaped('arguments:')}|{_escaped('secret:')})[\\0-9a-f]*)(?=…)"
)
_SHADE = re.compile(rf"(?:arguments|secret):@[0-9a-f]{{{_DIGITS}}}")


def has_digest(text: str | None) -> bool:
    """Return whether this holds a digest of arguments."""
    return text is not None and ":" in text and _DIGEST.search(text) is not None


def has_masked_digest(text: str | None) -> bool:
    """Return whether this is what people see of such a text."""
    return text is not None and _SHADE.search(text) is not None


def mask_digests(text: str, secret: str) -> str:
    """Return the text as people see it; with an empty ``secret`` the digests are masked."""
    return _DIGEST.sub(functools.partial(_shade, secret), text) if ":" in text else text


def map_around_digests(text: str, change: Callable[[str], str]) -> str:
    """Return the text with all of it changed but the digests: one that lost a few digits would be
    shown as it is.
    """
    if not has_digest(text):
        return change(text)
    told, at = "", 0
    for found in _DIGEST.finditer(text):
        told += change(text[at : found.start()]) + found[0]
        at = found.end()
    return told + change(text[at:])


def _shade(secret: str, found: re.Match[str]) -> str:
    said = found[0].replace("\\", "")
    word = f"{said.partition(':')[0]}:"
    if not secret or found["cut"] is not None:
        return f"{word}{_MASK}"
    return f"{word}@{hmac.digest(secret.encode(), said.encode(), 'sha256').hex()[:_DIGITS]}"
