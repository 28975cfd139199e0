"""Stores that forget who was first."""

from __future__ import annotations

import asyncio

from tests.storage.mutants.table import fails
from windlass._storage.memory.admin.admin import MemoryAdmin
from windlass.testing.conformance import SecretConformance


@fails(SecretConformance.test_the_first_secret_is_kept)
class TakesTheLast(MemoryAdmin):
    """Every new secret is the secret."""

    async def secret(self, new: str = "", *, old: str = "") -> str:
        return await super().secret(new, old=await super().secret())


@fails(SecretConformance.test_of_those_who_come_at_once_one_makes_the_secret)
class LooksFirst(MemoryAdmin):
    """Between the look and the write there is time for others."""

    async def secret(self, new: str = "", *, old: str = "") -> str:
        stored = await super().secret()
        await asyncio.sleep(0)
        return await super().secret(new, old=await super().secret()) if stored == old else stored


@fails(SecretConformance.test_another_secret_needs_the_one_before)
class NeverChanges(MemoryAdmin):
    """What is stored once stays."""

    async def secret(self, new: str = "", *, old: str = "") -> str:
        return await super().secret(new)
