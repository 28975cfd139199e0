"""Flows: list them, look at one, cancel it, retry what failed, count again."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass._admin.flows.explain import FlowExplanation, explain_flow
from windlass._admin.flows.ids import missing_flow, resolve_flow
from windlass._admin.session import AdminSession
from windlass._core.flows.flow import FlowRecord, FlowState
from windlass._storage.protocol.actions import ActionResult
from windlass._storage.protocol.flows import (
    FlowAction,
    FlowCounts,
    FlowFilter,
    FlowGraph,
    FlowStore,
    Member,
)

__all__ = ["FlowAdmin"]

_AT_ONCE = 100
"""Flows in one step of a recount."""


class FlowAdmin:
    """``app.admin.flows``: flows, and what people do about them."""

    def __init__(self, session: AdminSession) -> None:
        self._session = session

    async def list(
        self,
        *,
        states: Sequence[FlowState] | None = None,
        name: str | None = None,
        key: str | None = None,
        tenant: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> Sequence[FlowRecord]:
        """List flows, newest first. ``before``: the ``number`` of the last one of the page before.

        ``states`` may be words: ``states=["running"]``.
        """
        wanted = FlowFilter(
            states=None if states is None else [FlowState(state) for state in states],
            name=name,
            key=key,
            tenant=tenant,
        )
        store = (await self._session.storage()).flows
        return await store.find(wanted, before=before, limit=limit)

    async def counts(self, *, cap: int = 10_000) -> FlowCounts:
        """Count flows by state, and their blocked jobs. Each count stops at ``cap``."""
        return await (await self._session.storage()).flows.counts(cap=cap)

    async def get(self, flow: str) -> FlowGraph:
        """Return a flow with its parts and their counts; FlowNotFound. The id may be short, as
        ``0192f3a1…9c4e07``.
        """
        uid = await resolve_flow(self._session, flow)
        found = await (await self._session.storage()).flows.graph(uid)
        if found is None:
            raise await missing_flow(self._session, uid)
        return found

    async def explain(self, flow: str) -> FlowExplanation:
        """Explain which jobs a flow waits for and why, or which have failed; FlowNotFound."""
        return await explain_flow(self._session, await self.get(flow))

    async def members(
        self, flow: str, part: int, *, after: int = 0, limit: int = 50
    ) -> Sequence[Member]:
        """List the jobs of a part in the order in which they were given, without their results and
        errors: `app.admin.jobs.get` has these. ``after``: the ``seq`` of the last one of the page
        before. Jobs that other members added are left out.
        """
        store = (await self._session.storage()).flows
        uid = await resolve_flow(self._session, flow)
        found = await store.members(uid, part, after=after, limit=limit)
        # Results and messages may hold secrets, which `app.admin.jobs` masks.
        return [
            msgspec.structs.replace(one, result=None, error_message="", reason=None)
            for one in found
        ]

    async def cancel(self, flow: str) -> ActionResult:
        """Cancel what waits, and ask what runs to stop. "wrong_state" if the flow has ended."""
        return await self._act(flow, "cancel")

    async def retry(self, flow: str) -> ActionResult:
        """Run again what failed, and what that has stopped. "wrong_state" if the flow runs or has
        succeeded, "conflict" if another running flow holds its key.
        """
        return await self._act(flow, "retry")

    async def recount(self, flow: str | None = None, *, repair: bool = False) -> Sequence[str]:
        """Check the counts of a flow, or of all flows, against their jobs, and return what does not
        agree. ``repair`` corrects the counts. FlowNotFound.
        """
        storage = await self._session.storage()
        if flow is None:
            wrong, subject = await _recount_all(storage.flows, repair=repair), "all flows"
        else:
            one = (await self.get(flow)).flow
            subject = f"flow {one.id}"
            wrong = (
                await storage.flows.recount(after=one.number - 1, limit=1, repair=repair)
            ).wrong
        if wrong and repair:
            note = self._session.note("flows.recount", subject, f"{len(wrong)} counts")
            await storage.orders.record(note, len(wrong))
        return wrong

    async def _act(self, flow: str, action: FlowAction) -> ActionResult:
        store = (await self._session.storage()).flows
        uid = await resolve_flow(self._session, flow)
        note = self._session.note(f"flows.{action}", f"flow {uid}")
        (answer,) = await store.act([uid], action, note)
        if answer is ActionResult.UNKNOWN:
            raise await missing_flow(self._session, uid)
        return answer


async def _recount_all(store: FlowStore, *, repair: bool) -> Sequence[str]:
    wrong: list[str] = []
    after: int | None = 0
    while after is not None:
        found = await store.recount(after=after, limit=_AT_ONCE, repair=repair)
        wrong += found.wrong
        after = found.next
    return wrong
