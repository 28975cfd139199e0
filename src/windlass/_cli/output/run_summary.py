"""Count a worker's runs and describe them, below the log and at the end."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from datetime import timedelta

from windlass._core.job.event import Event, JobMoved
from windlass._core.job.state import Verb
from windlass._observe.log import brief
from windlass._system.seams import monotonic

__all__ = ["RunCounter", "RunSummary", "counts_in_words"]

_WORDS = {
    Verb.SUCCEED: "succeeded",
    Verb.RETRY: "retried",
    Verb.FAIL: "failed",
    Verb.CANCEL: "cancelled",
    Verb.SNOOZE: "snoozed",
    Verb.THROTTLE: "throttled",
    Verb.RELEASE: "released",
    "refused": "not stored because their claim was lost",
}
_WINDOW = 10.0
_EVERY = 30.0


def counts_in_words(counts: Mapping[str, int], between: str = ", ") -> str:
    """Describe counts: ``1,204 succeeded, 3 retried``. Zeros are left out."""
    parts = [f"{counts[key]:,} {word}" for key, word in _WORDS.items() if counts.get(key)]
    return between.join(parts)


class RunCounter:
    """A listener that counts this process's changes of jobs.

    These are the ends of its own runs, the jobs it released when it stopped, and its changes to
    jobs of workers that died.
    """

    def __init__(self) -> None:
        """Start at zero."""
        self.counts: Counter[str] = Counter()

    def __call__(self, event: Event) -> None:
        """Count one event. Changes without a worker are actions of an operator or a program."""
        if isinstance(event, JobMoved) and event.worker and event.verb in _WORDS:
            self.counts[event.verb] += 1


class RunSummary:
    """The work done since the start, and the recent rate."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        """Start now, with nothing done."""
        self._clock = clock
        self._began = clock()
        self._samples: deque[tuple[float, int]] = deque([(self._began, 0)])
        self._said_at = self._began
        self._said = 0
        self._counts: Mapping[str, int] = {}
        self._running = self._slots = 0

    def take(self, counts: Mapping[str, int], *, running: int, slots: int) -> None:
        """Take the current counts."""
        now = self._clock()
        self._counts, self._running, self._slots = dict(counts), running, slots
        self._samples.append((now, self.ended))
        while len(self._samples) > 2 and now - self._samples[1][0] >= _WINDOW:
            self._samples.popleft()

    @property
    def ended(self) -> int:
        """Runs that have ended, however they did."""
        return sum(count for key, count in self._counts.items() if key in _WORDS)

    @property
    def rate(self) -> float:
        """Ended runs per second, over the last ten seconds."""
        (then, before), (now, after) = self._samples[0], self._samples[-1]
        return (after - before) / (now - then) if now > then else 0.0

    def live(self) -> str:
        """Return the text of a line that is updated in place."""
        done = counts_in_words(self._counts, " · ") or "nothing done yet"
        up = brief(timedelta(seconds=self._clock() - self._began))
        return f"{self._running}/{self._slots} running · {done} · {self.rate:,.0f}/s · up {up}"

    def news(self) -> str | None:
        """Return a line for a log, every half minute in which a run ended."""
        now = self._clock()
        if now - self._said_at < _EVERY or self.ended == self._said:
            return None
        rate = (self.ended - self._said) / (now - self._said_at)
        self._said_at, self._said = now, self.ended
        return f"so far {counts_in_words(self._counts)}; {rate:,.1f}/s; {self._running} running"

    def last(self) -> str:
        """Return the summary of a worker that has stopped."""
        spent = self._clock() - self._began
        rate = f" ({self.ended / spent:,.1f}/s)" if self.ended and spent > 0 else ""
        done = counts_in_words(self._counts) or "no job was run"
        return f"{done} in {brief(timedelta(seconds=spent))}{rate}"
