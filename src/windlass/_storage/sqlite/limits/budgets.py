"""The budgets jobs count against, as one operation sees them: read once, written back at its end.

A gate is a limit and a key. Its usage is counted from the running rows, so it cannot leak.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import apsw
import msgspec

from windlass._core.job.job import LimitUse
from windlass._core.limits.breaker import Breaker, BreakerState, record_failure, record_success
from windlass._core.limits.limit import (
    CLOCK_SLACK,
    Admitted,
    Closed,
    LimitSpec,
    Rate,
    admit,
    drained,
)
from windlass._core.values.instants import instant_of, span_us, to_us
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.sqlite.io.rows import Row, fetch, names_text, optional_instant, value_of
from windlass._storage.sqlite.io.wide_statement import WideStatement

__all__ = [
    "UNIT",
    "ClosedLimit",
    "SqliteBudgets",
    "budgets_of",
    "hold_budgets",
    "mark_charged",
    "release_budgets",
    "repair_after_clock_change",
    "set_back_by",
]

_SQL = load_sql("windlass._storage.sqlite.sql", "lanes.sql")
_SPEC, _GATES, _USAGES = _SQL["spec"], _SQL["gates"], _SQL["usages"]
_SPEND, _KNOW = WideStatement(_SQL["spend"]), WideStatement(_SQL["know_gate"])
_HOLD, _LET_GO = WideStatement(_SQL["hold"]), WideStatement(_SQL["let_go"])
_CHARGED, _MARK_CHARGED = _SQL["charged"], _SQL["mark_charged"]
_SET_BACK, _OPEN_ALL = _SQL["set_gates_back"], _SQL["open_all"]
_SET_RESTS_BACK, _SET_BREAKER = _SQL["set_rests_back"], WideStatement(_SQL["set_breaker"])

UNIT = -1.0
"""In the place of a cost: what is missing is a unit of concurrency, or of a breaker that lets one
through at a time; not tokens."""

_CLOSED = record_success()

_spec_of = lru_cache(maxsize=256)(msgspec.json.Decoder(LimitSpec).decode)


class ClosedLimit(NamedTuple):
    """The gate that keeps a job from starting now."""

    gate: str
    cost: float
    """How many tokens are missing, or `UNIT`."""
    opens_at: int | None
    """When it is there by itself; None: when a unit comes back."""


def budgets_of(uses: Collection[LimitUse]) -> Collection[str]:
    """Return each once: a job that names a gate twice is still one job."""
    if len(uses) == 1:
        return [use.gate for use in uses]
    return {use.gate for use in uses}


class SqliteBudgets:
    """The units and tokens that are free at one instant."""

    def __init__(self, connection: apsw.Connection, now: int) -> None:
        self._connection = connection
        self._now = instant_of(now)
        self._specs: dict[str, LimitSpec | None] = {}
        self._usage: dict[str, int] = {}
        self._rows: dict[str, Row | None] = {}
        """Of ``gates`` in lanes.sql, as they were when they were read; None: not listed."""
        self._listed: set[str] = set()
        self._spent: dict[str, datetime | None] = {}
        self._verdicts: dict[str, dict[float, Admitted | Closed]] = {}
        self._charged: dict[str, LimitSpec | None] = {}
        self._holds: list[tuple[str, int]] = []
        self._breakers: dict[str, BreakerState] = {}
        self._moved: set[str] = set()
        self._reckoned: datetime | None = None
        self.closed: set[str] = set()
        """Gates of breakers that a success has closed."""

    def shut(self, uses: Iterable[LimitUse]) -> ClosedLimit | None:
        """Return the gate that keeps these uses from starting; None: every gate admits them.

        A missing unit comes first, because its return has no known time; then the tokens that take
        longest.
        """
        latest: ClosedLimit | None = None
        for use in uses:
            spec = self._spec(use.name)
            if spec is None:
                continue
            gate, cost, opens_at = use.gate, use.cost, None
            if spec.concurrency is not None and self._used(gate) >= spec.concurrency:
                return ClosedLimit(gate, UNIT, None)
            if spec.rate is not None:
                opens_at = self.opens_at(gate, spec, cost)
            elif spec.breaker is not None:
                # All jobs that wait for it are in one lane group: one of them is let through, and
                # its result holds for all.
                cost, opens_at = UNIT, self._open_until(gate, spec.breaker)
                if opens_at is None and self._is_tried(gate, spec.breaker):
                    return ClosedLimit(gate, cost, None)
            if opens_at is not None and (latest is None or opens_at > (latest.opens_at or 0)):
                latest = ClosedLimit(gate, cost, opens_at)
        return latest

    def _open_until(self, gate: str, breaker: Breaker) -> int | None:
        """Return when a breaker that is open lets one through; None: it is not open."""
        state = self._breaker(gate)
        if not state.holds(breaker) or state.open_until is None or state.open_until <= self._now:
            return None
        return to_us(state.open_until)

    def _is_tried(self, gate: str, breaker: Breaker) -> bool:
        """Return whether the one that a breaker lets through is running."""
        return self._breaker(gate).holds(breaker) and self._used(gate) > 0

    def opens_at(self, gate: str, spec: LimitSpec, cost: float) -> int | None:
        """Return when the bucket holds ``cost``; None: it does now."""
        if spec.rate is None:
            return None
        verdict = self._ask(gate, spec.rate, cost)
        return to_us(verdict.open_at) if isinstance(verdict, Closed) else None

    def _ask(self, gate: str, rate: Rate, cost: float) -> Admitted | Closed:
        """Ask the bucket, and keep the answer until it is charged: an admitted job has
        just asked.
        """
        known = self._verdicts.setdefault(gate, {})
        if cost not in known:
            known[cost] = admit(rate, self._spent_until(gate), cost=cost, now=self._now)
        return known[cost]

    def charge(self, uses: Collection[LimitUse], seq: int) -> None:
        """Take from every gate for a job that starts; none of them is shut."""
        held: set[str] = set()
        for use in uses:
            gate, spec = use.gate, self._spec(use.name)
            self._charged[gate] = spec
            if spec is not None and spec.rate is not None:
                verdict = self._ask(gate, spec.rate, use.cost)
                if isinstance(verdict, Admitted):
                    self._spent[gate] = verdict.spent_until
                    del self._verdicts[gate]
            if gate in held:
                continue  # a job that names a gate twice is still one job
            held.add(gate)
            if gate in self._usage:
                self._usage[gate] += 1
            self._holds.append((gate, seq))

    # --- what the end of a job means ----------------------------------------------------------

    def trip(self, uses: Iterable[LimitUse]) -> None:
        """Count a failure for these breakers: once, however often the run names one of them."""
        for gate, name in {use.gate: use.name for use in uses}.items():
            spec = self._spec(name)
            if spec is not None and spec.breaker is not None:
                self._breakers[gate] = record_failure(
                    spec.breaker, self._breaker(gate), self._reckon()
                )
                self._moved.add(gate)

    def close(self, uses: Iterable[LimitUse]) -> None:
        """Close the breakers of a run that succeeded."""
        for use in uses:
            spec = self._spec(use.name)
            if spec is None or spec.breaker is None or self._breaker(use.gate) == _CLOSED:
                continue
            self._breakers[use.gate] = _CLOSED
            self._moved.add(use.gate)
            self.closed.add(use.gate)

    def drain(self, uses: Iterable[LimitUse]) -> bool:
        """Empty the buckets of these gates; False: they have none."""
        drains = False
        for use in uses:
            spec = self._spec(use.name)
            if spec is not None and spec.rate is not None:
                self._spent[use.gate] = drained(
                    spec.rate, self._spent_until(use.gate), self._reckon()
                )
                self._charged[use.gate] = spec
                self._verdicts.pop(use.gate, None)
                drains = True
        return drains

    def _reckon(self) -> datetime:
        """Return the instant from which a wait counts that begins now. By a clock that was set back
        it is the last one that counted: `repair_after_clock_change` moves it with all others.
        """
        if self._reckoned is None:
            last = value_of(self._connection, _CHARGED)
            self._reckoned = self._now if last is None else max(instant_of(last), self._now)
        return self._reckoned

    # --- what is stored -----------------------------------------------------------------------

    def write(self, claim_numbers: Mapping[int, int]) -> Mapping[str, LimitSpec | None]:
        """Store what has changed, and what the claims with these numbers hold; name the gates that
        were taken from.
        """
        spent: list[tuple[str, int]] = []
        known: list[tuple[str]] = []
        for gate, spec in self._charged.items():
            until = None if spec is None or spec.rate is None else self._spent_until(gate)
            if until is not None:
                spent.append((gate, to_us(until)))
            elif gate not in self._listed:
                known.append((gate,))
        _SPEND.run(self._connection, spent)
        _KNOW.run(self._connection, known)
        _SET_BREAKER.run(
            self._connection,
            [(gate, *_columns(self._breakers[gate])) for gate in sorted(self._moved)],
        )
        self._moved.clear()
        # A job that turned out to be damaged was charged, and is not claimed.
        _HOLD.run(
            self._connection,
            [(gate, seq, claim_numbers[seq]) for gate, seq in self._holds if seq in claim_numbers],
        )
        self._holds.clear()
        if self._charged or self._reckoned is not None:
            self._connection.execute(_MARK_CHARGED, (to_us(self._reckoned or self._now),))
        charged, self._charged = self._charged, {}
        return charged

    def _spec(self, name: str) -> LimitSpec | None:
        if name not in self._specs:
            found = value_of(self._connection, _SPEC, (name,))
            self._specs[name] = None if found is None else _spec_of(found)
        return self._specs[name]

    def _used(self, gate: str) -> int:
        if gate not in self._usage:
            self._count((gate,))
        return self._usage[gate]

    def _breaker(self, gate: str) -> BreakerState:
        if gate not in self._breakers:
            _, _, failures, opened, until = self._row(gate) or (gate, None, 0, 0, None)
            self._breakers[gate] = BreakerState(failures, opened, optional_instant(until))
        return self._breakers[gate]

    def _spent_until(self, gate: str) -> datetime | None:
        if gate not in self._spent:
            row = self._row(gate)
            self._spent[gate] = None if row is None else optional_instant(row[1])
        return self._spent[gate]

    def _row(self, gate: str) -> Row | None:
        if gate not in self._rows:
            self._look((gate,))
        return self._rows[gate]

    def read_ahead(self, needs: Iterable[Iterable[LimitUse]]) -> None:
        """Read at once what `shut` will ask about these uses."""
        unseen: set[str] = set()
        uncounted: set[str] = set()
        for use in chain.from_iterable(needs):
            spec = self._spec(use.name)
            if spec is None:
                continue
            gate = use.gate
            if spec.concurrency is not None and gate not in self._usage:
                uncounted.add(gate)
            if (spec.rate is not None or spec.breaker is not None) and gate not in self._rows:
                unseen.add(gate)
        if unseen:
            self._look(unseen)
        if uncounted:
            self._count(uncounted)

    def _look(self, gates: Collection[str]) -> None:
        self._rows |= dict.fromkeys(gates)
        for row in fetch(self._connection, _GATES, (names_text(gates),)):
            self._rows[row[0]] = row
            self._listed.add(row[0])

    def _count(self, gates: Collection[str]) -> None:
        for gate, running, listed in fetch(self._connection, _USAGES, (names_text(gates),)):
            self._usage[gate] = running
            if listed:
                self._listed.add(gate)


def _columns(state: BreakerState) -> tuple[int, int, int | None]:
    until = None if state.open_until is None else to_us(state.open_until)
    return state.failures, state.opened, until


def set_back_by(connection: apsw.Connection, now: int) -> int:
    """Return how far the clock was set back since something was taken, or a queue began to rest."""
    back = int(value_of(connection, _CHARGED) or 0) - now
    return back if back > span_us(CLOCK_SLACK) else 0


def mark_charged(connection: apsw.Connection, now: int) -> None:
    """Record that a wait begins now."""
    last = int(value_of(connection, _CHARGED) or 0)
    connection.execute(_MARK_CHARGED, (max(last, now),))


def repair_after_clock_change(connection: apsw.Connection, now: int) -> None:
    """Reset every gate and every cooling queue to the state of its last use, after the clock was
    set back.
    """
    back = set_back_by(connection, now)
    if back:
        connection.execute(_SET_BACK, (back,))
        connection.execute(_SET_RESTS_BACK, (back,))
        connection.execute(_OPEN_ALL)
        connection.execute(_MARK_CHARGED, (now,))


def hold_budgets(
    connection: apsw.Connection, gates: Collection[str], seq: int, claim_number: int
) -> None:
    """Count a job that runs here from the start against these."""
    _HOLD.run(connection, [(gate, seq, claim_number) for gate in gates])
    _KNOW.run(connection, [(gate,) for gate in gates])


def release_budgets(connection: apsw.Connection, ended: Sequence[tuple[str, int]]) -> None:
    """Claims (gate, seq) have ended. Tidiness only: a hold without its claim counts nothing."""
    _LET_GO.run(connection, ended)
