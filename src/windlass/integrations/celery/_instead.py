"""The parts of Celery that are not imitated, and what to write instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

__all__ = [
    "OF_APPS",
    "OF_CANVASES",
    "OF_GROUP_RESULTS",
    "OF_OPTIONS",
    "OF_RESULTS",
    "OF_TASKS",
    "refuse_attribute",
]

_LEAVE_OUT = "leave it out"
_BROKER = "leave it out: jobs are rows of a storage, and queue= says where they wait"
_NO_ANSWER = (
    "leave it out: a call that the storage does not answer raises StorageUnavailable, and "
    "task.options(id=…) makes its repetition safe"
)
OF_OPTIONS: Mapping[str, str] = {
    "add_to_parent": "leave it out: a job that enqueues another is its parent",
    "chord": "write chord(header, body)",
    "compression": _LEAVE_OUT,
    "connection": "for a job in your own transaction, write task.options(connection=…)",
    "delivery_mode": _BROKER,
    "exchange": _BROKER,
    "exchange_type": _BROKER,
    "group_id": "write group(…)",
    "headers": "pass an argument, or task.options(tenant=…, principal=…, correlation_id=…)",
    "ignore_result": "write @app.task(store_result=False)",
    "max_retries": "write @app.task(max_attempts=…), which counts the first attempt",
    "parent_id": "leave it out: a job that enqueues another is its parent",
    "producer": _LEAVE_OUT,
    "publisher": _LEAVE_OUT,
    "replaced_task_nesting": "in the handler, write ctx.then(…)",
    "reply_to": _LEAVE_OUT,
    "retry": _NO_ANSWER,
    "retry_policy": _NO_ANSWER,
    "root_id": "leave it out: a flow has an id",
    "routing_key": _BROKER,
    "serializer": "leave it out: arguments are JSON, by the annotations of the function",
    "shadow": "write @app.task(name=…)",
    "soft_time_limit": "write @app.task(soft_timeout=…)",
    "stamped_headers": "write task.options(tags=[…])",
}

_OPTION = "it is an option of @app.task(…)"
OF_TASKS: Mapping[str, str] = {
    "acks_late": "a job always counts as done after its run",
    "apply": "windlass.testing.inline(app) runs jobs at once, and task(…) runs the function",
    "autoretry_for": "every error is retried; retry_on= and give_up_on= of @app.task change that",
    "backend": "results are in the storage of the jobs",
    "chunks": "give each job a list, and write flow.map(task, lists)",
    "default_retry_delay": f"{_OPTION}: backoff=",
    "delay_on_commit": "windlass.integrations.django has enqueue_on_commit(add.task, …)",
    "apply_async_on_commit": "windlass.integrations.django has enqueue_on_commit(add.task, …)",
    "map": "write flow.map(task, items)",
    "max_retries": f"{_OPTION}: max_attempts=, which counts the first attempt",
    "rate_limit": f"{_OPTION}: limits=[Limit(…, rate=…)], which holds for all workers together",
    "replace": "in the handler, write ctx.then(…)",
    "request": "the handler takes ctx: Context as its first parameter",
    "retry": "in the handler, raise windlass.Retry(after=…)",
    "starmap": "write flow.map_calls([task.call(…), …])",
    "update_state": "in the handler, write ctx.progress(fraction, note)",
}

OF_APPS: Mapping[str, str] = {
    "add_periodic_task": "write @app.schedule(…)",
    "autodiscover_tasks": "write Windlass(imports=[…])",
    "backend": "results are in the storage of the jobs",
    "conf": "settings are arguments of Windlass(…), variables or a file",
    "config_from_object": "settings are arguments of Windlass(…), variables or a file",
    "control": "app.admin and the command windlass act on queues, workers and jobs",
    "on_after_configure": "write @app.schedule(…)",
    "start": "run windlass worker MODULE:APP",
    "worker_main": "run windlass worker MODULE:APP",
}

OF_CANVASES: Mapping[str, str] = {
    "apply": "windlass.testing.inline(app) runs jobs at once",
    "chunks": "give each job a list, and write flow.map(task, lists)",
    "flatten_links": "draw a Flow",
    "freeze": "a node of a Flow has its id before the start",
    "link": "add another step: canvas | signature",
    "link_error": "write canvas.on_error(task.si(…))",
    "map": "write flow.map(task, items)",
    "replace": "in a handler, write ctx.then(…)",
    "skew": "give each signature a countdown: task.s(…).set(countdown=…)",
    "stamp": "write task.options(tags=[…])",
    "starmap": "write flow.map_calls([task.call(…), …])",
    "unchain_tasks": "draw a Flow",
}

_RECORD = "read app.blocking.refresh(app.job(id))"
OF_RESULTS: Mapping[str, str] = {
    "args": _RECORD,
    "backend": "results are in the storage of the jobs",
    "build_graph": "windlass flows graph draws a flow",
    "children": "app.admin.jobs.find(JobFilter(parent=id)) finds the jobs that a job enqueued",
    "collect": "read the results of a flow with run.results(group)",
    "graph": "windlass flows graph draws a flow",
    "info": f"{_RECORD}: it has the progress that ctx.progress(…) stores",
    "iterdeps": "read the results of a flow with run.results(group)",
    "kwargs": _RECORD,
    "maybe_throw": "call get()",
    "on_ready": "write @app.task(on_success=…), or add a job to a flow",
    "queue": _RECORD,
    "retries": _RECORD,
    "then": "write @app.task(on_success=…), or add a job to a flow",
    "worker": _RECORD,
}

OF_GROUP_RESULTS: Mapping[str, str] = {
    "children": "read results",
    "delete": "app.admin.flows has the flow, and retention deletes it",
    "forget": "retention deletes a flow with all of its jobs",
    "iter_native": "call get()",
    "join_native": "call get()",
    "maybe_reraise": "call get()",
    "restore": "app.flow_run(id) finds a flow again",
    "save": "a flow is stored when it starts, and app.flow_run(id) finds it again",
    "waiting": "call ready()",
}


def refuse_attribute(owner: object, name: str, instead: Mapping[str, str]) -> NoReturn:
    """Refuse an attribute that Celery has. AttributeError, so that ``hasattr`` works."""
    kind = type(owner).__name__
    message = f"{kind!r} has no attribute {name!r}"
    if name in instead:
        message = f"{kind}.{name} of Celery is not imitated; {instead[name]}"
    raise AttributeError(message, name=name, obj=owner)
