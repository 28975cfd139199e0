"""What a worker says about itself that is kept as one text beside its row."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from windlass.storage.answers import WorkerStart

__all__ = ["About", "about_of", "about_text"]


class About(msgspec.Struct, frozen=True, omit_defaults=True):
    """Fields of `WorkerStart`. A row of an older version has none of them."""

    signatures: Mapping[str, str] = {}
    pools: Mapping[str, int] = {}


_decode = msgspec.json.Decoder(About).decode


def about_text(start: WorkerStart) -> str:
    """The text to store."""
    return msgspec.json.encode(About(start.signatures, start.pools)).decode()


def about_of(text: str) -> About:
    """What a stored text says: nothing where it cannot be read, so that one row spoils no list."""
    try:
        return _decode(text)
    except (msgspec.MsgspecError, UnicodeError):
        return About()
