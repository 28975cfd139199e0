"""Tests of the shop: no file, no worker, no waiting. ``pytest -q``."""
# ruff: noqa: S101 -- assert is what tests do

from orders import close_day, order_flow
from payments import alert, charge
from reminders import remind
from shop import app

from windlass.testing import drain_all_sync, drain_sync, enqueued_sync, isolated


def test_a_busy_bank_is_asked_again() -> None:
    with isolated(app):
        job = charge.enqueue_sync(7, "4111-5000")
        assert drain_sync(app).retried == 1  # now it waits for a minute
        assert drain_all_sync(app).succeeded == 1  # moves the clock
        assert app.blocking.result(job) == 7


def test_a_declined_card_is_an_alert() -> None:
    with isolated(app):
        charge.enqueue_sync(8, "4111-0000")
        drained = drain_all_sync(app)
        assert (drained.of(charge).failed, drained.of(alert).succeeded) == (1, 1)


def test_a_customer_is_reminded_once_an_hour_after_the_last_visit() -> None:
    with isolated(app) as clock:
        for items in (1, 2, 3):
            remind.options(delay="1h").enqueue_sync("ada@example.org", items)
            clock.advance(600)
        (waiting,) = enqueued_sync(app, remind)
        assert waiting.arguments == {"customer": "ada@example.org", "items": 3}
        clock.advance(2999)
        assert drain_sync(app).ran == 0
        clock.advance(1)
        assert drain_sync(app).succeeded == 1


def test_an_order_is_charged_invoiced_and_mailed() -> None:
    with isolated(app):
        run = app.blocking.start(order_flow(7, card="4111-1111", to="ada@example.org"))
        assert drain_sync(app).raise_errors().succeeded == 3
        assert app.blocking.wait(run).state == "succeeded"


def test_no_invoice_without_money() -> None:
    with isolated(app):
        run = app.blocking.start(order_flow(8, card="4111-0000", to="bob@example.org"))
        drain_all_sync(app)
        record = app.blocking.wait(run)
        assert (record.state, record.failed, record.stopped) == ("failed", 1, 2)


def test_the_day_is_closed_once_at_a_time() -> None:
    with isolated(app):
        first, second = close_day.enqueue_sync(), close_day.enqueue_sync()
        drain_sync(app).raise_errors()
        assert app.blocking.result(first) == app.blocking.result(second)  # the id of one flow
