"""How jobs are laid out on the server. Keys are shown without the prefix all of them start with.

Instants and durations are microseconds. Lua counts in doubles, so instants after the year 2255
are kept to 32 microseconds; everything nearer is exact. ``id`` is the 16 bytes of a job's id.
``queue``, ``task`` and the like are UTF-8.

Jobs
    seq              STRING   the last job number given out
    jobs             HASH     id -> asked record: what was asked for. Rewritten where a later job
                              has replaced its arguments, and where people gave it another
                              priority or queue.
    state            HASH     id -> state record: all that changes. A job that was never claimed,
                              cancelled, requeued, replaced, edited or run early has none, and is
                              waiting as it was asked for.
    all              ZSET     id by job number
    odd              ZSET     id, all with the score 0: those that begin with another time than
                              that of their jobs, told in stretches of 65.536 s (the neighbours of
                              a stretch count as the same). Made by others, or of old slots
    errors           HASH     id -> msgpack [kind, message]; there is one where flag ERROR is set
    tracebacks       HASH     id -> text, where it is not empty
    frames           HASH     id -> where that error was raised, where that is known
    progress         HASH     id -> msgpack [fraction, note], see shared/stored_text.py
    metadata         HASH     id -> claim number (4 bytes), then what the handler noted in that run
                              as JSON. It counts only for the claim that ended last
    throttled        HASH     id -> how often it was; there is one where flag THROTTLED is set
    missed           HASH     id -> why the last worker that claimed it could not run it; there is
                              one where the state record says when it was first missed
    history:<id>     LIST     ended claims, oldest first, newest 32 with
                              an error and 8 without: number, attempt, verb, start,
                              end, length of the error (``>IIBqqI``), error as in ``errors``, worker
                              with its length in 2 bytes, traceback. With 128 added to the verb,
                              metadata with its length in 2 bytes comes before the traceback
    dead             LIST     what could not be read, newest first, at most 1000: id, instant, size
                              of reason and asked record (``>16sdII``), both, state record
    keys             HASH     unique key -> id, then until when it is held (a double; 0: no end)

Lines. A job waits in exactly one of them, but for blocked members of flows, which are in none
    later:<queue>    ZSET     place, then its priority as 8 bytes, by due time: not ready
    ready:<queue>    ZSET     place by priority: jobs without limits
    solo:<queue>     ZSET     place by priority: jobs that run alone, with limits or without
    lane:<lane>      ZSET     place by priority: jobs of a queue that need the same limits
    due              ZSET     queue by the due time of the first in its later line
    expiring         ZSET     id by expiry: every waiting job that has one
    lane_expiring:<queue> ZSET place, then lane, by expiry: those in lanes
    retrying:<queue> ZSET     id by job number: waiting jobs that have spent an attempt since they
                              were enqueued or requeued

    place: 34 bytes that sort like (due, number): sign byte (1, or 0 before 1970), due and number as
    big-endian doubles, id, kind byte. Kind: '0' nothing special, '1' look closer (it has a state
    record, an expiry or a key to be freed at its start), '2' in a lane, '3' solo.

Running and ended
    running:<worker> SET      id
    holders          SET      workers with a running set
    counts           HASH     state digit, then queue -> number of jobs
    paused           SET      queue
    settings         HASH     queue -> `QueueSettings` as JSON, where there are any
    brakes           HASH     queue -> end of its cool-down (0: none), cool-downs in a row, how
                              many may run (0: any number): ``>dII``; most queues have none
    finished:<digit>:<queue>
                     ZSET     id by the instant it ended; digit as in `STATES`, for members of
                              flows with 'm' before it: they are deleted with their flows
    oldest:<digit>   ZSET     queue by the lowest score of that line
    rollups          ZSET     minute by minute
    rollups:<minute> HASH     length (2 bytes) and queue, length and task, then the number of a
                              verb, 'w' bucket or 'r' bucket -> number. Verb 0: enqueues that a
                              unique key answered with a stored job
    copied:<minute>  HASH     the same, of what another storage had counted before it was moved here
    gauges           ZSET     minute by minute
    gauges:<minute>  HASH     source (a host; '': the storage) -> msgpack {gauge: [samples, total,
                              peak]}
    secret           STRING   key of the HMAC that people see of hidden keys; made at first use
    live             ZSET     worker, of those whose row is live (what the score says is the
                              worker store's)
    wake             STREAM   one entry per change, the newest few; field q: the queues
                              it is about, packed (not there: any). Clients that wait for results
                              read it, and workers of older versions
    notices          STREAM   one entry per request to cancel a running job (field t: cancel) and
                              per change of schedules (field t: schedule), the newest few
    work:<queue>     LIST     hints for idle workers, at most 16: each takes one out and claims
    bell:<worker>    LIST     one entry, for a moment: ends the wait of one worker for such hints

Flows. A part is its flow's id and its number in 4 bytes
    flow_seq         STRING   the last number of a flow
    flows            HASH     flow -> msgpack array: see shared/flows.lua
    flow_numbers     ZSET     flow by number
    flow_keys        HASH     key -> the running flow that holds it
    flows_ended:<state> ZSET  flow by the instant it ended; the state as flows.lua numbers them
    flows_running    ZSET     flow by the instant it was started, of those that run
    flows_retried    SET      flow that is being retried: not all its members were reached
    flows_deleted    HASH     flow -> number of its parts: the rest of it is being deleted
    parts            HASH     part -> what it counts: see shared/parts.lua and shared/flows.lua
    plans            HASH     part -> msgpack [name, task, [[part it waits for, strict], ...]]; of
                              the join of an added flow then [its id, its first part, the part
                              that it counts for]
    flows_added      HASH     flow that was added to another one -> its first part there
    feeds            HASH     part -> the parts that wait for it, each as number and strict
                              (``>IB``)
    members:<part>   ZSET     id by job number; with 'a' after it, if a member has added it
    blocked:<part>   ZSET     id by job number: members that wait for other parts
    stopped:<part>   ZSET     id by job number: cancelled, because something before them failed
    skipped:<part>   ZSET     id by job number: discarded, because they were not needed
    blocked          HASH     queue -> number of blocked jobs
    settle           ZSET     what is to be done by the next claims: flows whose cancel has not
                              reached all members (0); parts with jobs to place, to end or to block
                              again, by the number of the flow; 'x' and a flow that expires, by then

Written of jobs, and gone with them
    journal          SET      id of those with log chunks or events: most stores have none
    logs:<id>        HASH     claim number and number of the chunk (``>II``) -> msgpack
                              [[instant, level, text], ...]
    events           ZSET     number of the event (a double), then id, by instant
    events:<id>      HASH     number -> msgpack [instant, kind, task, queue, worker, attempt]
    event_seq        STRING   the last of these numbers

Who ordered what
    audit            HASH     note's id -> instant, how many it took effect on, length of the note
                              (``>dII``), note as msgpack [id, who, what, subject, detail], answers
    audits           ZSET     note's id by the number of the record
    audits_of:<subject> ZSET  the same of one subject
    audit_ages       ZSET     note's id by instant
    audit_seq        STRING   the last number of a record

Schedules
    schedules        HASH     name -> record: revision, 1 if it is due by itself, when it is
                              (``>IBq``), body
    planned          ZSET     name by when it is due, of those that are by themselves
    declared         HASH     name -> when code last said that it has it
    schedules_paused STRING   since when all of them are paused; most storages have none

Limits. See the SQLite backend's lanes.py for lanes and lane groups (here: bays)
    limits           HASH     name -> msgpack [spec as JSON, token spacing, burst, concurrency|nil];
                              of a breaker also failures and a list of how long it opens
    breakers         HASH     gate -> failures in a row, how often it opened in a row, until when it
                              is open (0: it never was): ``>IId``; none where nothing failed.
                              '' -> '': there are breakers
    gates:<limit>    HASH     key ('' for none) -> instant until it is spent, or '': used so far
    charged          STRING   when something was last taken from a gate, or shut one, or a
                              queue began to rest
    holds:<gate>     SET      id of the running jobs that count against it
    lanes            HASH     lane -> head's priority as 8 bytes, head's place, bay
    bays             HASH     bay -> opens_at and head's priority as doubles, head's place;
                              opens_at: 0 open, -1 when a unit comes back, else the instant.
                              Of a bay with one lane (it is lone): opens_at, byte 255, lane
    bays:<queue>     SET      bay
    bay:<bay>        ZSET     head's place, then lane, by the head's priority; none of a lone bay
    open:<queue>     ZSET     head's place, then bay, by the head's priority: open bays
    timed:<queue>    ZSET     bay by opens_at
    waits:<gate>     ZSET     closed bay by opens_at, +inf where it waits for a unit
    shut:<limit>     SET      gates with a waits set

    gate: name, or name:key. lane: length of the queue's name, ':', queue, ':', `lane_key`.
    bay: length of the queue's name, ':', queue, ':', cost, ':', gate; the cost is -1 for a unit
    and for a breaker, whose bays wait for an instant or for the one job that runs.

This is layout 5. Layout 4 had a ``bay:<bay>`` for lone bays, too; such bays are read as they are,
and become lone when a lane of theirs changes. Layout 3 knew no flows. Layout 1 had one line
``finished:<digit>`` for all queues, and no ``oldest``; layout 2 had no ``retrying``, and knew
nothing of frames, journals and audits. open.lua moves and gathers what is missing, in chunks,
before a storage is opened; ``gathering`` (STRING) says how far it is with the jobs that
retry. ``epoch`` (STRING) is the layout, '-', and the id of this set of
jobs. Every script names the one it was opened with. A newer layout under the same id refuses
claims, and everything else from processes whose layout is older than ``finishes`` (STRING) says.
The first flow sets that to 4: older processes would end members without counting them. The first
lone bay sets it to 5: older processes would not find its lane.

The asked record is a msgpack array that begins with values of fixed positions, so that Lua finds
what it needs with one ``struct.unpack`` and Python decodes the rest: `asked.Asked`. The state
record is state and flags; job number, due, max attempts, queue and task, byte by byte as they are
in the asked record, which a claim copies; the numbers of `BACK`; worker and who ended the last
claim, each with its length in 2 bytes; then the result (flag RESULT) or the reason
(flag REASON).

The asked record of a member of a flow begins with another byte, and ends with how the job is due
(as storing.lua takes it: its delay counts from its turn) and its membership: part, and a byte of
flags (1: a member has added it, 2: it is blocked). Its number has another prefix (`MEMBER`), which
a claim copies with it. So the state record tells a member without another read; there the
membership follows the task, and counts from then on.
"""

from __future__ import annotations

import struct
from typing import Final

from windlass._core.job.state import State, Verb
from windlass._core.stats.rollup import COALESCED

__all__ = [
    "BACK",
    "CANCEL",
    "CODES",
    "COUNTED",
    "ERROR",
    "FREES",
    "FRONT",
    "MEMBER",
    "MEMBERSHIP",
    "REASON",
    "RESULT",
    "SOLO",
    "SPENT",
    "STATES",
    "THROTTLED",
    "VERBS",
    "VERB_CODES",
]

STATES: Final = tuple(State)
"""State by the digit it is stored as."""
CODES: Final = {state: code for code, state in enumerate(STATES)}
VERBS: Final = tuple(Verb)
"""Verb by the number it is stored as, in state records."""
VERB_CODES: Final = {verb: code for code, verb in enumerate(VERBS)}
COUNTED: Final = (COALESCED, *(verb.value for verb in VERBS[1:]))
"""Verb by the number it is counted as in rollups. A claim is not counted there."""

FRONT: Final = struct.Struct(">BBBqxqxqxH")
"""A state record begins with state, flags, `MEMBER` or another byte, job number, due, max attempts
and the queue's length."""
MEMBER: Final = 207
"""This byte says that a membership comes after the task."""
MEMBERSHIP: Final = 21
"""The bytes of a membership: flow's id, number of the part, flags."""
BACK: Final = struct.Struct(">IIIqqqqIBH")
"""Further on: claim number, attempt, lost, started, finished, expires, missed, ended number, ended
verb and the worker's length. Instants that are missing are 0."""

CANCEL: Final = 1
"""Flags of a state record: a cancel is requested."""
SOLO: Final = 2
ERROR: Final = 4
RESULT: Final = 8
REASON: Final = 16
FREES: Final = 32
"""The end of the claim frees a key or a limit."""
THROTTLED: Final = 64
SPENT: Final = 128
"""A key held until the start was given up for good."""
