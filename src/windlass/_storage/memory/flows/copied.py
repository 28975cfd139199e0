"""Flows of another storage, as they would be asked for here."""

from __future__ import annotations

from collections.abc import Sequence

from windlass._core.flows.flow import FlowRecord, NewFlow, NewPart, PartRecord

__all__ = ["asked_of"]


def asked_of(flow: FlowRecord, parts: Sequence[PartRecord]) -> NewFlow:
    """Return a stored flow without its jobs, to be stored again."""
    asked = [
        NewPart(
            name=one.name,
            kind=one.kind,
            task=one.task,
            when=one.when,
            after=one.after,
            added=one.added,
        )
        for one in parts
    ]
    return NewFlow(
        id=flow.id,
        name=flow.name,
        parts=tuple(asked),
        jobs=(),
        key=flow.key,
        tenant=flow.tenant,
        expires=flow.expires,
        sealed=flow.sealed,
    )
