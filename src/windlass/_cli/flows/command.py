"""``windlass flows``: list, show, explain, cancel and retry flows."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import click

from windlass._app.parts import parts_of
from windlass._cli.options.confirmation import confirm
from windlass._cli.options.groups import SuggestingGroup, examples
from windlass._cli.options.target import (
    json_option,
    run_on_target,
    target_and_name,
    target_argument,
    target_of,
    url_option,
)

if TYPE_CHECKING:
    from windlass._admin.flows.explain import FlowExplanation
    from windlass._app.app import Windlass
    from windlass._core.flows.flow import FlowRecord, PartRecord
    from windlass._storage.protocol.actions import ActionResult
    from windlass._storage.protocol.flows import FlowGraph

__all__ = ["flows"]

_names = click.argument("words", metavar="[MODULE:APP] FLOW", nargs=-1)
_STATES = ("running", "succeeded", "failed", "cancelled")


@click.group(
    cls=SuggestingGroup,
    epilog=examples(
        "windlass flows list shop:app --state failed",
        "windlass flows retry shop:app 0198c3a7…9c4e07",
    ),
)
def flows() -> None:
    """List, show, explain, cancel and retry flows: jobs that wait for jobs."""


@flows.command(
    "list",
    epilog=examples(
        "windlass flows list shop:app",
        "windlass flows list --url sqlite:///jobs.db --state failed --json",
    ),
)
@target_argument
@click.option("--state", type=click.Choice(_STATES), help="Only flows in this state.")
@click.option("--name", metavar="NAME", help="Only flows of this name.")
@click.option("--tenant", metavar="TENANT", help="Only flows of this tenant.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, help="Most flows (50).")
@click.option("--before", type=int, metavar="NUMBER", help="The next page: see --json, number.")
@url_option
@json_option
def list_flows(
    target: str | None, url: str | None, *, as_json: bool, state: str | None, **wanted: Any
) -> int:
    """List flows, newest first."""
    from windlass._cli.output.tables import NUMBER, print_json, print_table
    from windlass._core.flows.flow import FlowState

    states = None if state is None else [FlowState(state)]

    async def question(app: Windlass) -> tuple[list[FlowRecord], datetime, str]:
        storage = await parts_of(app).storage()
        found = await app.admin.flows.list(states=states, **wanted)
        return list(found), await storage.now(), storage.describe()

    found, now, described = run_on_target(target_of(target, url), question)
    if as_json:
        print_json([_fields(flow) for flow in found])
    elif not found:
        click.echo(f"{described} has no such flows. Start one with `await app.start(flow)`.")
    else:
        numbers = [f"{NUMBER}{title}" for title in ("jobs", "done", "failed")]
        titles = ("flow", "name", "state", *numbers, "age")
        print_table(titles, [_row(flow, now) for flow in found])
    return 0


@flows.command(
    epilog=examples(
        "windlass flows show shop:app 0198c3a7…9c4e07",
        "windlass flows show shop:app 0198c3a7…9c4e07 --json",
    )
)
@_names
@url_option
@json_option
def show(words: tuple[str, ...], url: str | None, *, as_json: bool) -> int:
    """Show a flow and its parts."""
    from windlass._cli.flows.graphs import counts_of, shown_parts, waits_for
    from windlass._cli.output.tables import NUMBER, print_json, print_pairs, print_table
    from windlass._core.flows.drawn import drawn_parts
    from windlass._core.flows.flow import PartKind
    from windlass._core.flows.part_state import part_states

    found, now = _read(words, url)
    if as_json:
        print_json(_graph_fields(found))
        return 0
    flow = found.flow
    print_pairs(f"{flow.name} {flow.id}", _pairs(flow, now))
    click.echo()
    states, drawn = part_states(flow, found.parts), drawn_parts(found.parts)
    rows = [
        (
            str(part.number),
            part.name,
            states[part.number].value,
            counts_of(part),
            part.task or "–",
            "all jobs" if part.kind is PartKind.END else waits_for(part, drawn) or "–",
        )
        for part in shown_parts(drawn)
    ]
    print_table((f"{NUMBER}#", "part", "state", "jobs", "task", "after"), rows)
    return 0


@flows.command(
    epilog=examples(
        "windlass flows explain shop:app 0198c3a7…9c4e07",
        "windlass flows explain shop:app 0198c3a7…9c4e07 --json",
    )
)
@_names
@url_option
@json_option
def explain(words: tuple[str, ...], url: str | None, *, as_json: bool) -> int:
    """Explain what a flow waits for, or why it failed, by its jobs."""
    from windlass._admin.explain.cause import with_target
    from windlass._cli.output.tables import print_json, print_pairs

    where, flow = target_and_name(words, url, "flow")

    async def question(app: Windlass) -> FlowExplanation:
        return await app.admin.flows.explain(flow)

    told = run_on_target(where, question)
    if as_json:
        import msgspec

        causes = [msgspec.structs.asdict(cause) for cause in told.causes]
        print_json({**_fields(told.flow), "at": told.at, "causes": causes})
        return 0
    pairs = _pairs(told.flow, told.at)
    for number, cause in enumerate(told.causes):
        pairs.append(("why" if number == 0 else "also", cause.sentence))
        if cause.fix:
            pairs.append(("", f"→ {with_target(cause.fix, where.target, where.url)}"))
    print_pairs(f"{told.flow.name} {told.flow.id}", pairs)
    return 0


@flows.command(
    epilog=examples(
        "windlass flows graph shop:app 0198c3a7…9c4e07",
        "windlass flows graph shop:app 0198c3a7…9c4e07 --format mermaid",
    )
)
@_names
@click.option(
    "--format",
    "kind",
    type=click.Choice(("text", "dot", "mermaid")),
    default="text",
    help="For people, Graphviz or Mermaid (text).",
)
@url_option
@json_option
def graph(
    words: tuple[str, ...],
    url: str | None,
    kind: Literal["text", "dot", "mermaid"],
    *,
    as_json: bool,
) -> int:
    """Print the graph of a flow. With --json as `windlass flows show --json` does."""
    from windlass._cli.flows.graphs import as_dot, as_mermaid, as_text
    from windlass._cli.output.tables import print_json

    found, _ = _read(words, url)
    if as_json:
        print_json(_graph_fields(found))
        return 0
    lines = {"text": as_text, "dot": as_dot, "mermaid": as_mermaid}[kind](found)
    click.echo("\n".join(lines))
    return 0


@flows.command(
    epilog=examples(
        "windlass flows cancel shop:app 0198c3a7…9c4e07",
        "windlass flows cancel shop:app 0198c3a7…9c4e07 --yes --json",
    ),
)
@_names
@url_option
@json_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def cancel(words: tuple[str, ...], url: str | None, *, as_json: bool, yes: bool) -> int:
    """Cancel the waiting jobs of a flow, and ask the running ones to stop."""
    _, flow = target_and_name(words, url, "flow")
    if not yes:
        confirm(f"Cancel flow {flow}?")
    return _act(words, url, "cancel", as_json=as_json)


@flows.command(
    epilog=examples(
        "windlass flows retry shop:app 0198c3a7…9c4e07",
        "windlass flows retry shop:app 0198c3a7…9c4e07 --json",
    ),
)
@_names
@url_option
@json_option
def retry(words: tuple[str, ...], url: str | None, *, as_json: bool) -> int:
    """Run again the jobs of a flow that failed, and those that this has stopped."""
    return _act(words, url, "retry", as_json=as_json)


@flows.command(
    epilog=examples("windlass flows recount shop:app", "windlass flows recount shop:app --repair")
)
@target_argument
@click.option("--repair", is_flag=True, help="Correct what does not agree.")
@url_option
@json_option
def recount(target: str | None, url: str | None, *, as_json: bool, repair: bool) -> int:
    """Compare the counts of all flows with their jobs. Exit code 1 if some do not agree."""
    from windlass._admin.explain.cause import plural
    from windlass._cli.output.tables import print_json

    async def question(app: Windlass) -> list[str]:
        return list(await app.admin.flows.recount(repair=repair))

    wrong = run_on_target(target_of(target, url), question)
    if as_json:
        print_json({"wrong": wrong, "repaired": repair})
    else:
        for line in wrong:
            click.echo(line)
        done = " Corrected." if repair else ""
        verb = "does" if len(wrong) == 1 else "do"
        said = f"{plural(len(wrong), 'count')} {verb} not agree.{done}"
        click.echo(said if wrong else "All counts agree.")
    return 1 if wrong and not repair else 0


# --- asking ---------------------------------------------------------------------------------------


def _read(words: tuple[str, ...], url: str | None) -> tuple[FlowGraph, datetime]:
    where, flow = target_and_name(words, url, "flow")

    async def question(app: Windlass) -> tuple[FlowGraph, datetime]:
        return await app.admin.flows.get(flow), await (await parts_of(app).storage()).now()

    return run_on_target(where, question)


def _act(
    words: tuple[str, ...], url: str | None, action: Literal["cancel", "retry"], *, as_json: bool
) -> int:
    from windlass._admin.explain.cause import with_target
    from windlass._cli.flows.answers import answer_text
    from windlass._cli.output.tables import print_json

    where, flow = target_and_name(words, url, "flow")

    async def act(app: Windlass) -> tuple[ActionResult, FlowRecord]:
        admin = app.admin.flows
        answer = await (admin.cancel(flow) if action == "cancel" else admin.retry(flow))
        return answer, (await admin.get(flow)).flow

    answer, after = run_on_target(where, act)
    done = answer.value == "done"
    if as_json:
        print_json({"flow": flow, "answer": answer.value})
    else:
        said = with_target(answer_text(action, answer, after), where.target, where.url)
        click.echo(said if done else f"Error: {said}", err=not done)
    return 0 if done else 1


# --- telling --------------------------------------------------------------------------------------


def _row(flow: FlowRecord, now: datetime) -> tuple[str, ...]:
    from windlass._cli.output.tables import left
    from windlass._core.job.ids import short_id

    return (
        short_id(flow.id),
        flow.name,
        flow.state.value,
        f"{flow.total:,}",
        f"{flow.total - flow.open:,}",
        f"{flow.failed:,}",
        left(now, flow.created_at),
    )


def _pairs(flow: FlowRecord, now: datetime) -> list[tuple[str, str]]:
    from windlass._cli.output.tables import left

    names = ("failed", "cancelled", "stopped", "skipped")
    counts = "".join(f", {count:,} {name}" for name in names if (count := getattr(flow, name)))
    asked = " (cancel requested)" if flow.cancel_requested and flow.ended_at is None else ""
    pairs = [
        ("state", f"{flow.state.value}{asked}"),
        ("jobs", f"{flow.total - flow.open:,} of {flow.total:,} ended{counts}"),
        ("took" if flow.ended_at else "age", left(flow.ended_at or now, flow.created_at)),
    ]
    given = {"key": flow.key, "tenant": flow.tenant}
    return pairs + [(name, value) for name, value in given.items() if value is not None]


def _fields(flow: FlowRecord) -> dict[str, Any]:
    import msgspec

    return msgspec.structs.asdict(flow)


def _graph_fields(graph: FlowGraph) -> dict[str, Any]:
    return {**_fields(graph.flow), "parts": [_part_fields(part) for part in graph.parts]}


def _part_fields(part: PartRecord) -> dict[str, Any]:
    import msgspec

    after = [{"part": edge.part, "strict": edge.strict} for edge in part.after]
    return {**msgspec.structs.asdict(part), "after": after}
