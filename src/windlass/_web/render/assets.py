"""Our own files for the browser: read once, named by what is in them, never looked up by path."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from windlass.errors import ConfigError

__all__ = ["Asset", "Assets"]

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FOREVER = "public, max-age=31536000, immutable"


class Asset(msgspec.Struct, frozen=True):
    """One file."""

    name: str
    """With a part of its digest: other content has another name, so it may be kept for ever."""
    kind: str
    content: bytes
    packed: bytes


class Assets:
    """The fixed list of files; a name that is not on it does not exist."""

    def __init__(self) -> None:
        """Read everything that was installed with us."""
        found = {name: _asset(name, content) for name, content in _read(files("windlass._web"))}
        self._by_source = found
        self._by_name = {asset.name: asset for asset in found.values()}

    def name(self, source: str) -> str:
        """Return the name of ``live.js`` in URLs."""
        if source not in self._by_source:
            message = f"no asset is called {source!r}; known: {', '.join(sorted(self._by_source))}"
            raise ConfigError(message)
        return self._by_source[source].name

    def respond(self, request: Request, name: str) -> Response | None:
        """Return the file of that name, if there is one."""
        asset = self._by_name.get(name)
        if asset is None:
            return None
        headers = {"Cache-Control": _FOREVER, "Vary": "Accept-Encoding"}
        content = asset.content
        if "gzip" in request.headers.get("accept-encoding", ""):
            content, headers["Content-Encoding"] = asset.packed, "gzip"
        return Response(content, media_type=asset.kind, headers=headers)


def _read(package: Traversable) -> Iterator[tuple[str, bytes]]:
    own = package.joinpath("assets")
    for folder, prefix in ((own, ""), (own.joinpath("vendor"), "vendor/")):
        for entry in folder.iterdir():
            if entry.is_file() and entry.name.endswith(tuple(_TYPES)):
                yield f"{prefix}{entry.name}", entry.read_bytes()


def _asset(source: str, content: bytes) -> Asset:
    stem, dot, ending = source.rpartition("/")[2].rpartition(".")
    digest = hashlib.sha256(content).hexdigest()[:12]
    packed = gzip.compress(content, mtime=0)
    return Asset(f"{stem}.{digest}{dot}{ending}", _TYPES[f".{ending}"], content, packed)
