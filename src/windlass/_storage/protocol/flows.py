"""`FlowStore`: flows, started and kept as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal, Protocol

import msgspec

from windlass._core.flows.flow import FlowRecord, FlowState, NewFlow, PartRecord
from windlass._core.job.job import FlowId, JobId, NewJob
from windlass._core.job.state import State
from windlass._storage.protocol.actions import ActionResult, AuditNote

__all__ = [
    "AddAnswer",
    "FlowAction",
    "FlowCounts",
    "FlowFilter",
    "FlowGraph",
    "FlowStore",
    "Member",
    "Recounted",
    "StartedFlow",
]


class StartedFlow(msgspec.Struct, frozen=True):
    """The answer for one new flow."""

    id: FlowId
    """The new flow's id, or that of the running flow that holds its key."""
    created: bool
    """False: a running flow with the same key was found and is the answer."""
    repeated: bool = False
    """The id was stored before: this call has stored nothing for it."""


class AddAnswer(StrEnum):
    """The answer to `FlowStore.add`."""

    ADDED = "added"
    REPEATED = "repeated"
    """An earlier call has added it: this one has stored nothing."""
    ENDED = "ended"
    """The running flow has ended, was cancelled, or is past its expiry."""
    SEALED = "sealed"
    """Not all jobs of the running flow are stored."""
    UNKNOWN = "unknown"
    """No such flow is stored."""


class Member(msgspec.Struct, frozen=True):
    """A job of a part, as its readers need it."""

    seq: int
    """Rises within a part in the order of its jobs: the cursor of the next page."""
    id: JobId
    state: State
    blocked: bool
    result: bytes | None = None
    error_kind: str = ""
    error_message: str = ""
    reason: str | None = None


class FlowFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which flows to list; what is left out does not narrow."""

    states: Sequence[FlowState] | None = None
    name: str | None = None
    key: str | None = None
    tenant: str | None = None


class FlowCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Number of flows by state, and of their blocked jobs. A count that equals ``cap`` means that
    number or more.
    """

    running: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    blocked: int = 0
    """Jobs that wait for other parts of their flows."""
    oldest: datetime | None = None
    """The start of the running flow that was started first; None: none runs."""
    cap: int = 0


class FlowGraph(msgspec.Struct, frozen=True):
    """A flow with its parts, by number."""

    flow: FlowRecord
    parts: Sequence[PartRecord]
    retried: int | None = None
    """The rank of the part that a retry has reached, in what `CopyStore.dump_flows` returns."""


FlowAction = Literal["cancel", "retry"]
"""An action of an operator on a whole flow."""


class Recounted(msgspec.Struct, frozen=True):
    """The result of counting flows again."""

    wrong: Sequence[str] = ()
    """The counts that did not agree, in words."""
    next: int | None = None
    """The cursor of the next call; None: all were counted."""


class FlowStore(Protocol):
    """Flows: jobs that wait for jobs.

    A part counts its jobs and the parts that it waits for (`windlass._core.flows.part`). Every
    write that ends a member, or brings an ended one back, changes these counts in the same
    transaction, behind the same fence: `JobStore.apply`, `cancel`, `claim` (expiry), `ActionStore`,
    `MaintenanceStore.expire`, and the end of a lost worker's claims. Only a change between ended
    and not ended counts, once. When a part has ended, or has its first failure, the parts after it
    learn that in the same write, and so does the flow.

    A flow that runs again after its end, by a retry or a requeue, has its whole ``expires`` again,
    counted from that write.

    Members that wait for other parts are *blocked*: waiting, but in no line of a claim, at any due
    time. Their delay and expiry count from when they are placed. For the actions on jobs:

    - Requeue of an ended member reopens its part, the parts after it and the flow. If its part
      waits for others, it is blocked, and settling decides about it as about any other. CONFLICT if
      another running flow holds the key of an ended flow. WRONG_STATE for a member that was stopped
      or skipped, because the failed one is to be requeued, and for all members of a cancelled flow,
      because the flow is to be retried.
    - Cancel ends a blocked member at once; it is a failure to those that wait for it.
    - Edit changes queue and priority of a blocked member, never its due time (WRONG_STATE), and
      does not unblock it. Run-now answers WRONG_STATE for blocked members.
    - Delete answers WRONG_STATE for every member: a flow is deleted as a whole.
    - Replacing by key treats a blocked holder like a running one.
    - ``keep=False`` and `MaintenanceStore.prune` do not delete members.

    What a member adds by its success (`Transition.then`) belongs to its part: those that wait for
    the member wait for these jobs, too. They are counted in that write, before the member's own
    end, and placed at once. A job that is left out, because its key is held or its id is stored,
    counts for nothing. In a cancelled flow nothing is added. `Applied.left_out` names these jobs. A
    follow-up of a failure does not belong to the flow.

    A flow that a success adds (`Transition.flows`) is stored whole or left out. Its jobs have no
    unique keys.

    - If a member adds it, its parts are added to the member's flow, after the parts there
      (`windlass._core.flows.plan.parts_to_add`). It counts like one job of the member's part: the
      part ends after it, and fails if it fails. It is counted in that
      write, before the member's end. All its jobs are blocked at first, and placed by `settle`. Its
      ``key`` and ``expires`` are for flows of their own. `members` finds its jobs by its id and the
      numbers of its own parts.
    - If another job adds it, or the callback of a flow, it is started, as by `start`.
    - It is left out if its id, or that of one of its jobs, is stored, if a running flow holds its
      key, or if the member's flow was cancelled. `Applied.left_out` names its jobs.
    """

    @property
    def portion(self) -> int:
        """The number of jobs that one `start` or `extend` stores at most: more would keep other
        callers waiting.
        """
        ...

    async def start(self, flows: Sequence[NewFlow]) -> Sequence[StartedFlow]:
        """Store flows with their parts and jobs, all or none, and answer in order.

        - Jobs of parts that wait for nothing are placed as `JobStore.insert` places them. The
          others are blocked.
        - A part without jobs ends when the parts that it waits for have ended.
        - A stored id is a repeated call: ``created`` and ``repeated``.
        - A key that a running flow holds: that flow is the answer, and nothing is stored.
        - A sealed flow that got no jobs for `SEALED_KEEPS_KEY` gives its key up: it is cancelled,
          and the new one stored. A cancelled flow that was never whole holds no key.
        - A unique key of a job that another job holds raises KeyConflict. An undefined limit raises
          LimitUnknown. A stored job id raises IdConflict. Nothing of the call is stored then.
        """
        ...

    async def extend(
        self,
        flow: FlowId,
        jobs: Sequence[tuple[int, NewJob]],
        *,
        last: bool,
    ) -> bool:
        """Store further jobs of a sealed flow, all or none, each with the number of its part.

        - All jobs of a sealed flow are blocked. ``last`` opens it: from this write on its parts are
          settled, and its ``expires`` counts.
        - A flow that gets no jobs for `SEALED_FOR` is cancelled. It cannot be retried. Callbacks
          that were not stored yet never run.
        - False: the flow was cancelled or deleted, and nothing was stored. If the first of the jobs
          is stored, the call is a repeated one: True.
        - Errors as from `start`. Jobs with unique keys are not for sealed flows.
        """
        ...

    async def add(self, flow: FlowId, new: NewFlow) -> AddAnswer:
        """Let the parts of a new flow join a running one, all or none, from outside.

        - It counts for the end of the running flow: that is not over before it, and a failure of it
          is one of the running flow. Nothing that is there waits for it.
        - Its parts and jobs are stored as those of a flow that a member adds. Their rank is behind
          all parts that are there.
        - Its first parts wait for the parts in ``new.after``, which were there when the running
          flow was started. What these have told by now counts in this write: one that has ended is
          not waited for, and one that has failed stops what waits for its success.
        - If its id was added to this flow before, the call is a repeated one, in any state of the
          flow. An id that is stored elsewhere, and a stored job id, raise IdConflict. An undefined
          limit raises LimitUnknown.
        - With an error, and with ENDED, SEALED and UNKNOWN, nothing is stored.
        """
        ...

    async def settle(self, limit: int) -> int:
        """Move up to ``limit`` jobs of parts that are due: place, end or block them; return how
        many. Up to ``limit`` flows that have expired are cancelled, and retries continue.

        What `decide` says about the part at that moment holds. Placed jobs are due when their
        ``delay`` is over, and ordered by the flow's start. Ended ones count like any other end.
        Claims and `JobStore.apply` do the same in smaller portions.
        """
        ...

    async def members(
        self, flow: FlowId, part: int, *, after: int = 0, limit: int = 500
    ) -> Sequence[Member]:
        """Return a page of a part's jobs, ended or not, in the order in which they were given.
        Those that members added are left out.
        """
        ...

    async def act(
        self, flows: Sequence[FlowId], action: FlowAction, note: AuditNote
    ) -> Sequence[ActionResult]:
        """Cancel flows, or retry them, with an audit record as `ActionStore.order` stores it.

        - Cancel: from this write on no member is placed or stopped anew by anything else. Waiting
          members are cancelled, and the workers of running ones asked, by `settle`, in portions. A
          member that succeeds meanwhile stays succeeded. WRONG_STATE for a flow that has ended.
        - Retry: members that failed, were cancelled or expired are requeued, and what that had
          stopped is blocked again. This write does it for up to `RETRIED_AT_ONCE` members,
          `settle` for the rest, in portions. The flow runs from this write on, and no part has
          ended before the retry has reached all its members. If none comes back, because other jobs
          hold the keys of all, the flow ends again. WRONG_STATE for a flow that runs or has
          succeeded, CONFLICT if another running flow holds its key.
        """
        ...

    async def find(
        self, wanted: FlowFilter, *, before: int | None = None, limit: int = 50
    ) -> Sequence[FlowRecord]:
        """List flows, newest first: those below number ``before``."""
        ...

    async def counts(self, *, cap: int) -> FlowCounts:
        """Count flows by state. Each count stops at ``cap``, so it is flat in the number of flows
        and jobs.
        """
        ...

    async def states(self, flows: Sequence[FlowId]) -> Sequence[FlowState | None]:
        """Return the states of flows, in order; None: it is not stored, or its deletion has begun.
        Waiting callers ask often: no parts and no jobs are read. Read-only.
        """
        ...

    async def graph(self, flow: FlowId) -> FlowGraph | None:
        """Return a flow with its parts and their counts; None: it is not stored."""
        ...

    async def prune(self, *, state: FlowState, older_than: timedelta, limit: int) -> int:
        """Delete flows that reached this state longer ago, with all their jobs, up to about
        ``limit`` jobs. Return how many. A flow whose deletion has begun is not found any more.
        """
        ...

    async def recount(self, *, after: int = 0, limit: int = 100, repair: bool = False) -> Recounted:
        """Check the stored counts of up to ``limit`` flows against their jobs; ``repair`` corrects
        them.
        """
        ...
