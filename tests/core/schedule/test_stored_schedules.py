"""Schedules that an older release has stored can be read."""

from __future__ import annotations

import pytest

from windlass._core.schedule.rules import Cron, Every, Manual, Rule
from windlass._core.schedule.schedule import Schedule, ScheduleState, read_state


@pytest.mark.parametrize(
    ("stored", "rule"),
    [
        (b'{"type":"manual"}', Manual()),
        (b'{"type":"every","period":"PT60S"}', Every(60)),
        (b'{"type":"cron","expression":"0 8 * * *"}', Cron("0 8 * * *")),
    ],
)
def test_a_schedule_stored_before_newer_fields_existed_gets_their_defaults(
    stored: bytes, rule: Rule
) -> None:
    body = b'{"plan":{"rule":' + stored + b"}}"
    assert read_state(body) == ScheduleState(plan=Schedule(rule=rule))


def test_a_schedule_with_fields_of_a_newer_release_is_read_without_them() -> None:
    body = b'{"plan":{"rule":{"type":"manual"},"colour":"red"},"mood":"good"}'
    assert read_state(body) == ScheduleState(plan=Schedule(rule=Manual()))
