"""Groups and chords, and the functions that Celery has for making them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast, overload

from windlass._tasks.flows.flow import Flow, Group, Node
from windlass.errors import InvalidArgument
from windlass.integrations.celery._end import AnyResult, End, after
from windlass.integrations.celery._results import GroupResult
from windlass.integrations.celery._signature import (
    Canvas,
    ChainSignature,
    SeveralJobs,
    Signature,
    checked,
)

__all__ = ["ChordHeader", "GroupSignature", "chain", "chord", "group"]

MOST_IN_A_LIST = 5_000
"""Results that a job takes as a list. Each of them is a part of its flow."""


class ChordHeader:
    """A chord without its body: ``chord(header)(body)``."""

    def __init__(self, header: Canvas) -> None:
        self._header = header

    def __call__(self, body: Canvas) -> AnyResult:
        """Store all jobs."""
        return ChainSignature([self._header, body], "chord").apply_async()


class GroupSignature(SeveralJobs):
    """Signatures that run side by side. Made by `group`."""

    def __init__(self, members: Iterable[Canvas]) -> None:
        """Make one."""
        super().__init__(members, "group")

    def apply_async(
        self, args: Any = None, kwargs: Any = None, *, link_error: Any = None, **options: Any
    ) -> GroupResult[Any]:
        """Store all jobs as one flow, whole or not at all. ``link_error``: as `on_error`."""
        made = super().apply_async(args, kwargs, link_error=link_error, **options)
        return cast("GroupResult[Any]", made)

    def delay(self) -> GroupResult[Any]:
        """Store all jobs."""
        return self.apply_async()

    def __call__(self) -> GroupResult[Any]:
        """Call `apply_async`."""
        return self.apply_async()

    @property
    def heads(self) -> Sequence[Signature]:
        """Those of all members."""
        return [head for member in self.members for head in member.heads]

    def draw(
        self,
        flow: Flow,
        before: End | None = None,
        then: Canvas | None = None,
        into: Group[Any] | None = None,
    ) -> End:
        """Add the members as one group."""
        if into is not None:
            message = "a group cannot end in a group: put all signatures into one group(…)"
            raise InvalidArgument(message)
        pages = all(head.immutable or head.takes_results for head in (then.heads if then else ()))
        plain = [one for one in self.members if isinstance(one, Signature) and one.is_plain]
        if pages and len(plain) == len(self.members):
            calls = [one.call(one.arguments_after(before)) for one in plain]
            return End(flow.map_calls(calls, after=after(before)), before=before)
        if len(self.members) > MOST_IN_A_LIST:
            message = (
                f"the next step takes the results of {len(self.members):,} jobs as a list: above "
                f"{MOST_IN_A_LIST:,} annotate its first parameter as Results[…], which it reads in "
                f"pages, and leave links out"
            )
            raise InvalidArgument(message)
        whole = flow.group("group")
        ends = [member.draw(flow, before, None, whole) for member in self.members]
        return End(whole, [one.jobs for one in ends if isinstance(one.jobs, Node)], before)


def chain(*steps: Canvas | Iterable[Canvas]) -> ChainSignature:
    """Run steps one after the other: ``chain(add.s(2, 2), add.s(4))``."""
    return ChainSignature(_flat(steps))


def group(*members: Canvas | Iterable[Canvas]) -> GroupSignature:
    """Run signatures side by side: ``group(add.s(n, n) for n in range(10))``."""
    return GroupSignature(_flat(members))


@overload
def chord(header: Canvas | Iterable[Canvas]) -> ChordHeader: ...
@overload
def chord(header: Canvas | Iterable[Canvas], body: Canvas) -> ChainSignature: ...
def chord(
    header: Canvas | Iterable[Canvas], body: Canvas | None = None
) -> ChainSignature | ChordHeader:
    """Run ``body`` with the results of ``header``: a list, or `Results` if its parameter is
    annotated so. The body may be given later: ``chord(header)(body)``.
    """
    made = header if isinstance(header, GroupSignature) else group(header)
    return ChordHeader(made) if body is None else ChainSignature([made, body], "chord")


def _flat(given: Sequence[Canvas | Iterable[Canvas]]) -> list[Canvas]:
    if len(given) == 1 and not isinstance(given[0], Canvas) and isinstance(given[0], Iterable):
        return list(given[0])
    return [checked(one) for one in given]
