"""Why a job is where it is, with the button that ends it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from windlass.admin.cause import Cause, without_commands
from windlass.core.redact import MASK
from windlass.web.visit import Visit

__all__ = ["Told", "told_of"]


class Button(msgspec.Struct, frozen=True):
    """An order that is asked first."""

    words: str
    path: str
    query: Mapping[str, str]


class Told(msgspec.Struct, frozen=True):
    """One cause, as the page tells it."""

    sentence: str
    advice: str
    """With a button: what it does not say itself. Without: a command, where there is one."""
    button: Button | None = None


def told_of(visit: Visit, job: str, causes: Sequence[Cause]) -> list[Told]:
    """A button for whoever may press it, the command for all others."""
    return [_told(visit, job, cause) for cause in causes]


def _told(visit: Visit, job: str, cause: Cause) -> Told:
    button = _button(job, cause)
    if button is None or not visit.may(_role(visit, button.path)):
        return Told(cause.sentence, cause.fix)
    return Told(cause.sentence, without_commands(cause.fix), button)


def _role(visit: Visit, path: str) -> str:
    """Who may press it, by the table of routes."""
    return next(str(route.role) for route in visit.dashboard.routes if route.path == path)


def _button(job: str, cause: Cause) -> Button | None:
    def of(name: str) -> str:
        return str(cause.evidence.get(name, ""))

    this = {"job": job, "from": "job"}
    match cause.code:
        case "failed" | "cancelled" | "discarded":
            return Button("Requeue", "/jobs/requeue", this)
        case "running":
            return Button("Cancel", "/jobs/cancel", this)
        case "scheduled" | "retry_due" | "snoozed" | "throttled":
            return Button("Run now", "/jobs/run-now", this)
        case "queue_paused":
            return Button("Resume queue", "/queues/resume", {"queue": of("queue")})
        case "queue_cooling":
            return Button("End cool-down", "/queues/warm", {"queue": of("queue")})
        case "queue_full":
            return Button("Queue settings", "/queues/settings", {"queue": of("queue")})
        case "limit_full":
            return Button("Change limit", "/limits/set", {"limit": of("limit")})
        case "rate_spent" if MASK not in of("key"):
            return Button("Fill bucket", "/limits/fill", {"limit": of("limit"), "key": of("key")})
        case "breaker_open" | "breaker_trial":
            return Button("Close breaker", "/breakers/close", {"task": of("task")})
        case "workers_quiet":
            return _resume(cause)
        case _:
            return None


def _resume(cause: Cause) -> Button | None:
    workers: Mapping[str, str] = cause.evidence.get("workers", {})
    quiet = [worker for worker, duty in workers.items() if duty == "quiet"]
    return Button("Resume worker", "/workers/resume", {"worker": quiet[0]}) if quiet else None
