"""What a run says of its progress as one text: the note, and data behind a mark.

One text for both: they are written and cleared together, also by processes that know no data, which
show it as the end of the note.
"""

from __future__ import annotations

from typing import Any

import msgspec

from windlass.core.job import Progress

__all__ = ["note_text", "progress_of"]

_MARK = "\x1f"
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def note_text(progress: Progress) -> str:
    """The note with its data, as it is stored."""
    note = progress.note.replace(_MARK, " ")
    if progress.data is None:
        return note
    return f"{note}{_MARK}{msgspec.json.encode(progress.data).decode()}"


def progress_of(fraction: float, text: str) -> Progress:
    """What was stored. Data that cannot be read is left out."""
    note, mark, data = text.partition(_MARK)
    if not mark:
        return Progress(fraction, note)
    try:
        return Progress(fraction, note, _decode(data))
    except msgspec.MsgspecError:
        return Progress(fraction, note)
