"""Other numbers for limits and breakers, and which jobs hold a limit."""

from __future__ import annotations

from starlette.responses import Response

from windlass._core.job.state import State
from windlass._settings.durations import format_duration, format_rate, parse_rate
from windlass._settings.settings import parse_duration
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._system.seams import monotonic
from windlass._web.jobs import find_page
from windlass._web.render.confirmation import ActionNotice, Confirmation
from windlass._web.render.forms import FormPage, FormValues, parse_count
from windlass._web.render.paging import page_rows
from windlass._web.request import PageRequest
from windlass._web.security.cost_limits import COUNT_TIMEOUT
from windlass.admin import BreakerReport, LimitReport
from windlass.errors import BreakerUnknown, InvalidArgument, LimitUnknown

__all__ = ["SET_BREAKER", "SET_LIMIT", "holders"]

_PAGE = "/limits"
_LOOKED_AT = 1_000
"""Running jobs among which the holders are looked for."""
_BITE = 200


async def holders(visit: PageRequest) -> Response:
    """List running jobs that count against one budget."""
    name, key = visit.needed("limit"), visit.asked("key")
    report = await _limit(visit, name)
    wanted, jobs, looked, more = JobFilter(states=[State.RUNNING]), [], 0, True
    until = monotonic() + COUNT_TIMEOUT
    while more and looked < _LOOKED_AT and monotonic() < until:
        page = await find_page(visit.admin, wanted, _BITE)
        looked += len(page)
        jobs += [
            job
            for job in page
            if any(use.name == name and (not key or use.key == key) for use in job.limits)
        ]
        more = page.next is not None
        wanted = JobFilter(states=[State.RUNNING], before=page.next)
    shown = page_rows(visit, jobs)
    return await visit.render(
        "limit_holders.html",
        spec=report.spec,
        key=key,
        jobs=shown.rows,
        shown=shown,
        more=more,
        looked=looked,
    )


# --- limits ---------------------------------------------------------------------------------------


async def _limit(visit: PageRequest, name: str) -> LimitReport:
    known = {report.spec.name: report for report in await visit.admin.limits.list()}
    if name not in known:
        raise LimitUnknown(name, known)
    return known[name]


async def _ask_limit(visit: PageRequest) -> Confirmation:
    name = visit.needed("limit")
    return Confirmation(
        title=f"Change limit {name}",
        sentence="Applies to all workers from the next claim on, until the numbers in the code "
        "change. Running jobs are not affected.",
        button="Save limit",
        back=_PAGE,
    )


async def _limit_filled(visit: PageRequest) -> FormValues:
    spec = (await _limit(visit, visit.needed("limit"))).spec
    return {
        "concurrency": "" if spec.concurrency is None else str(spec.concurrency),
        "rate": "" if spec.rate is None else format_rate(spec.rate),
    }


async def _set_limit(visit: PageRequest, given: FormValues) -> ActionNotice:
    name = visit.needed("limit")
    concurrency, rate = given["concurrency"].strip(), given["rate"].strip()
    await visit.orders.limits.set(
        name,
        concurrency=parse_count(concurrency, "Concurrency") if concurrency else None,
        rate=parse_rate(rate, "Rate") if rate else None,
    )
    return ActionNotice(f"Limit {name} is changed.", _PAGE)


# --- breakers -------------------------------------------------------------------------------------


async def _breaker(visit: PageRequest, task: str) -> BreakerReport:
    known = {report.task: report for report in await visit.admin.breakers.list()}
    if task not in known:
        raise BreakerUnknown(task, known)
    return known[task]


async def _ask_breaker(visit: PageRequest) -> Confirmation:
    task = visit.needed("task")
    return Confirmation(
        title=f"Change the breaker of {task}",
        sentence="Applies from the next failure on, until the numbers in the code change.",
        button="Save breaker",
        back=_PAGE,
    )


async def _breaker_filled(visit: PageRequest) -> FormValues:
    breaker = (await _breaker(visit, visit.needed("task"))).breaker
    return {
        "failures": str(breaker.failures),
        "cool_down": format_duration(breaker.cool_down),
        "growth": f"{breaker.growth:g}",
        "longest": format_duration(breaker.longest),
    }


async def _set_breaker(visit: PageRequest, given: FormValues) -> ActionNotice:
    task = visit.needed("task")
    await visit.orders.breakers.set(
        task,
        failures=parse_count(given["failures"], "Failures in a row"),
        cool_down=parse_duration(given["cool_down"].strip(), "Open for"),
        growth=_number(given["growth"]),
        longest=parse_duration(given["longest"].strip(), "At most"),
    )
    return ActionNotice(f"The breaker of {task} is changed.", _PAGE)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        message = f"Growth must be a number such as 2, got {text!r}"
        raise InvalidArgument(message) from None


SET_LIMIT = FormPage(
    ask=_ask_limit, filled=_limit_filled, act=_set_limit, template="limit_set.html"
)
SET_BREAKER = FormPage(
    ask=_ask_breaker, filled=_breaker_filled, act=_set_breaker, template="breaker_set.html"
)
