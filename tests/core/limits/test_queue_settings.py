from __future__ import annotations

import math
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.fixtures import few
from windlass._core.limits.backoff import Backoff
from windlass._core.limits.queue_settings import QueueSettings
from windlass.errors import InvalidArgument

HOUR = timedelta(hours=1)

curves = st.none() | st.sampled_from(
    [Backoff.none(), Backoff.fixed(5), Backoff.waits([1, 60]), Backoff.exponential()]
)
ages = st.none() | st.timedeltas(timedelta(0), timedelta(days=36_525))
settings = st.builds(
    QueueSettings,
    max_running=st.none() | st.integers(1, 1_000_000),
    backoff=curves,
    cool_down=curves,
    keep_succeeded=ages,
    keep_failed=ages,
)


def test_unset_settings_are_none() -> None:
    plain = QueueSettings()
    assert {getattr(plain, name) for name in QueueSettings.__struct_fields__} == {None}
    assert msgspec.json.encode(plain) == b"{}"


@few
@given(wanted=settings)
def test_settings_survive_being_stored(wanted: QueueSettings) -> None:
    assert msgspec.json.decode(msgspec.json.encode(wanted), type=QueueSettings) == wanted


def test_ages_may_be_given_in_seconds() -> None:
    given_in_seconds = QueueSettings(keep_succeeded=3600, keep_failed=0)  # type: ignore[arg-type]
    assert given_in_seconds == QueueSettings(keep_succeeded=HOUR, keep_failed=timedelta(0))


@pytest.mark.parametrize("most", [0, -1, 1_000_001, 1.0, 2.5, True, "3", math.nan])
def test_a_number_of_running_jobs_that_is_none_is_refused(most: int) -> None:
    with pytest.raises(InvalidArgument, match="pause the queue"):
        QueueSettings(max_running=most)


@pytest.mark.parametrize("field", ["backoff", "cool_down"])
@pytest.mark.parametrize("curve", [5, "5s", timedelta(5), [1, 2]])
def test_a_curve_that_is_none_is_refused_by_name(field: str, curve: object) -> None:
    with pytest.raises(InvalidArgument, match=rf"{field}.*Backoff\.fixed"):
        QueueSettings(**{field: curve})  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["keep_succeeded", "keep_failed"])
@pytest.mark.parametrize("age", [-1, timedelta(days=-1), math.nan, math.inf, "soon", True])
def test_an_age_that_is_no_duration_is_refused_by_name(field: str, age: object) -> None:
    with pytest.raises(InvalidArgument, match=field):
        QueueSettings(**{field: age})  # type: ignore[arg-type]
