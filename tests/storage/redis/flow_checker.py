"""Whether the keys of flows hang together, and agree with the rules of the core."""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from typing import Any, Protocol

import msgspec

from windlass._core.flows.flow import FlowState, PartKind, When
from windlass._core.flows.part import Counts, Gate, is_due, rank_of, tidings
from windlass._core.job.state import TERMINAL, State
from windlass._storage.redis.io.layout import STATES

_PART = struct.Struct(">BBBB8I5I2I")
_FEED = struct.Struct(">IB")
_COUNTS = ["total", "open", "blocked", "succeeded", "failed", "cancelled", "stopped", "skipped"]
_KINDS, _STATES = tuple(PartKind), tuple(FlowState)
_BLOCKED, _ADDED = 2, 1


class Look(Protocol):
    """What the checker of all keys has read."""

    jobs: dict[bytes, Any]
    families: dict[bytes, set[bytes]]

    def membership(self, job: bytes) -> bytes: ...
    def state(self, job: bytes) -> int: ...
    def fields(self, key: bytes) -> dict[bytes, bytes]: ...
    def scores(self, key: bytes) -> dict[bytes, float]: ...
    def members(self, key: bytes) -> set[bytes]: ...
    def blocked(self) -> set[bytes]: ...


def flow_faults(look: Look) -> list[str]:
    """What does not hang together. Flows whose deletion has begun are left alone."""
    flows = {i: msgspec.msgpack.decode(text) for i, text in look.fields(b"flows").items()}
    deleted = set(look.fields(b"flows_deleted"))
    wanted = _Wanted(look, flows)
    found: list[str] = []

    def same(what: str, is_: Any, should: Any) -> None:
        if is_ != should:
            found.append(f"{what}: is {is_!r}, should be {should!r}")

    for family in (b"members", b"blocked", b"stopped", b"skipped"):
        stored = {
            key: look.scores(family + b":" + key)
            for key in look.families[family]
            if key[:16] not in deleted
        }
        if family in {b"stopped", b"skipped"}:
            ends = {job for line in stored.values() for job in line}
            if not ends <= {j for j in look.jobs if STATES[look.state(j)] in TERMINAL}:
                found.append(f"{family!r} has jobs that have not ended")
        else:
            same(family.decode(), stored, getattr(wanted, family.decode()))
    same("blocked by queue", {q: int(n) for q, n in look.fields(b"blocked").items()},
         dict(Counter(look.jobs[j].queue.encode() for j in look.blocked())))  # fmt: skip
    numbers = {i: float(flow[0]) for i, flow in flows.items()}
    same("flow_numbers", look.scores(b"flow_numbers"), numbers)
    ended: dict[bytes, dict[bytes, float]] = defaultdict(dict)
    for i, flow in flows.items():
        if flow[6]:
            ended[b"%d" % flow[6]][i] = float(flow[7])
    running = {i: float(flow[4]) for i, flow in flows.items() if not flow[6]}
    same("flows_running", look.scores(b"flows_running"), running)
    retried = {i for i, flow in flows.items() if flow[15] is not False}
    same("flows_retried", look.members(b"flows_retried"), retried)
    lines = {s: look.scores(b"flows_ended:" + s) for s in look.families[b"flows_ended"]}
    same("flows_ended", lines, dict(ended))
    held = {f[2].encode(): i for i, f in flows.items() if f[2] is not False and not f[6]}
    same("flow_keys", look.fields(b"flow_keys"), held)
    plans = {key: msgspec.msgpack.decode(text) for key, text in look.fields(b"plans").items()}
    same("flows_added", look.fields(b"flows_added"), {
        bytes.fromhex(plan[3][0]): key[:16] + struct.pack(">I", plan[3][1])
        for key, plan in plans.items() if len(plan) > 3
    })  # fmt: skip
    found += wanted.parts(deleted)
    return found


class _Wanted:
    """What the jobs, and the rules, say that there must be."""

    def __init__(self, look: Look, flows: dict[bytes, list[Any]]) -> None:
        self.look, self.flows = look, flows
        self.members: dict[bytes, dict[bytes, float]] = defaultdict(dict)
        self.blocked: dict[bytes, dict[bytes, float]] = defaultdict(dict)
        for job, asked in look.jobs.items():
            membership = look.membership(job)
            if membership and membership[:16] in flows:
                key, flags = membership[:20], membership[20]
                self.members[key][job + (b"a" if flags & _ADDED else b"")] = asked.seq
                if flags & _BLOCKED:
                    self.blocked[key][job] = asked.seq
        self.members, self.blocked = dict(self.members), dict(self.blocked)

    def parts(self, deleted: set[bytes]) -> list[str]:
        found: list[str] = []
        stored = self.look.fields(b"parts")
        rows = {key: _PART.unpack(text) for key, text in stored.items()}
        gates: dict[bytes, list[int]] = defaultdict(lambda: [0, 0, 0, 0, 0])
        for key, row in rows.items():
            if row[-1]:
                gate = gates[key[:16] + struct.pack(">I", row[-1] - 1)]
                gate[3] += not row[2] & 1
                gate[4] += bool(row[2] & 2)
        for key, text in self.look.fields(b"feeds").items():
            told = rows[key][2]
            for number, strict in _FEED.iter_unpack(text):
                gate = gates[key[:16] + struct.pack(">I", number)]
                gate[0] += not told & 1
                gate[1] += bool(told & 2 and strict)
                gate[2] += bool(told & 4 and strict)
        settle = {}
        for key, row in rows.items():
            if key[:16] in deleted:
                continue
            fault, due = self.part(key, row, gates[key])
            found += fault
            if due:
                settle[key] = True
        for i, flow in self.flows.items():
            if flow[5] and not flow[6] and not flow[8]:
                settle[b"x" + i] = True
        marks = {m for m in self.look.scores(b"settle") if len(m) != 16}
        if marks != settle.keys():
            found.append(f"settle: is {marks!r}, should be {set(settle)!r}")
        return found

    def part(self, key: bytes, row: tuple[int, ...], gate: list[int]) -> tuple[list[str], bool]:
        kind, on_failure, told, marked, *numbers = row
        found: list[str] = []
        counts = Counts(**dict(zip(_COUNTS, numbers, strict=False)))
        if list(numbers[8:13]) != gate:
            found.append(f"gate of {key!r}: is {numbers[8:13]}, should be {gate}")
        jobs = Counter(STATES[self.look.state(m[:16])] for m in self.members.get(key, ()))
        ends = {
            State.SUCCEEDED: counts.succeeded,
            State.FAILED: counts.failed,
        }
        for state, number in ends.items():
            if jobs[state] != number:
                found.append(f"{state} of {key!r}: is {number}, should be {jobs[state]}")
        open_ = jobs[State.WAITING] + jobs[State.RUNNING]
        if (counts.total, counts.open) != (sum(jobs.values()), open_):
            found.append(f"total and open of {key!r}: {counts}, and jobs {jobs}")
        when: When = "failed" if on_failure else "succeeded"
        cancelled = bool(self.flows[key[:16]][8])
        its = (_KINDS[kind], when, Gate(*gate), counts)
        rank = rank_of(_KINDS[kind], int.from_bytes(key[16:]), row[-2])
        retried = self.flows[key[:16]][15]
        returning = retried is not False and kind == 0 and rank >= retried
        says = tidings(*its, cancelled=cancelled, returning=returning)
        if told != says.over + 2 * says.broken + 4 * says.unneeded:
            found.append(f"{key!r} told {told}, should tell {says}")
        due = is_due(*its, cancelled=cancelled)
        if due != bool(marked):
            found.append(f"{key!r} is marked {marked}, and due {due}")
        return found, due
