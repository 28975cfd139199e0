"""`AdminStore.secret`: made once, by the first caller."""

from __future__ import annotations

import asyncio

from windlass._storage.protocol.storage import Storage

__all__ = ["SecretConformance"]


class SecretConformance:
    """One secret for all who use a storage."""

    async def test_the_first_secret_is_kept(self, storage: Storage) -> None:
        assert await storage.admin.secret() == ""
        assert await storage.admin.secret("first") == "first"
        assert await storage.admin.secret("second") == "first"
        assert await storage.admin.secret() == "first"

    async def test_of_those_who_come_at_once_one_makes_the_secret(self, storage: Storage) -> None:
        told = await asyncio.gather(*(storage.admin.secret(f"s{n}") for n in range(5)))
        assert {*told} == {await storage.admin.secret()}
        assert told[0] in {f"s{n}" for n in range(5)}

    async def test_another_secret_needs_the_one_before(self, storage: Storage) -> None:
        assert await storage.admin.secret("new", old="never") == ""
        await storage.admin.secret("old")
        assert await storage.admin.secret("new", old="never") == "old"
        assert await storage.admin.secret("new", old="old") == "new"
        assert await storage.admin.secret("late", old="old") == "new"
