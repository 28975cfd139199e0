"""``windlass worker``."""

from __future__ import annotations

import os
from typing import Any

import click

from windlass._cli.worker_process.worker_options import WorkerOptions
from windlass.errors import ConfigError

__all__ = ["worker"]


_HELP = """\
Run the jobs of an app until told to stop.

MODULE:APP is where the app is: shop:app is the variable `app` in shop.py, found from the
current directory or the Python path.

\b
  windlass worker shop:app
  windlass worker shop:app --queue mail=10 --queue default=40
  windlass worker shop:app --queue urgent --queue default --slots 20 --processes 2
"""

_EPILOG = """\
\b
Signals:
  SIGTERM, SIGINT   take no new jobs, let running ones end (up to --grace), give the rest back
                    with their attempt; a second one interrupts running jobs at once
  SIGUSR1           write the stacks of all threads and asyncio tasks to standard error, go on
  SIGHUP            nothing: a worker needs no terminal

\b
Exit codes:
  0    stopped in order, empty (--until-empty), or worn out with no supervisor to replace it
  1    could not start: a wrong option, setting or app, a storage that refuses the URL, or one
       that was not there within --wait-for-store; a supervisor also after one child died
       five times in a row before it was ready
  70   a crash, or a stop that took too long and was cut short
  73   ended before it could store every outcome: an outage outlasted the stop. Other workers run
       these jobs again
  74   its database was deleted or replaced while it was open: nothing more can be stored.
       Started again, as a supervisor does, it opens what is there then
  75   worn out (--max-jobs, --max-megabytes), under a supervisor: it starts another at once
  78   a newer Windlass has changed the storage: upgrade windlass before you start it again.
       Jobs that ran could end. A supervisor tries once more after 30 s, then ends with 78, too

\b
With --processes the supervisor starts dead workers again, after 0.5 s and then twice as long
each time, up to 30 s; one that worked for a minute begins at 0.5 s again. Its children end
within 2 s when it dies, however it dies.
"""


@click.command(help=_HELP, epilog=_EPILOG, context_settings={"max_content_width": 100})
@click.argument("target", metavar="MODULE:APP")
@click.option(
    "-q",
    "--queue",
    "queues",
    multiple=True,
    metavar="NAME[=SLOTS]",
    help="A queue to serve; repeat for more. NAME=SLOTS gives it slots of its own, NAME alone "
    "shares --slots with the others. Default: every queue the app's tasks name.",
)
@click.option(
    "--others",
    is_flag=True,
    help="After the queues that are named, serve every other queue the app's tasks name.",
)
@click.option(
    "--slots",
    type=click.IntRange(min=1),
    metavar="N",
    help="Jobs at once over all shared queues. Default: the app's, which is 10.",
)
@click.option(
    "--order",
    type=click.Choice(["strict", "weighted"]),
    help="For shared queues. strict: in the order given, the first one always wins. weighted: "
    "each gets its share. Default: strict, or weighted when there is a --weight.",
)
@click.option(
    "--weight",
    "weights",
    multiple=True,
    metavar="NAME=N",
    help="A queue's share in weighted order; a queue without one counts 1.",
)
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    metavar="N",
    default=1,
    show_default=True,
    help="Worker processes, each with its own slots, under a supervisor when more than one.",
)
@click.option("--until-empty", is_flag=True, help="Stop when nothing is ready or running.")
@click.option(
    "--max-jobs", type=click.IntRange(min=1), metavar="N", help="Be replaced after N jobs."
)
@click.option(
    "--max-megabytes",
    type=click.IntRange(min=1),
    metavar="M",
    help="Be replaced when the process uses more memory.",
)
@click.option(
    "--grace",
    metavar="DURATION",
    help="How long running jobs may take after a stop: 30s, 5m. Default: the app's.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    envvar="WINDLASS_LOG_LEVEL",
    help="info: one line per job. warning: only what went wrong.",
)
@click.option(
    "--log-format",
    type=click.Choice(["human", "json"]),
    default="human",
    show_default=True,
    envvar="WINDLASS_LOG_FORMAT",
    help="json: one object per line.",
)
@click.option(
    "--health-port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Answer GET /livez and /readyz there. With --processes the first process takes PORT, "
    "the second PORT+1, and so on.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Count for Prometheus and answer GET /metrics there; needs windlass[metrics]. May be the "
    "same as --health-port; with --processes it goes up like that.",
)
@click.option(
    "--health-host",
    metavar="HOST",
    default="127.0.0.1",
    show_default=True,
    help="The address of both ports. 0.0.0.0 lets other machines ask.",
)
@click.option(
    "--health-name",
    "health_names",
    metavar="NAME",
    multiple=True,
    help="A host name that both ports answer to, beside IP addresses; repeat for more. Default: "
    "localhost on a loopback address, else every name.",
)
@click.option(
    "--health-file",
    metavar="PATH",
    help="Touch this file with every heartbeat that reached the storage. With --processes: "
    "PATH.1, PATH.2, …",
)
@click.option(
    "--wait-for-store",
    metavar="DURATION",
    help="How long to wait at the start for a storage that is away or full, then exit: 30s, 5m, "
    "0s. Default: as long as it takes. A wrong password or database is not waited for.",
)
@click.option("--summary/--no-summary", default=True, help="The running count of what was done.")
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
    **options: Any,
) -> int:
    """One worker, or a supervisor of several; see `_HELP`."""
    if os.name != "posix":
        message = "workers run on Linux and macOS; programs on this system can enqueue"
        raise ConfigError(message)
    plan = WorkerOptions(**options)
    plan.check_ports(processes)
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
