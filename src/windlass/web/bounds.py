"""What one answer may cost: time, rows and bytes. Pages and the API take their bounds from here."""

from __future__ import annotations

__all__ = ["ANSWER", "CHECKED_WITHIN", "COUNTED_WITHIN", "PREVIEW", "READ_WITHIN", "ROWS"]

READ_WITHIN = 2.0
"""Seconds. What takes longer is given up: a page that asks again by itself says so."""
COUNTED_WITHIN = 1.0
"""Seconds. A count that takes longer says how far it came."""
CHECKED_WITHIN = 30.0
"""Seconds for all checks of the doctor, who waits for hints to come through."""
ROWS = 200
"""Of one page of any list."""
ANSWER = 1_000_000
"""Bytes of one page of any list."""
PREVIEW = 4096
"""Bytes of a text in a list; the thing itself, at an address of its own, has all of it."""
