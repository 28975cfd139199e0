"""What the simulation refuses: everything whose outcome the seed does not decide."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from tests.simulation.framework.errors import NotSimulated

if TYPE_CHECKING:
    from tests.simulation.framework.loop import SimLoop

__all__ = ["OUTSIDE", "refusal"]

# Methods of an event loop.
OUTSIDE = (
    *("run_in_executor", "set_default_executor", "set_task_factory"),
    *("add_signal_handler", "remove_signal_handler", "subprocess_exec", "subprocess_shell"),
    *("add_reader", "remove_reader", "add_writer", "remove_writer"),
    *("getaddrinfo", "getnameinfo", "create_connection", "create_server", "start_tls", "sendfile"),
    *("create_unix_connection", "create_unix_server", "create_datagram_endpoint"),
    *("connect_accepted_socket", "connect_read_pipe", "connect_write_pipe"),
    *("sock_recv", "sock_recv_into", "sock_recvfrom", "sock_recvfrom_into", "sock_sendall"),
    *("sock_sendto", "sock_connect", "sock_accept", "sock_sendfile"),
)


def refusal(name: str) -> Callable[..., NoReturn]:
    """A method that says no, and also leaves word: the code under test may swallow it."""

    def refuse(loop: SimLoop, *_args: object, **_options: object) -> NoReturn:
        error = NotSimulated(
            f"loop.{name}() reaches outside the simulation. Put what needs it behind a seam "
            "that the simulation replaces."
        )
        loop.failures.append(error)
        raise error

    return functools.wraps(getattr(asyncio.AbstractEventLoop, name))(refuse)
