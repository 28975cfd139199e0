"""Broken stores: for every conformance test one that fails it."""

from tests.storage.broken import (
    activity,
    administering,
    cancelling,
    claiming,
    ending,
    firing,
    histories,
    inserting,
    limits,
    opening,
    scheduling,
    solo,
    working,
)
from tests.storage.broken.table import TABLE, broken_storage

MUTANTS = (
    activity,
    administering,
    cancelling,
    claiming,
    ending,
    firing,
    histories,
    inserting,
    limits,
    opening,
    scheduling,
    solo,
    working,
)

__all__ = ["MUTANTS", "TABLE", "broken_storage"]
