"""Whether everything under a prefix hangs together: nothing left behind, nothing missing."""

from __future__ import annotations

import struct
from collections import defaultdict
from typing import Any

import msgspec
from redis import Redis

from tests.storage.redis.flow_checker import flow_faults
from windlass._core.job.state import State
from windlass._core.limits.cooldown import MAX_STEPS
from windlass._core.limits.queue_settings import QueueSettings
from windlass._storage.redis.io.layout import CODES, ERROR, SOLO, THROTTLED
from windlass._storage.redis.io.records import state_record_of
from windlass._storage.redis.jobs.request import JobRequest, decode_request, key_and_limits

_WAITING, _RUNNING = CODES[State.WAITING], CODES[State.RUNNING]
_PLACE = 34
_LONE = 255
"""The ninth byte in the record of a bay that has one lane, and no list."""
_SINGLE = frozenset(
    b"seq jobs state all errors tracebacks progress dead keys due expiring holders counts paused "
    b"rollups gauges live wake notices limits lanes bays epoch opened fence born born_seq ended "
    b"roles "
    b"throttled settings brakes breakers schedules planned declared frames audit audits audit_ages "
    b"metadata missed audit_seq events event_seq journal charged finishes odd secret "
    b"flows flows_added flow_seq flow_numbers flows_running flows_retried flow_keys flows_deleted "
    b"parts feeds plans settle "
    b"blocked".split()
)
_MANY = frozenset(
    b"history later ready solo lane lane_expiring running finished oldest rollups gates holds "
    b"bays bay open timed waits shut worker retrying audits_of logs events copied gauges "
    b"work members blocked stopped skipped flows_ended".split()
)


def disorder(server: Redis, prefix: str) -> list[str]:
    """What does not hang together; ``prefix`` with its braces and colon."""
    return _Look(server, prefix.encode()).faults()


class _Look:
    def __init__(self, server: Redis, prefix: bytes) -> None:
        self.server: Any = server
        self.prefix = prefix
        self.found: list[str] = []
        self.families: dict[bytes, set[bytes]] = defaultdict(set)
        for key in server.scan_iter(match=prefix + b"*", count=1000):
            family, colon, rest = key[len(prefix) :].partition(b":")
            self.expect(family in (_MANY if colon else _SINGLE), f"unknown key {key!r}")
            if colon:
                self.families[family].add(rest)
        self.jobs = {i: decode_request(text) for i, text in self.fields(b"jobs").items()}
        self.kept = {i: state_record_of(text) for i, text in self.fields(b"state").items()}

    def expect(self, fine: bool, fault: str) -> None:  # noqa: FBT001 -- as in assert
        if not fine:
            self.found.append(fault)

    def same(self, what: str, is_: Any, should: Any) -> None:
        self.expect(is_ == should, f"{what}: is {is_!r}, should be {should!r}")

    def fields(self, key: bytes) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = self.server.hgetall(self.prefix + key)
        return found

    def members(self, key: bytes) -> set[bytes]:
        found: set[bytes] = self.server.smembers(self.prefix + key)
        return found

    def scores(self, key: bytes) -> dict[bytes, float]:
        return dict(self.server.zrange(self.prefix + key, 0, -1, withscores=True))

    def state(self, job: bytes) -> int:
        return self.kept[job].state if job in self.kept else _WAITING

    def in_state(self, code: int) -> set[bytes]:
        return {job for job in self.jobs if self.state(job) == code}

    def expires(self, job: bytes) -> int:
        return self.kept[job].expires if job in self.kept else self.jobs[job].expires

    def membership(self, job: bytes) -> bytes:
        """Of a member of a flow: its part and its flags; nothing for others."""
        if job in self.kept:
            return self.kept[job].membership
        return (self.jobs[job].membership or b"")[-21:]

    def blocked(self) -> set[bytes]:
        return {job for job in self.jobs if (m := self.membership(job)) and m[20] & 2}

    def faults(self) -> list[str]:
        self.records()
        self.queues()
        self.lines()
        self.running()
        self.limits()
        self.lanes()
        self.bays()
        self.journal()
        self.audits()
        self.others()
        self.found += flow_faults(self)
        return self.found

    # --- jobs ---------------------------------------------------------------------------------

    def records(self) -> None:
        self.same("all", {j: int(n) for j, n in self.scores(b"all").items()},
                  {j: asked.seq for j, asked in self.jobs.items()})  # fmt: skip
        self.same("odd", set(self.scores(b"odd")), {j for j, asked in self.jobs.items()
                  if abs(int.from_bytes(j[:4]) - asked.created // 65536000) > 1})  # fmt: skip
        self.expect(self.kept.keys() <= self.jobs.keys(), "state records without a job")
        failed = {job for job, kept in self.kept.items() if kept.flags & ERROR}
        self.same("errors", set(self.fields(b"errors")), failed)
        self.expect(set(self.fields(b"tracebacks")) <= failed, "tracebacks without an error")
        self.expect(set(self.fields(b"frames")) <= failed, "frames without an error")
        claimed = {job for job, kept in self.kept.items() if kept.number}
        self.expect(set(self.fields(b"progress")) <= claimed, "progress of nobody")
        self.expect(set(self.fields(b"metadata")) <= claimed, "metadata of nobody")
        self.expect(self.families[b"history"] <= claimed, "history of nobody")
        for job in self.families[b"history"]:
            length = self.server.llen(self.prefix + b"history:" + job)
            self.expect(length <= 32, f"history of {length}")
        counts: dict[bytes, int] = defaultdict(int)
        for job, asked in self.jobs.items():
            counts[b"%d" % self.state(job) + asked.queue.encode()] += 1
        self.same("counts", {k: int(v) for k, v in self.fields(b"counts").items()}, dict(counts))
        for state in State:
            if state not in {State.WAITING, State.RUNNING}:
                code, members = CODES[state], {job for job in self.jobs if self.membership(job)}
                self.ended(b"%d" % code, self.in_state(code) - members)
                self.ended(b"m%d" % code, self.in_state(code) & members)
        throttled = {job for job, kept in self.kept.items() if kept.flags & THROTTLED}
        self.same("throttled", set(self.fields(b"throttled")), throttled)
        missed = {job for job, kept in self.kept.items() if kept.missed}
        self.same("missed", set(self.fields(b"missed")), missed)

        retrying: dict[bytes, dict[bytes, float]] = defaultdict(dict)
        for job in self.in_state(_WAITING) & self.kept.keys():
            asked, kept = self.jobs[job], self.kept[job]
            if kept.attempt > kept.max_attempts - asked.budget:
                retrying[asked.queue.encode()][job] = asked.seq
        self.same("retrying", {q: self.scores(b"retrying:" + q)
                  for q in self.families[b"retrying"]}, dict(retrying))  # fmt: skip

    def ended(self, digit: bytes, jobs: set[bytes]) -> None:
        lines: dict[bytes, dict[bytes, float]] = defaultdict(dict)
        for job in jobs:
            lines[digit + b":" + self.jobs[job].queue.encode()][job] = self.kept[job].finished
        found = {rest for rest in self.families[b"finished"] if rest.startswith(digit + b":")}
        self.same(f"finished {digit!r}", {n: self.scores(b"finished:" + n) for n in found},
                  dict(lines))  # fmt: skip
        self.same(f"oldest {digit!r}", self.scores(b"oldest:" + digit),
                  {name[len(digit) + 1 :]: min(line.values()) for name, line in lines.items()}
                  )  # fmt: skip

    def queues(self) -> None:
        settings = {
            queue: msgspec.json.decode(text, type=QueueSettings)
            for queue, text in self.fields(b"settings").items()
        }
        self.expect(QueueSettings() not in settings.values(), "settings that say nothing")
        brakes = {q: struct.unpack(">dII", text) for q, text in self.fields(b"brakes").items()}
        self.expect((0, 0, 0) not in brakes.values(), "a brake that holds nothing")
        wanted = {q: its.max_running for q, its in settings.items() if its.max_running}
        self.same("max_running", {q: most for q, (_, _, most) in brakes.items() if most}, wanted)
        for till, hits, _ in brakes.values():
            self.expect((till > 0) == (hits > 0), "a rest without an end, or an end without a rest")
            self.expect(hits <= MAX_STEPS, "more rests than are counted")

    def lines(self) -> None:
        stand: dict[bytes, list[bytes]] = defaultdict(list)
        for family in (b"later", b"ready", b"solo", b"lane"):
            for name in self.families[family]:
                for member, score in self.scores(family + b":" + name).items():
                    job = member[17:33]
                    stand[job].append(family)
                    if job in self.jobs:
                        self.place(family, name, member, score)
        self.same("lines", {j: len(lines) for j, lines in stand.items()},
                  dict.fromkeys(self.in_state(_WAITING) - self.blocked(), 1))  # fmt: skip
        due = self.in_state(_WAITING) - self.blocked()
        waiting = {j: e for j in due if (e := self.expires(j))}
        self.same("expiring", self.scores(b"expiring"), waiting)
        first = {queue: min(self.scores(b"later:" + queue).values())
                 for queue in self.families[b"later"]}  # fmt: skip
        self.same("due", self.scores(b"due"), first)

    def place(self, family: bytes, name: bytes, member: bytes, score: float) -> None:
        asked, kept = self.jobs[member[17:33]], self.kept.get(member[17:33])
        due = kept.due if kept else asked.due
        told = struct.unpack(">dd", member[1:17])
        self.same(f"place in {family!r}", (told[0] - (0 if member[0] else 2**56), told[1]),
                  (due, asked.seq))  # fmt: skip
        self.same("score", score, due if family == b"later" else asked.priority)
        queue = asked.queue.encode()
        if family == b"lane":
            self.expect(name.startswith(b"%d:%s:" % (len(queue), queue)), "another queue's lane")
        else:
            self.same("queue", name, queue)
        kind = member[33:34]
        _, limits = key_and_limits(asked.special)
        solo = kept is not None and bool(kept.flags & SOLO)
        self.same("kind 3", kind == b"3", solo)
        self.same("kind 2", kind == b"2", bool(limits) and not solo)

    def running(self) -> None:
        by_worker: dict[bytes, set[bytes]] = defaultdict(set)
        for job in self.in_state(_RUNNING):
            by_worker[self.kept[job].worker.encode()].add(job)
        self.same("running", {w: self.members(b"running:" + w) for w in self.families[b"running"]},
                  dict(by_worker))  # fmt: skip
        holders = self.members(b"holders")
        self.expect(by_worker.keys() <= holders, "a running set that nobody knows")
        live, ended = set(self.scores(b"live")), set(self.scores(b"ended"))
        self.expect(holders <= live | by_worker.keys(), "a holder that holds nothing")
        rows = self.families[b"worker"]
        self.same("born", set(self.scores(b"born")), rows)
        self.same("live and ended", (live | ended, live & ended), (rows, set()))

    # --- limits -------------------------------------------------------------------------------

    def uses(self, asked: JobRequest) -> set[bytes]:
        _, limits = key_and_limits(asked.special)
        return {(f"{u.name}:{u.key}" if u.key else u.name).encode() for u in limits}

    def limits(self) -> None:
        holds: dict[bytes, set[bytes]] = defaultdict(set)
        for job in self.in_state(_RUNNING):
            for gate in self.uses(self.jobs[job]):
                holds[gate].add(job)
        self.same("holds", {g: self.members(b"holds:" + g) for g in self.families[b"holds"]},
                  dict(holds))  # fmt: skip
        for gate, text in self.fields(b"breakers").items():
            if not gate:
                continue
            failures, opened, till = struct.unpack(">IId", text)
            self.expect(gate in self.fields(b"limits"), f"a breaker {gate!r} that nobody defined")
            self.expect(failures > 0, "a breaker that has not failed")
            self.expect((opened > 0) == (till > 0), "a breaker that never opened is open, or so")
        for key, held in self.fields(b"keys").items():
            job = held[:16]
            fine = job in self.jobs and key_and_limits(self.jobs[job].special)[0] == key.decode()
            self.expect(fine, f"the key {key!r} is held by nobody")

    def lanes(self) -> None:
        lanes = self.fields(b"lanes")
        self.same("lanes", set(lanes), self.families[b"lane"])
        in_bays: dict[bytes, dict[bytes, float]] = defaultdict(dict)
        late: dict[bytes, dict[bytes, float]] = defaultdict(dict)
        for lane, text in lanes.items():
            line = self.server.zrange(self.prefix + b"lane:" + lane, 0, -1, withscores=True)
            if line:
                self.same("head", (text[8:42], *struct.unpack(">d", text[:8])), line[0])
            in_bays[text[42:]][text[8:42] + lane] = struct.unpack(">d", text[:8])[0]
            for member, _ in line:
                if expires := self.expires(member[17:33]):
                    late[_queue_of(lane)][member + lane] = expires
        bays = self.fields(b"bays")
        lone = {bay: text[9:] for bay, text in bays.items() if text[8] == _LONE}
        for bay, lane in lone.items():
            self.same("lone lane", [m[_PLACE:] for m in in_bays.pop(bay, {})], [lane])
        self.same("bay", {b: self.scores(b"bay:" + b) for b in self.families[b"bay"]},
                  dict(in_bays))  # fmt: skip
        self.same("lane_expiring", {q: self.scores(b"lane_expiring:" + q)
                  for q in self.families[b"lane_expiring"]}, dict(late))  # fmt: skip

    def bays(self) -> None:
        bays, lanes = self.fields(b"bays"), self.fields(b"lanes")
        wanted: dict[bytes, dict[bytes, Any]] = defaultdict(lambda: defaultdict(dict))
        for bay, text in bays.items():
            (at,) = struct.unpack(">d", text[:8])
            head = lanes[text[9:]][:42] if text[8] == _LONE else text[8:]
            priority, place = *struct.unpack(">d", head[:8]), head[8:]
            queue = _queue_of(bay)
            gate = bay.split(b":", 1)[1][len(queue) + 1 :].split(b":", 1)[1]
            if text[8] != _LONE:
                heads = self.server.zrange(self.prefix + b"bay:" + bay, 0, 0)
                self.same("head of bay", [head[:_PLACE] for head in heads], [place])
            wanted[b"bays"][queue][bay] = 1.0
            if at == 0:
                wanted[b"open"][queue][place + bay] = priority
            else:
                wanted[b"waits"][gate][bay] = at if at > 0 else float("inf")
                wanted[b"shut"][gate.partition(b":")[0]][gate] = 1.0
            if at > 0:
                wanted[b"timed"][queue][bay] = at
        for family in (b"open", b"waits", b"timed", b"bays", b"shut"):
            is_: Any = {
                name: dict.fromkeys(self.members(family + b":" + name), 1.0)
                if family in {b"bays", b"shut"}
                else self.scores(family + b":" + name)
                for name in self.families[family]
            }
            self.same(family.decode(), is_, {n: dict(m) for n, m in wanted[family].items()})

    def journal(self) -> None:
        events = {
            number + job
            for job in self.families[b"events"]
            for number in self.fields(b"events:" + job)
        }
        self.same("events", set(self.scores(b"events")), events)
        noted = self.families[b"events"] | self.families[b"logs"]
        self.same("journal", self.members(b"journal"), noted)
        self.expect(noted <= self.jobs.keys(), "a journal of nobody")

    def audits(self) -> None:
        numbers = self.scores(b"audits")
        self.same("audit", set(self.fields(b"audit")), set(numbers))
        self.same("audit_ages", set(self.scores(b"audit_ages")), set(numbers))
        by_subject = [self.scores(b"audits_of:" + s) for s in self.families[b"audits_of"]]
        self.same("audits_of", {k: v for line in by_subject for k, v in line.items()}, numbers)
        self.same("subjects", sum(map(len, by_subject)), len(numbers))

    def others(self) -> None:
        counted = self.families[b"rollups"] | self.families[b"copied"]
        self.same("rollups", set(self.scores(b"rollups")), counted)
        self.same("gauges", set(self.scores(b"gauges")), self.families[b"gauges"])
        self.expect(self.server.xlen(self.prefix + b"wake") < 300, "a long stream")
        self.expect(self.server.llen(self.prefix + b"dead") <= 1000, "a long list of dead ones")
        names = set(self.fields(b"limits"))
        self.expect(self.families[b"gates"] <= names, "gates of no limit")
        heads = {n: struct.unpack_from(">IBq", r) for n, r in self.fields(b"schedules").items()}
        planned = {name: float(at) for name, (_, due, at) in heads.items() if due}
        self.same("planned", self.scores(b"planned"), planned)
        self.expect(set(self.fields(b"declared")) <= heads.keys(), "declarations of nobody")


def _queue_of(name: bytes) -> bytes:
    """Of a lane or a bay."""
    length, _, rest = name.partition(b":")
    return rest[: int(length)]
