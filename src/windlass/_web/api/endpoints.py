"""Every address of the API. The routes and the OpenAPI document are made of this."""

from __future__ import annotations

from windlass._web.api.actions import JOB_ACTIONS
from windlass._web.api.endpoint import Endpoint
from windlass._web.api.flows import FLOWS
from windlass._web.api.jobs import JOBS
from windlass._web.api.operations import OPERATIONS
from windlass._web.api.schedules import SCHEDULES
from windlass._web.api.series import SERIES
from windlass._web.api.stats import STATS

__all__ = ["ENDPOINTS"]

ENDPOINTS: tuple[Endpoint, ...] = (
    *STATS,
    *SERIES,
    *JOBS,
    *JOB_ACTIONS,
    *FLOWS,
    *OPERATIONS,
    *SCHEDULES,
)
"""Static paths stand before those with a parameter: the first that fits answers."""
