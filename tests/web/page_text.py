"""A page as somebody reads it."""

from __future__ import annotations

from html.parser import HTMLParser

__all__ = ["links", "words"]


class _Words(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.links: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.links.append(dict(attrs).get("href") or "")

    def handle_data(self, data: str) -> None:
        self.parts.append(data)


def words(page: str) -> str:
    """Its text, without markup."""
    return " ".join(" ".join(_Words(page).parts).split())


def links(page: str, start: str) -> list[str]:
    """Where its links lead, of those that begin so."""
    return [link for link in _Words(page).links if link.startswith(start)]
