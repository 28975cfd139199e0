"""``windlass limits``: list and change rate and concurrency limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from windlass._app.parts import parts_of
from windlass._cli.options import name_completion, optional_values
from windlass._cli.options.groups import SuggestingGroup, examples
from windlass._cli.options.target import (
    Target,
    json_option,
    run_on_target,
    target_and_name,
    target_argument,
    target_of,
    url_option,
)

if TYPE_CHECKING:
    from windlass._app.app import Windlass
    from windlass._storage.protocol.limits import LimitState
    from windlass.admin import LimitReport

__all__ = ["limits"]

_names = click.argument(
    "words", metavar="[MODULE:APP] LIMIT", nargs=-1, shell_complete=name_completion.limits
)
_key = click.option(
    "--key", default="", metavar="KEY", help="Key of the bucket, for a limit with keys."
)
_MOST_ROWS = 100


class _ShownLimit(NamedTuple):
    report: LimitReport
    now: datetime

    @property
    def name(self) -> str:
        return self.report.spec.name

    @property
    def running(self) -> int:
        return sum(budget.running for budget in self.report.budgets)

    @property
    def waiting(self) -> int:
        return sum(budget.parked for budget in self.report.budgets)


@click.group(
    cls=SuggestingGroup,
    epilog=examples(
        "windlass limits list shop:app",
        "windlass limits set shop:app crm-api --rate 10/1s",
    ),
)
def limits() -> None:
    """List and change rate and concurrency limits.

    Your code declares limits. They are stored when a worker starts, or with the first job that uses
    them. A value set here applies from the next claim on, also to waiting jobs, until the code's
    value changes.
    """


@limits.command(
    "list",
    epilog=examples(
        "windlass limits list shop:app",
        "windlass limits list --url sqlite:///jobs.db --json",
    ),
)
@target_argument
@url_option
@json_option
def list_limits(target: str | None, url: str | None, *, as_json: bool) -> int:
    """List the stored limits."""
    from windlass._cli.output.tables import NUMBER, print_json, print_table

    async def question(app: Windlass) -> tuple[list[_ShownLimit], str]:
        return await _all(app), (await parts_of(app).storage()).describe()

    found, described = run_on_target(target_of(target, url), question)
    if as_json:
        print_json([_fields(limit) for limit in found])
    elif not found:
        click.echo(
            f"{described} has no limits. A limit is stored when a worker of its tasks starts, or "
            f"with the first job that uses it."
        )
    else:
        titles = ("limit", "rate", "concurrency", "keys", "running", "lanes waiting")
        numbers = (titles[0], titles[1], *(f"{NUMBER}{title}" for title in titles[2:]))
        print_table(numbers, map(_row, found))
    return 0


@limits.command(
    epilog=examples(
        "windlass limits show shop:app crm-api",
        "windlass limits show --url sqlite:///jobs.db crm-api --json",
    )
)
@_names
@url_option
@json_option
def show(words: tuple[str, ...], url: str | None, *, as_json: bool) -> int:
    """Show a limit, and the keys of it that are or were recently in use."""
    where, name = target_and_name(words, url, "limit")

    async def question(app: Windlass) -> _ShownLimit:
        return await _known(app, name)

    _tell(run_on_target(where, question), as_json=as_json)
    return 0


@limits.command(
    "set",
    epilog=examples(
        "windlass limits set shop:app crm-api --rate 100/1m:20",
        "windlass limits set shop:app crm-api --concurrency 4 --rate none",
    ),
)
@_names
@click.option(
    "--rate",
    type=optional_values.RATE,
    metavar=optional_values.RATE.name,
    help="Starts per time: 10/1s, 100/1m; with a burst of 5: 10/1s:5.",
)
@click.option(
    "--concurrency",
    type=optional_values.COUNT,
    metavar=optional_values.COUNT.name,
    help="Jobs that run at once.",
)
@url_option
@json_option
def set_limit(words: tuple[str, ...], url: str | None, *, as_json: bool, **given: object) -> int:
    """Change the rate or the concurrency of a limit. The value none removes it."""
    where, name = target_and_name(words, url, "limit")
    wanted = optional_values.changes(given)
    optional_values.require_change(wanted, "--rate or --concurrency")
    limit = _act_on(where, name, lambda app: app.admin.limits.set(name, **wanted))
    _tell(limit, as_json=as_json)
    return 0


@limits.command(
    epilog=examples(
        "windlass limits drain shop:app crm-api",
        "windlass limits drain shop:app tenant --key acme",
    )
)
@_names
@_key
@url_option
@json_option
def drain(words: tuple[str, ...], key: str, url: str | None, *, as_json: bool) -> int:
    """Empty the token bucket of a rate. Use it when the service counted more calls than you."""
    where, name = target_and_name(words, url, "limit")
    limit = _act_on(where, name, lambda app: app.admin.limits.drain(name, key), key)
    _say(limit, key, "is empty: no job starts before it refills", as_json=as_json)
    return 0


@limits.command(
    epilog=examples(
        "windlass limits reset shop:app crm-api",
        "windlass limits reset shop:app tenant --key acme",
    )
)
@_names
@_key
@url_option
@json_option
def reset(words: tuple[str, ...], key: str, url: str | None, *, as_json: bool) -> int:
    """Fill the token bucket of a rate, so that its jobs start again."""
    where, name = target_and_name(words, url, "limit")
    limit = _act_on(where, name, lambda app: app.admin.limits.reset(name, key), key)
    _say(limit, key, "is full", as_json=as_json)
    return 0


# --- asking ---------------------------------------------------------------------------------------


async def _all(app: Windlass) -> list[_ShownLimit]:
    reports = await app.admin.limits.list()
    now = await (await parts_of(app).storage()).now()
    return [_ShownLimit(report, now) for report in reports]


async def _known(app: Windlass, name: str) -> _ShownLimit:
    known = {limit.name: limit for limit in await _all(app)}
    if name not in known:
        raise click.ClickException(_unknown(name, known))
    return known[name]


def _act_on(
    where: Target, name: str, act: Callable[[Windlass], Awaitable[object]], key: str | None = None
) -> _ShownLimit:
    """Change a stored limit, or the bucket of one ``key``."""

    async def acted(app: Windlass) -> _ShownLimit:
        limit = await _known(app, name)
        if key is not None:
            _check_key(limit, key)
        await act(app)
        return await _known(app, name)

    return run_on_target(where, acted)


def _unknown(name: str, known: Collection[str]) -> str:
    from windlass.errors import suggestion

    return (
        f"No limit named {name!r} is stored.{suggestion(name, known)} `windlass limits list` shows "
        f"all limits. A limit that is new in the code is stored when a worker starts."
    )


def _check_key(limit: _ShownLimit, key: str) -> None:
    """Refuse a missing key, and warn of a key that is not in use: it may be misspelt."""
    from windlass.errors import suggestion

    keys = [budget.key for budget in limit.report.budgets]
    if key in keys or not keys:
        return
    if not key:
        message = (
            f"limit {limit.name!r} has a bucket for each key: name one, for example "
            f"--key {keys[0]!r}"
        )
        raise click.UsageError(message)
    near = suggestion(key, keys)
    click.echo(f"Note: the key {key!r} was not in use recently.{near}", err=True)


# --- telling --------------------------------------------------------------------------------------


def _row(limit: _ShownLimit) -> tuple[str, ...]:
    report = limit.report
    most = report.spec.concurrency
    keys = sum(bool(budget.key) for budget in report.budgets)
    return (
        limit.name,
        _rate(limit),
        "–" if most is None else f"{most:,}",
        f"{keys:,}" if keys else "–",
        f"{limit.running:,}",
        f"{limit.waiting:,}",
    )


def _rate(limit: _ShownLimit) -> str:
    from windlass._settings.durations import format_duration

    rate = limit.report.spec.rate
    if rate is None:
        return "–"
    text = f"{rate.n:,g} per {format_duration(rate.per)}"
    return text if rate.burst == 1 else f"{text}, burst {rate.burst:,}"


def _tell(limit: _ShownLimit, *, as_json: bool) -> None:
    from windlass._cli.output.tables import NUMBER, print_json, print_pairs, print_table

    if as_json:
        print_json(_fields(limit))
        return
    spec, budgets = limit.report.spec, limit.report.budgets
    most = "no limit" if spec.concurrency is None else f"{spec.concurrency:,} at a time"
    by_key = any(budget.key for budget in budgets)
    pairs = (
        ("rate", "no limit" if spec.rate is None else _rate(limit)),
        ("concurrency", f"{most}, for each key" if by_key and spec.concurrency else most),
        ("running", f"{limit.running:,}"),
        ("lanes waiting", f"{limit.waiting:,}"),
    )
    print_pairs(limit.name, pairs)
    if not budgets:
        return
    titles = ("key", f"{NUMBER}running", f"{NUMBER}tokens", "full again", f"{NUMBER}lanes waiting")
    print_table(titles, (_budget_row(limit, budget) for budget in budgets[:_MOST_ROWS]))
    if len(budgets) > _MOST_ROWS:
        click.echo(f"… and {len(budgets) - _MOST_ROWS:,} more keys. --json prints all of them.")


def _budget_row(limit: _ShownLimit, budget: LimitState) -> tuple[str, ...]:
    from windlass._cli.output.tables import left

    tokens, until = _tokens(limit, budget), budget.spent_until
    owing = tokens is not None and until is not None and until > limit.now
    return (
        budget.key or "–",
        f"{budget.running:,}",
        "–" if tokens is None else f"{tokens:,}",
        f"in {left(until, limit.now)}" if owing and until is not None else "–",
        f"{budget.parked:,}",
    )


def _tokens(limit: _ShownLimit, budget: LimitState) -> int | None:
    """Return how many jobs of cost 1 could start now."""
    from windlass._core.limits.limit import tokens_free

    rate = limit.report.spec.rate
    return None if rate is None else tokens_free(rate, budget.spent_until, limit.now)


def _say(limit: _ShownLimit, key: str, what: str, *, as_json: bool) -> None:
    from windlass._cli.output.tables import print_json
    from windlass._observe.log import printable

    if as_json:
        print_json(_fields(limit))
    else:
        of_key = f" for the key {printable(key)!r}" if key else ""
        click.echo(f"The token bucket of limit {limit.name}{of_key} {what}.")


def _fields(limit: _ShownLimit) -> dict[str, Any]:
    """Return the fields for machines, with values in the form that ``set`` takes."""
    from windlass._settings.durations import format_rate

    spec = limit.report.spec
    return {
        "limit": limit.name,
        "rate": None if spec.rate is None else format_rate(spec.rate),
        "concurrency": spec.concurrency,
        "running": limit.running,
        "lanes_waiting": limit.waiting,
        "budgets": [
            {
                "key": budget.key,
                "running": budget.running,
                "tokens": _tokens(limit, budget),
                "spent_until": budget.spent_until,
                "lanes_waiting": budget.parked,
            }
            for budget in limit.report.budgets
        ],
    }
