"""Host names and IP addresses, as far as the commands that listen need to know them."""

from __future__ import annotations

import ipaddress

__all__ = ["is_address", "is_loopback", "name_in"]


def is_address(name: str) -> bool:
    """Return whether this is an IP address, also in the brackets of a URL."""
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches what listens there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def name_in(host: str) -> str:
    """Return the name in a ``Host`` header, without its port."""
    return (host if host.endswith("]") else host.rpartition(":")[0] or host).lower()
