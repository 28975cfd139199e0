"""Tests of code that enqueues: on a virtual clock, no file, no waiting. ``pytest test_mail.py``."""
# ruff: noqa: S101 -- assert is what tests do

from windlass import Windlass
from windlass.testing import drain_all_sync, drain_sync, enqueued_sync, inline, isolated

app = Windlass("sqlite:///jobs.db")


@app.task
async def send_email(to: str, *, subject: str) -> str:
    return f"sent {subject!r} to {to}"


def remind(to: str) -> None:
    send_email.options(delay=3600, key=to).enqueue_sync(to, subject="Your basket")


def test_a_reminder_is_sent_after_an_hour() -> None:
    with isolated(app) as clock:
        remind("ada@example.org")
        assert drain_sync(app).ran == 0  # not yet
        clock.advance(3600)
        assert drain_sync(app).raise_errors().succeeded == 1


def test_nobody_is_reminded_twice() -> None:
    with isolated(app):
        remind("ada@example.org")
        remind("ada@example.org")
        (reminder,) = enqueued_sync(app, send_email)
        assert reminder.arguments == {"to": "ada@example.org", "subject": "Your basket"}
        assert drain_all_sync(app).succeeded == 1  # moves the clock by itself


def test_a_mail_is_sent_at_once() -> None:
    with inline(app):  # the job has run when enqueue returns
        job = send_email.enqueue_sync("ada@example.org", subject="Hi")
        assert app.blocking.result(job) == "sent 'Hi' to ada@example.org"
