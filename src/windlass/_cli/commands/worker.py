"""``windlass worker``."""

from __future__ import annotations

import os
from typing import Any

import click

from windlass._cli.options.groups import examples
from windlass._cli.worker_process.worker_options import WorkerOptions
from windlass.errors import ConfigError

__all__ = ["worker"]


_HELP = """\
Run jobs until stopped.

MODULE:APP names the app: shop:app is the variable `app` in shop.py. Python finds the module from
the current directory or the Python path.
"""

_EPILOG = (
    examples(
        "windlass worker shop:app",
        "windlass worker shop:app --queue mail=10 --queue default=40",
        "windlass worker shop:app --queue urgent --queue default --slots 20 --processes 2",
        "windlass worker shop:app --reload",
    )
    + """

\b
Signals:
  SIGTERM, SIGINT   take no new jobs and let running jobs finish, up to --grace. Then release
                    the rest without using an attempt. A second signal interrupts running jobs
  SIGUSR1           write the stacks of all threads and asyncio tasks to standard error
  SIGHUP            ignored: a worker needs no terminal

\b
Exit codes:
  0    stopped as asked, empty (--until-empty), or at --max-jobs or --max-megabytes without a
       supervisor
  1    could not start: a wrong option, setting or app, a storage that refuses the URL, or no
       storage within --wait-for-store. A supervisor: one child died five times in a row before
       it was ready
  70   the worker crashed, or its stop took too long and was cut short
  73   stopped before it could store every outcome, because the storage was down. Other workers
       run these jobs again
  74   the database was deleted or replaced while it was open. A supervisor starts the worker
       again, with the new database
  75   at --max-jobs or --max-megabytes under a supervisor, which starts another worker at once
  78   a newer Windlass has changed the storage: upgrade windlass before you start it again.
       Running jobs could finish. A supervisor tries once more after 30 s, then exits with 78

\b
With --processes a supervisor restarts workers that died, after 0.5 s, then 1 s, 2 s … up to
30 s. A worker that ran for a minute starts at 0.5 s again. If the supervisor dies, its workers
stop within 2 s.
"""
)


@click.command(help=_HELP, epilog=_EPILOG, context_settings={"max_content_width": 100})
@click.argument("target", metavar="MODULE:APP")
@click.option(
    "-q",
    "--queue",
    "queues",
    multiple=True,
    metavar="NAME[=SLOTS]",
    help="Serve this queue. Repeat for more. NAME=SLOTS reserves slots for it; NAME shares --slots "
    "with the others. Default: every queue of the app's tasks.",
)
@click.option(
    "--others",
    is_flag=True,
    help="Also serve the other queues of the app's tasks, after those of --queue.",
)
@click.option(
    "--slots",
    type=click.IntRange(min=1),
    metavar="N",
    help="Jobs that run at once, over all shared queues. Default: the app's setting, which is 10.",
)
@click.option(
    "--order",
    type=click.Choice(["strict", "weighted"]),
    help="How shared queues take turns. strict: the first queue always goes first. weighted: each "
    "gets its share. Default: strict, or weighted if you give a --weight.",
)
@click.option(
    "--weight",
    "weights",
    multiple=True,
    metavar="NAME=N",
    help="Share of a queue in weighted order. Default: 1.",
)
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    metavar="N",
    default=1,
    show_default=True,
    help="Worker processes, each with its own slots. Two or more run under a supervisor.",
)
@click.option("--until-empty", is_flag=True, help="Stop when nothing is ready or running.")
@click.option(
    "--max-jobs", type=click.IntRange(min=1), metavar="N", help="Replace the process after N jobs."
)
@click.option(
    "--max-megabytes",
    type=click.IntRange(min=1),
    metavar="M",
    help="Replace the process when it uses more than M MiB of memory (Linux).",
)
@click.option(
    "--grace",
    metavar="DURATION",
    help="Time for running jobs to finish after a stop: 30s, 5m. Default: the app's setting.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    envvar="WINDLASS_LOG_LEVEL",
    help="info logs one line per job, warning only problems.",
)
@click.option(
    "--log-format",
    type=click.Choice(["human", "json"]),
    default="human",
    show_default=True,
    envvar="WINDLASS_LOG_FORMAT",
    help="json writes one object per line.",
)
@click.option(
    "--health-port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Serve GET /livez and /readyz. With --processes the first process uses PORT, the second "
    "PORT+1, and so on.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Serve GET /metrics for Prometheus. Needs windlass[metrics]. May be the same port as "
    "--health-port. With --processes it counts up in the same way.",
)
@click.option(
    "--health-host",
    metavar="HOST",
    default="127.0.0.1",
    show_default=True,
    help="Address of both ports. 0.0.0.0 opens them to other machines.",
)
@click.option(
    "--health-name",
    "health_names",
    metavar="NAME",
    multiple=True,
    help="Accept requests for this host name, and for IP addresses. Repeat for more. Default: "
    "localhost on a loopback address, otherwise every name.",
)
@click.option(
    "--health-file",
    metavar="PATH",
    help="Touch this file after every heartbeat that reached the storage. With --processes: "
    "PATH.1, PATH.2, …",
)
@click.option(
    "--wait-for-store",
    metavar="DURATION",
    help="Exit if the storage is down or full for this long at the start: 30s, 5m, 0s. Default: "
    "wait without limit. A wrong password or database ends the worker at once.",
)
@click.option(
    "--allow-memory",
    is_flag=True,
    help="Run on memory:// although the app has no schedule or lifespan: other code of this "
    "process enqueues jobs.",
)
@click.option(
    "--reload",
    "reloads",
    is_flag=True,
    help="For development: restart the worker when a Python file of the app has changed.",
)
@click.option("--summary/--no-summary", default=True, help="Show counts of finished runs.")
@click.option("--child-fd", type=int, hidden=True)
@click.option("--child-number", type=int, hidden=True)
@click.option("--child-colour", is_flag=True, hidden=True)
@click.option("--child-introduce", is_flag=True, hidden=True)
def worker(
    processes: int,
    child_fd: int | None,
    child_number: int | None,
    *,
    child_colour: bool,
    child_introduce: bool,
    reloads: bool,
    **options: Any,
) -> int:
    """Run one worker, or a supervisor of several; see `_HELP`."""
    if os.name != "posix":
        message = "workers run on Linux and macOS; programs on this system can enqueue"
        raise ConfigError(message)
    plan = WorkerOptions(**options)
    plan.check_ports(processes)
    if reloads:
        if processes > 1:
            message = "--reload is for development and runs one process: leave out --processes"
            raise ConfigError(message)
        from windlass._cli.worker_process.reloader import run_with_reload

        return run_with_reload(plan)
    if processes > 1:
        from windlass._cli.worker_process.supervisor import supervise

        return supervise(plan, processes, owner=child_fd)
    from windlass._cli.worker_process.process import ChildOptions, serve

    if child_fd is None:
        return serve(plan)
    child = ChildOptions(
        fd=child_fd, number=child_number or 0, colour=child_colour, introduce=child_introduce
    )
    return serve(plan, child)
