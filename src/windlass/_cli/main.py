"""``windlass``: the commands, each imported when it is used."""

from __future__ import annotations

import importlib
import os
from typing import Any, NamedTuple

import click

from windlass._cli.exit_codes import COULD_NOT_START
from windlass._cli.options.groups import SuggestingGroup
from windlass._version import __version__
from windlass.errors import WindlassError

__all__ = ["cli", "main"]


class _CommandEntry(NamedTuple):
    where: str
    help: str


_COMMANDS = {
    "worker": _CommandEntry("windlass._cli.commands.worker:worker", "Run jobs until stopped."),
    "init": _CommandEntry("windlass._cli.commands.init:init", "Write a small project that works."),
    "demo": _CommandEntry(
        "windlass._cli.demo.command:demo", "Run the jobs of an example shop on a temporary file."
    ),
    "jobs": _CommandEntry(
        "windlass._cli.jobs.command:jobs", "List, inspect, requeue and cancel jobs."
    ),
    "flows": _CommandEntry(
        "windlass._cli.flows.command:flows", "List, show, cancel and retry flows."
    ),
    "workers": _CommandEntry(
        "windlass._cli.commands.workers:workers", "List, pause, stop and sweep workers."
    ),
    "queues": _CommandEntry(
        "windlass._cli.commands.queues:queues", "List, pause and configure queues."
    ),
    "limits": _CommandEntry(
        "windlass._cli.commands.limits:limits", "List and change rate and concurrency limits."
    ),
    "breakers": _CommandEntry(
        "windlass._cli.commands.breakers:breakers", "List, reset and change circuit breakers."
    ),
    "schedules": _CommandEntry(
        "windlass._cli.schedules.command:schedules",
        "List, trigger, pause and change schedules.",
    ),
    "tasks": _CommandEntry(
        "windlass._cli.commands.tasks:tasks", "Show jobs, outcomes and the last error of each task."
    ),
    "errors": _CommandEntry(
        "windlass._cli.commands.errors:errors", "Show failures grouped by cause."
    ),
    "top": _CommandEntry("windlass._cli.top.command:top", "Watch queues, workers and errors live."),
    "doctor": _CommandEntry(
        "windlass._cli.commands.doctor:doctor", "Check for problems and suggest fixes."
    ),
    "stats": _CommandEntry(
        "windlass._cli.commands.stats:stats", "Show hosts and the storage over time."
    ),
    "audit": _CommandEntry("windlass._cli.commands.audit:audit", "Show the audit log."),
    "plugins": _CommandEntry(
        "windlass._cli.commands.plugins:plugins", "Show plugins and their permissions."
    ),
    "db": _CommandEntry(
        "windlass._cli.commands.db:db", "Migrate, inspect, copy, reset and drop a storage."
    ),
    "dashboard": _CommandEntry("windlass._cli.dashboard.command:dashboard", "Serve the dashboard."),
    "bench": _CommandEntry("windlass._cli.bench.command:bench", "Measure throughput and latency."),
    "completion": _CommandEntry(
        "windlass._cli.commands.completion:completion", "Print a completion script for your shell."
    ),
}

_START = """\
First steps:

  windlass demo                        see it work, in ten seconds
  windlass init shop                   write a small project to start from
  windlass worker shop:app             run the jobs of `app` in shop.py
  windlass worker --help               queues, slots, processes, signals, exit codes
  windlass queues list shop:app        count waiting and running jobs
  windlass jobs explain shop:app ID    find out why a job is not running
  windlass top shop:app                watch queues, workers and errors
  windlass doctor shop:app             check for problems
"""


class _LazyGroup(SuggestingGroup):
    """Lists its commands without importing them. A command is imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- click's signature
        return list(_COMMANDS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002
        cmd_name: str,
    ) -> click.Command | None:
        entry = _COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module, _, name = entry.where.partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, _COMMANDS[name].help) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def format_epilog(
        self,
        ctx: click.Context,  # noqa: ARG002
        formatter: click.HelpFormatter,
    ) -> None:
        formatter.write("\n")
        formatter.write(_START)


@click.group(
    cls=_LazyGroup,
    no_args_is_help=False,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, "-V", "--version", message="windlass %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Background jobs for Python."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: list[str] | None = None) -> int:
    """Run the console script and return its exit code: 1 for a wrong command line."""
    _fill_standard_descriptors()
    if "_WINDLASS_COMPLETE" in os.environ:
        importlib.import_module(
            "windlass._cli.commands.completion"
        )  # registers our completion class with click
    try:
        answer: Any = cli.main(arguments, prog_name="windlass", standalone_mode=False)
    except click.exceptions.Abort:
        return 130  # as a shell reports an interrupted command
    except click.ClickException as error:
        error.show()
        return COULD_NOT_START
    except WindlassError as error:
        click.echo(f"Error: {error}", err=True)
        return COULD_NOT_START
    return answer if isinstance(answer, int) else 0


def _fill_standard_descriptors() -> None:
    """Open those that are closed (``2>&-``) on the null device.

    Otherwise the next file opened takes the number: errors would be written into a database, and
    libuv aborts.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
