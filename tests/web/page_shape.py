"""What a page is made of, whatever it says: hostile text must not add to it."""

from __future__ import annotations

from html.parser import HTMLParser

__all__ = ["shape"]


class _Parts(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: set[tuple[str, str]] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add((tag, ""))
        self.found.update((tag, name) for name, _ in attrs)


def shape(page: str) -> set[tuple[str, str]]:
    """Every element, and every attribute of one."""
    return _Parts(page).found
