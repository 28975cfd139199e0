"""Celery's calls for the tasks of an app: move call sites first, and clean them up later.

Celery itself is not needed. What is not imitated raises an error that names the Windlass way.
"""

from windlass.integrations.celery._canvas import ChordHeader, GroupSignature, chain, chord, group
from windlass.integrations.celery._options import ApplyKeywords, PriorityOrder
from windlass.integrations.celery._results import AsyncResult, GroupResult
from windlass.integrations.celery._signature import Canvas, ChainSignature, Signature
from windlass.integrations.celery._tasks import CeleryCalls, CeleryTask

__all__ = [
    "ApplyKeywords",
    "AsyncResult",
    "Canvas",
    "CeleryCalls",
    "CeleryTask",
    "ChainSignature",
    "ChordHeader",
    "GroupResult",
    "GroupSignature",
    "PriorityOrder",
    "Signature",
    "chain",
    "chord",
    "group",
]
