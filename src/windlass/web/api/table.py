"""Every address of the API. The routes and the OpenAPI document are made of this."""

from __future__ import annotations

from windlass.web.api.endpoint import Endpoint
from windlass.web.api.jobs import JOBS
from windlass.web.api.numbers import NUMBERS
from windlass.web.api.orders import ORDERS
from windlass.web.api.schedules import SCHEDULES
from windlass.web.api.steering import STEERING

__all__ = ["ENDPOINTS"]

ENDPOINTS: tuple[Endpoint, ...] = (*NUMBERS, *JOBS, *ORDERS, *STEERING, *SCHEDULES)
"""Static paths stand before those with a parameter: the first that fits answers."""
