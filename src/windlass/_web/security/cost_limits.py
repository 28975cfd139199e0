"""Limits on the cost of one answer: time, rows and bytes. Pages and the API take their bounds from
here.
"""

from __future__ import annotations

__all__ = ["ANSWER", "CHECK_TIMEOUT", "COUNT_TIMEOUT", "PREVIEW", "READ_TIMEOUT", "ROWS"]

READ_TIMEOUT = 2.0
"""Seconds. What takes longer is given up: a page that asks again by itself says so."""
COUNT_TIMEOUT = 1.0
"""Seconds. A count that takes longer says how far it came."""
CHECK_TIMEOUT = 30.0
"""Seconds for all checks of the doctor, who waits for hints to come through."""
ROWS = 200
"""Of one page of any list."""
ANSWER = 1_000_000
"""Bytes of one page of any list."""
PREVIEW = 4096
"""Bytes of a text in a list; the item's own address has all of it."""
