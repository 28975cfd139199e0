"""Broken stores: for every conformance test one that fails it."""

from tests.storage.broken import (
    activity,
    administering,
    breakers,
    cancelling,
    claiming,
    cooling,
    draining,
    ending,
    firing,
    following,
    forgiving,
    histories,
    inserting,
    keeping,
    limits,
    opening,
    replacing,
    scheduling,
    settings,
    solo,
    succeeding,
    working,
)
from tests.storage.broken.table import TABLE, broken_storage

MUTANTS = (
    activity,
    administering,
    breakers,
    cancelling,
    claiming,
    cooling,
    draining,
    ending,
    firing,
    following,
    forgiving,
    histories,
    inserting,
    keeping,
    limits,
    opening,
    replacing,
    scheduling,
    settings,
    solo,
    succeeding,
    working,
)

__all__ = ["MUTANTS", "TABLE", "broken_storage"]
