"""Where an error comes from, read off its traceback: what makes two errors the same."""

from __future__ import annotations

import re

__all__ = ["frame_of"]

_FRAME = re.compile(r'^[\s|+-]*File "(?P<path>[^"\n]*)", line \d+, in (?P<name>.+)$', re.MULTILINE)
_NOT_THEIRS = re.compile(r"[/\\](site-packages|dist-packages|lib[/\\]python3[^/\\]*)[/\\]|^<")
_LONGEST = 200


def frame_of(traceback: str) -> str:
    """Return the innermost frame of the user's own code, as ``jobs/mail.py send``; "" without one.

    Without the line: it moves with every deploy, and the same fault would be a new one. Where all
    frames are a library's, the innermost of them.
    """
    frames = [(found["path"], found["name"]) for found in _FRAME.finditer(traceback)]
    if not frames:
        return ""
    theirs = [frame for frame in frames if not _NOT_THEIRS.search(frame[0])]
    path, name = (theirs or frames)[-1]
    place = "/".join(re.split(r"[/\\]", path)[-2:])
    return f"{place} {name.strip()}"[-_LONGEST:]
