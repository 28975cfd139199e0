"""Broken stores: for every conformance test one that fails it."""

from tests.storage.mutants import gauges, journal, newer_schema, storage
from tests.storage.mutants.actions import actions, audit
from tests.storage.mutants.admin import admin, find, ids, secret, sort, tasks
from tests.storage.mutants.copy import copy
from tests.storage.mutants.copy import flows as copied_flows
from tests.storage.mutants.flows import actions as flow_actions
from tests.storage.mutants.flows import added as flow_added
from tests.storage.mutants.flows import added_after as flow_added_after
from tests.storage.mutants.flows import added_flows as flow_added_flows
from tests.storage.mutants.flows import added_outside as flow_added_outside
from tests.storage.mutants.flows import again as flow_again
from tests.storage.mutants.flows import counts as flow_counts
from tests.storage.mutants.flows import ends as flow_ends
from tests.storage.mutants.flows import portions as flow_portions
from tests.storage.mutants.flows import sealed as flow_sealed
from tests.storage.mutants.flows import start as flow_start
from tests.storage.mutants.jobs import (
    added_jobs,
    apply,
    cancel,
    claim,
    first_start,
    follow_ups,
    history,
    insert,
    lost_jobs,
    metadata,
    outlook,
    repeated_ids,
    solo_runs,
    success_jobs,
    unknown_tasks,
)
from tests.storage.mutants.limits import breakers, budgets, limits
from tests.storage.mutants.maintenance import activity
from tests.storage.mutants.queues import cooldown, cooldown_end, retention, settings
from tests.storage.mutants.schedules import fire, pause, schedules
from tests.storage.mutants.table import TABLE, broken_storage
from tests.storage.mutants.unique_keys import coalesced, replace
from tests.storage.mutants.workers import duties, workers

MUTANTS = (
    added_jobs,
    tasks,
    activity,
    admin,
    duties,
    actions,
    outlook,
    copied_flows,
    copy,
    ids,
    gauges,
    journal,
    find,
    audit,
    breakers,
    cancel,
    claim,
    coalesced,
    cooldown,
    budgets,
    apply,
    fire,
    flow_actions,
    flow_added,
    flow_added_flows,
    flow_added_after,
    flow_added_outside,
    flow_again,
    flow_counts,
    flow_ends,
    flow_portions,
    flow_sealed,
    flow_start,
    follow_ups,
    cooldown_end,
    history,
    insert,
    retention,
    limits,
    lost_jobs,
    metadata,
    unknown_tasks,
    storage,
    repeated_ids,
    replace,
    schedules,
    secret,
    settings,
    solo_runs,
    sort,
    first_start,
    success_jobs,
    newer_schema,
    pause,
    workers,
)

__all__ = ["MUTANTS", "TABLE", "broken_storage"]
