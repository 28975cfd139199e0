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
    "worker": _CommandEntry(
        "windlass._cli.commands.worker:worker", "Run the jobs of an app until told to stop."
    ),
    "demo": _CommandEntry(
        "windlass._cli.demo.command:demo", "See it work: a small shop's jobs, on a scratch file."
    ),
    "jobs": _CommandEntry(
        "windlass._cli.jobs.command:jobs", "Find jobs, explain them, run them again, stop them."
    ),
    "workers": _CommandEntry(
        "windlass._cli.commands.workers:workers", "Look at workers, let them rest, stop them."
    ),
    "queues": _CommandEntry(
        "windlass._cli.commands.queues:queues", "Look at queues, pause them, change them."
    ),
    "limits": _CommandEntry(
        "windlass._cli.commands.limits:limits", "Look at limits and change their numbers."
    ),
    "breakers": _CommandEntry(
        "windlass._cli.commands.breakers:breakers", "Look at circuit breakers, close them."
    ),
    "schedules": _CommandEntry(
        "windlass._cli.commands.schedules:schedules",
        "Look at schedules, run them now, change them.",
    ),
    "errors": _CommandEntry(
        "windlass._cli.commands.errors:errors", "What goes wrong, and where; run it again."
    ),
    "top": _CommandEntry(
        "windlass._cli.top.command:top", "Watch queues, workers and errors, live."
    ),
    "doctor": _CommandEntry(
        "windlass._cli.commands.doctor:doctor", "Look for what hurts, and how to mend it."
    ),
    "audit": _CommandEntry("windlass._cli.commands.audit:audit", "See who has ordered what."),
    "plugins": _CommandEntry(
        "windlass._cli.commands.plugins:plugins", "Look at plugins, and what they may do."
    ),
    "db": _CommandEntry(
        "windlass._cli.commands.db:db", "Make a storage ready, say what it is, move it elsewhere."
    ),
    "dashboard": _CommandEntry(
        "windlass._cli.dashboard.command:dashboard", "See everything in a browser, and act."
    ),
    "bench": _CommandEntry("windlass._cli.bench.command:bench", "Measure it on this machine."),
    "completion": _CommandEntry(
        "windlass._cli.commands.completion:completion", "Let the shell complete commands and names."
    ),
}

_START = """\
First steps:

  windlass demo                        what it does, in ten seconds
  windlass worker shop:app             run the jobs of `app` in shop.py
  windlass worker shop:app --help      queues, slots, processes, signals, exit codes
  windlass queues list shop:app        what waits, runs, is paused or cools down
  windlass jobs explain shop:app ID    why a job is not running
  windlass top shop:app                how things stand, live
  windlass doctor shop:app             what hurts, and how to mend it
"""


class _LazyGroup(SuggestingGroup):
    """Knows its commands by name and one line; what they need is imported when they run."""

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
    """Background jobs that survive a crash."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: list[str] | None = None) -> int:
    """The console script. The answer is the exit code: 1 for anything that was asked wrongly."""
    _fill_standard_descriptors()
    if "_WINDLASS_COMPLETE" in os.environ:
        importlib.import_module(
            "windlass._cli.commands.completion"
        )  # teaches click our ways with a shell
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
    """Started with one of them closed (``2>&-``), the next file opened would take its number:
    whatever writes errors would write them into a database, and libuv aborts.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
