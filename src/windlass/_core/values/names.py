"""Names and other text that a store must be able to keep, and people to read."""

from __future__ import annotations

from windlass.errors import InvalidArgument

__all__ = ["MAX_NAME", "MAX_TEXT", "check_name", "check_queue", "check_text", "shown"]

MAX_NAME = 128
MAX_TEXT = 256
_SHOWN = 80


def shown(value: object) -> str:
    """Return a value as a message can show it: a long one is cut."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 -- of a type of the user's, or an integer of many digits
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def check_name(value: str, what: str) -> str:
    """Names stand in indexes, URLs and terminals: short, printable, no white space."""
    given: object = value  # callers come from outside the type checker, too
    fits = isinstance(given, str) and 0 < len(given) <= MAX_NAME
    if not fits or not value.isprintable() or " " in value:
        message = (
            f"{what} must be 1 to {MAX_NAME} printable characters without spaces, "
            f"got {shown(value)}"
        )
        raise InvalidArgument(message)
    return value


def check_queue(value: str, what: str = "a queue's name") -> str:
    """Check that a queue is one that the command line and settings can name: ``--queue mail=10``,
    lists with commas.
    """
    check_name(value, what)
    if "," in value or "=" in value:
        message = (
            f"{what} must not contain ',' or '=', which separate names and slots on the command "
            f"line, got {shown(value)}. Name one queue, with '.', '-' or '_' between its parts."
        )
        raise InvalidArgument(message)
    return value


def check_text(value: str, what: str) -> str:
    """Text that is stored as it is. Refused here, or the store would refuse it in a batch."""
    given: object = value
    if not isinstance(given, str):
        message = f"{what} must be text of at most {MAX_TEXT} characters, got {shown(value)}"
        raise InvalidArgument(message)
    if len(value) > MAX_TEXT:
        message = (
            f"{what} may have {MAX_TEXT} characters, got {len(value):,}. "
            f"Use a digest of the long part."
        )
        raise InvalidArgument(message)
    try:
        value.encode()
    except UnicodeEncodeError:
        message = (
            f"{what} holds half a character (a lone surrogate), which no store can keep: "
            f"{shown(value)}. Decode the bytes it came from with errors='replace'."
        )
        raise InvalidArgument(message) from None
    if "\x00" in value:
        message = f"{what} holds a NUL character, which not every store can keep: {shown(value)}"
        raise InvalidArgument(message)
    return value
